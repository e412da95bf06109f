"""Stores jobs on PostgreSQL: one shared truth for workers on many machines.

Each verb of ``store.protocol.Store`` is one statement of a file in ``sql/``; its comment, or the
head of the function that it calls, argues why it is right. This module only passes values to the
statements, and returns their results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, TypeVar

from outlast.base.clock import SYSTEM
from outlast.model.limits import permit_id
from outlast.store.actions import ACTIONS_SECONDS
from outlast.store.limits import IDLE_SECONDS
from outlast.store.logs import LOGS_KEPT, JobLog, lines_text
from outlast.store.minutes import Counted, columns_of, merge
from outlast.store.postgres.acts import PostgresActVerbs
from outlast.store.postgres.connection import Transaction
from outlast.store.postgres.enqueue import PostgresEnqueueVerbs
from outlast.store.postgres.inspector import fetch
from outlast.store.postgres.limits import PostgresLimitVerbs
from outlast.store.postgres.privileges import grant
from outlast.store.postgres.readable import ReadablePostgres
from outlast.store.postgres.schedules import PostgresScheduleVerbs
from outlast.store.postgres.statements import Pair, array_text, pair_of, to_json
from outlast.store.postgres.workers import WorkerVerbs
from outlast.store.protocol import EXPIRE_MAX, PRUNE_MAX, REFUSALS_KEPT
from outlast.store.schedules import UNDECLARED_SECONDS
from outlast.store.stacks import Stack
from outlast.store.statements import Row, statements
from outlast.store.values import (
    EVENTS_SECONDS,
    Answer,
    NamedStep,
    Purpose,
    Report,
    RunBy,
    Save,
    StepFound,
    Unpublished,
    UnpublishedBatch,
    WorkerRef,
)

_EXCHANGE = statements("postgres", "exchange")
_JOBS = statements("postgres", "jobs")
_STEPS = statements("postgres", "steps")
_DEPENDENCIES = statements("postgres", "dependencies")
_EVENTS = statements("postgres", "events")

_STEP = ("job_id", "token", "name")
_TEXTS = ("name", "value")
T = TypeVar("T", Save, Report)
_PRUNE = statements("postgres", "prune")
_LIMITS = statements("postgres", "limits")
_SESSION = statements("postgres", "session")

_FROM_THE_OLDEST = (-inf, -inf, -inf)


class PostgresStore(
    ReadablePostgres,
    PostgresEnqueueVerbs,
    WorkerVerbs,
    PostgresActVerbs,
    PostgresScheduleVerbs,
    PostgresLimitVerbs,
):
    """A ``Store`` on PostgreSQL 14 or later, with a constant number of connections.

    Args:
        url: ``postgresql://`` or ``postgres://``. Tables are found by the role's search_path,
            which ``?options=-csearch_path%3Dname`` can set.
        options: how to open it; ``more``: changes to them.
    """

    _pruned: tuple[float, float, float] = _FROM_THE_OLDEST
    """Where each search has stopped, in seconds since 1970."""

    async def drop_connections(self) -> None:
        self._connections.drop()

    def find_writer(self) -> None:
        """Return None: each row has its own lock."""

    def why_late(self) -> str:
        return self._connections.loop_pool().in_use.why_late

    async def grant(self, role: str, purpose: Purpose, *, events: bool = False) -> list[str]:
        async with self._connections.use(kind=Transaction.COMMITTED) as connection:
            return await grant(connection, role, purpose, events=events)

    # -- jobs

    async def checkpoint(self, saves: Sequence[Save]) -> list[Answer]:
        """Of several saves of one attempt, store the one with the highest number."""
        best = _last_of_each(sorted(saves, key=lambda save: save.number))
        rows = await self._fetch(
            _JOBS["checkpoint"],
            *_columns(best, "job_id", "token", "number", "value", "losses"),
            REFUSALS_KEPT,
        )
        answers = _answers(rows)
        written = {pair_of(save): save.number for save in best}
        return [
            Answer.ALREADY
            if answers[pair_of(save)] is Answer.ACCEPTED and save.number < written[pair_of(save)]
            else answers[pair_of(save)]
            for save in saves
        ]

    async def find_steps(self, steps: Sequence[NamedStep]) -> list[StepFound]:
        rows = await self._fetch(_STEPS["find"], *_columns(steps, *_STEP))
        return [step_found(row) for row in rows]

    async def keep_steps(self, steps: Sequence[NamedStep]) -> list[Answer]:
        columns = _columns(steps, *_STEP, "value")
        rows = await self._fetch(_STEPS["keep"], *columns, REFUSALS_KEPT)
        answers = {tuple(step): Answer(answer) for *step, answer in rows}
        # if a row was unlocked between two steps of its job, only the second has an answer
        return [
            answers.get((*pair_of(step), step.name))
            or answers.get((*pair_of(step), None), Answer.BUSY)
            for step in steps
        ]

    async def watch_children(self, job_id: int, token: int, ids: Sequence[int]) -> bool:
        return bool(await self._fetch(_DEPENDENCIES["watch"], job_id, token, array_text(ids)))

    async def find_event(self, name: str) -> str | None:
        rows = await self._fetch(_EVENTS["find"], name)
        return str(rows[0][0]) if rows else None

    async def progress(self, reports: Sequence[Report]) -> list[Answer]:
        """Of several reports of one attempt, store the last."""
        last = _last_of_each(reports)
        rows = await self._fetch(
            _JOBS["progress"],
            *_columns(last, "job_id", "token"),
            [report.progress and to_json(report.progress) for report in last],
            array_text(report.still for report in last),
            REFUSALS_KEPT,
        )
        answers = _answers(rows)
        return [answers[pair_of(report)] for report in reports]

    async def keep_logs(self, logs: Sequence[JobLog]) -> set[int]:
        rows = await self._fetch(
            _JOBS["keep_logs"],
            *_columns(logs, "job_id", "token", "number", "printed"),
            [lines_text(each.lines) for each in logs],
            LOGS_KEPT,
        )
        return {row[0] for row in rows}

    async def keep_stack(self, job_id: int, stack: Stack) -> bool:
        return bool(await self._fetch(_JOBS["keep_stack"], job_id, stack.token, to_json(stack)))

    async def expire(self, limit: int = EXPIRE_MAX) -> int:
        return int((await self._fetch(_JOBS["expire"], limit))[0][0])

    async def prune(
        self,
        *,
        jobs_older_than: float,
        workers_older_than: float,
        dead_older_than: float | None = None,
        events_older_than: float = EVENTS_SECONDS,
        limit: int = PRUNE_MAX,
        onward: bool = False,
    ) -> int:
        after = self._pruned if onward else _FROM_THE_OLDEST

        async def work(connection: Any) -> tuple[int, Any]:
            await connection.execute(_SESSION["by_index"])
            ages = (jobs_older_than, dead_older_than)
            found = await connection.fetchrow(_PRUNE["jobs"], limit, *ages, *after)
            left, first = limit - found["gone"], permit_id("", str(SYSTEM.wall()))  # any row
            values = (workers_older_than, left, UNDECLARED_SECONDS, ACTIONS_SECONDS)
            gone = found["gone"] + await connection.fetchval(_PRUNE["workers"], *values)
            gone += len(await connection.fetch(_PRUNE["events"], events_older_than, left))
            if await connection.fetchval(_LIMITS["lock_in_time"]):
                some = (IDLE_SECONDS, left, first)
                await connection.execute(_PRUNE["unserved"], *some)
                gone += await connection.fetchval(_PRUNE["streams"], *some)
            return gone, found

        gone, found = await self._connections.run(work, kind=Transaction.COMMITTED)
        if gone < limit or not onward:
            await self._fetch(_PRUNE["lanes"])
        self._pruned = (found["old"], found["kept"], found["dead"])
        return gone

    async def note_minute(self, worker_id: int, batch: int, counted: Sequence[Counted]) -> None:
        mine = {"level": "worker", "worker_id": worker_id, "batch": batch}
        noted = {"rows": to_json([columns_of(each) | mine for each in counted])}
        await self._connections.run(lambda it: fetch(it, "minutes", "note", noted))

    async def merge_minutes(self, limit: int = PRUNE_MAX) -> int:
        async def work(connection: Any) -> int:
            async def rows(topic: str, name: str, /, **values: Any) -> list[Row]:
                texts = {"rows": to_json(values["rows"])} if "rows" in values else {}
                return await fetch(connection, topic, name, values | texts)

            await connection.execute(_SESSION["by_index"])
            (turn,) = await rows("minutes", "turn")
            return await merge(rows, limit) if turn["is_mine"] else 0

        return await self._connections.run(work, kind=Transaction.COMMITTED)

    async def waiting(self, grace: float, limit: int) -> UnpublishedBatch:
        head, *rows = await self._fetch(_EXCHANGE["waiting"], grace, limit)
        jobs = [Unpublished(*row) for row in rows]
        return UnpublishedBatch(workers=head["token"], next_due=head["seconds"], jobs=jobs)

    async def list_run_elsewhere(self, me: WorkerRef, job_ids: Sequence[int]) -> list[RunBy]:
        which = (me.worker_id, array_text(job_ids))
        return [tuple(row) for row in await self._fetch(_EXCHANGE["list_run_elsewhere"], *which)]


# -- small helpers


def _last_of_each(items: Iterable[T]) -> list[T]:
    return list({pair_of(item): item for item in items}.values())


def _columns(items: Sequence[object], *names: str) -> list[Any]:
    columns = {name: [getattr(item, name) for item in items] for name in names}
    return [each if name in _TEXTS else array_text(each) for name, each in columns.items()]


def step_found(row: Any) -> StepFound:
    if not row["current"]:
        return StepFound(Answer.REFUSED)
    return StepFound(Answer.ACCEPTED if row["value"] is None else Answer.ALREADY, row["value"])


def _answers(rows: Iterable[Any]) -> dict[Pair, Answer]:
    return {(row["job_id"], row["token"]): Answer(row["answer"]) for row in rows}
