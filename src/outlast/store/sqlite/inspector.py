"""Reads for people and screens, on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from sqlite3 import Cursor
from typing import Any

import msgspec

from outlast.clock import Clock
from outlast.model.job import State
from outlast.model.pause import Pause
from outlast.store.actions import LAST_ID, ActionRow
from outlast.store.columns import (
    crash_of,
    find_malformed,
    finite,
    held_of,
    lacks_of,
    names_of,
    policy_of,
    progress_of,
    stack_of,
)
from outlast.store.evidence import (
    AttemptFilter,
    Cause,
    DeadFilter,
    DeadGroups,
    EndedAttempt,
    EndedAttempts,
    Suspect,
)
from outlast.store.finding import Environment
from outlast.store.history import HISTORY_PAGE, AttemptPast, HistoryPage, JobPast, page_of
from outlast.store.listing import find
from outlast.store.lockfile import directory_for, place_in
from outlast.store.logs import LogRow, log_of
from outlast.store.minutes import (
    EVERY_MINUTE,
    MINUTES_MAX,
    TOTALS_MAX,
    Counted,
    MinuteFilter,
    Minutes,
)
from outlast.store.rows import (
    GONE_MAX,
    HELD_MAX,
    AttemptRow,
    Held,
    JobFilter,
    JobIds,
    RefusalRow,
    Served,
    StoredJob,
    WorkerRow,
    WorkerStatus,
)
from outlast.store.schedules import ScheduleRow
from outlast.store.searching import LOOK_BYTES, Searched, Texts
from outlast.store.sqlite import evidence
from outlast.store.sqlite import minutes as sqlite_minutes
from outlast.store.sqlite.connection import SqliteConnection
from outlast.store.sqlite.find import find_ids, search
from outlast.store.sqlite.pauses import pauses
from outlast.store.sqlite.records import show_actions
from outlast.store.sqlite.schedules import row_of
from outlast.store.sqlite.statistics import statistics
from outlast.store.sqlite.wanted import wanted
from outlast.store.statements import statements
from outlast.store.statistics import (
    LANES_MAX,
    NAMED_MAX,
    PLACE_MAX,
    STATISTICS_MAX,
    UNENCRYPTED_MAX,
    Place,
    Statistics,
    Unencrypted,
)

_SNAPSHOT = statements("sqlite", "transaction")
_SQL = (
    statements("sqlite", "inspect")
    | statements("sqlite", "place")
    | statements("sqlite", "schedules")
    | statements("sqlite", "logs")
)


class SqliteInspector:
    """The ``Inspector`` of a SQLite store. Never writes, takes no locks."""

    def __init__(self, connection: SqliteConnection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock

    async def job(self, job_id: int, text_max: int | None = None) -> StoredJob | None:
        """Return one job."""
        values = {"id": job_id, "now": self._clock.wall(), "text_max": text_max}
        rows = await self._rows("job", values)
        return _job(rows[0]) if rows else None

    async def named(self, token: int | None, key: str | None) -> list[int]:
        """Return ids of jobs by a token or by the key of an unfinished job."""
        values = {"token": token, "key": key, "limit": NAMED_MAX}
        return [row[0] for row in await self._rows("named", values)]

    async def job_ids(self, which: JobFilter) -> JobIds:
        """Return ids of jobs, newest first, as one look finds them."""
        return await self._connection.read(lambda cursor: find_ids(cursor, which))

    async def jobs_of(self, ids: Sequence[int], text_max: int | None = None) -> list[StoredJob]:
        """Return the jobs with these ids, newest first."""
        return [_job(row) for row in await self._rows("jobs_of", self._these(ids, text_max))]

    async def search(
        self, ids: Sequence[int], texts: Texts, size_max: int = LOOK_BYTES
    ) -> Searched:
        """Return those of these jobs that hold all that is searched for, as far as it looked."""
        values = self._these(sorted(ids, reverse=True), None) | msgspec.structs.asdict(texts)
        return await self._connection.read(lambda cursor: search(cursor, values, size_max))

    async def jobs(self, which: JobFilter) -> list[StoredJob]:
        """Return jobs, newest first, by as many looks as it takes."""
        return await self.jobs_of((await find(self.job_ids, which)).ids)

    async def attempts(self, job_id: int) -> list[AttemptRow]:
        """Return a job's closed attempts, in the order of their tokens."""
        return [_attempt(row) for row in await self._rows("attempts", (job_id,))]

    async def logs(self, job_id: int) -> list[LogRow]:
        """Return what is kept of a job's attempts, in the order of their tokens."""
        rows = await self._rows("show_logs", (job_id,))
        return [log_of(*row) for row in rows]

    async def last_attempts(
        self, ids: Sequence[int], text_max: int | None = None
    ) -> list[tuple[StoredJob, AttemptRow | None]]:
        """Return jobs as ``jobs_of`` does, each with its last closed attempt."""
        rows = await self._rows("last_attempts", self._these(ids, text_max))
        return [_with_attempt(row) for row in rows]

    async def last_token(self) -> int:
        """Return the last token that was issued, else 0."""
        return int((await self._rows("token_last", ()))[0][0])

    async def workers(self) -> list[WorkerRow]:
        """Return all workers that are there, and those that have gone last, by id."""
        values = {"now": self._clock.wall(), "gone_max": GONE_MAX}
        locks = directory_for(self._connection.path)
        return [_worker(row, locks) for row in await self._rows("workers", values)]

    async def held(self, limit: int = HELD_MAX) -> list[Held]:
        """Return running jobs by worker, at most ``limit``."""
        return [held_of(*row) for row in await self._rows("held", {"limit": limit})]

    async def refusals(
        self, job_id: int | None = None, limit: int = 50, before_id: int | None = None
    ) -> list[RefusalRow]:
        """Return refused writes, newest first; only those with ids below ``before_id``."""
        values = {"job_id": job_id, "limit": limit, "before_id": before_id}
        rows = await self._rows("refusals", values)
        return [RefusalRow(**finite(dict(zip(_REFUSAL, row, strict=True)))) for row in rows]

    async def place(self, job_id: int) -> Place | None:
        """Return where a job stands among the others."""
        bounds = {"most": PLACE_MAX, "named": NAMED_MAX}
        rows = await self._rows("place", {"id": job_id, "now": self._clock.wall()} | bounds)
        return _place(rows[0]) if rows else None

    async def pauses(self) -> list[Pause]:
        """Return all that is paused, by id."""
        return await self._connection.read(pauses)

    async def actions(
        self, limit: int = 50, before_id: int = LAST_ID, job_id: int | None = None
    ) -> list[ActionRow]:
        """Return what was done, newest first."""
        values = {"limit": limit, "before_id": before_id, "job_id": job_id}
        return await self._connection.read(lambda cursor: show_actions(cursor, "show", values))

    async def running_actions(self, limit: int = 50) -> list[ActionRow]:
        """Return bulk actions that are under way, the oldest first."""
        values = {"limit": limit}
        return await self._connection.read(
            lambda cursor: show_actions(cursor, "show_running", values)
        )

    async def now(self) -> float:
        """Return the time of the clock."""
        return self._clock.wall()

    async def statistics(self, most: int = STATISTICS_MAX, lanes: int = LANES_MAX) -> Statistics:
        """Return what the store holds, in numbers of one snapshot, each counted up to ``most``."""
        now = self._clock.wall()
        return await self._connection.read(lambda cursor: statistics(cursor, now, most, lanes))

    async def unencrypted(self, most: int = UNENCRYPTED_MAX) -> list[Unencrypted]:
        """Return how many unfinished jobs have plain payloads."""
        rows = await self._rows("unencrypted", {"most": most})
        return [Unencrypted(task=row[0], looked_at=row[1], number=row[2]) for row in rows]

    async def environment(self) -> Environment:
        """Return what the file stands on."""
        from outlast.store.sqlite.environment import environment

        return await environment(self._connection, self._clock)

    async def served(self) -> Served:
        """Return what active workers take."""
        rows = await self._rows("served", ())
        return Served((names_of(queues), names_of(tasks)) for queues, tasks in rows)

    async def history(self, after_id: int = 0, limit: int = HISTORY_PAGE) -> HistoryPage:
        """Return a page of jobs with their closed attempts, as one snapshot shows them."""

        def look(cursor: Cursor) -> HistoryPage:
            cursor.execute(_SNAPSHOT["snapshot"])
            try:
                rows = cursor.execute(_SQL["history_jobs"], (after_id, limit)).fetchall()
                jobs = [_past(row) for row in rows]
                span = {"after": after_id, "last": jobs[-1].id if len(jobs) == limit else None}
                attempts = cursor.execute(_SQL["history_attempts"], span).fetchall()
                token_last = cursor.execute(_SQL["token_last"]).fetchone()[0]
            finally:
                cursor.execute(_SNAPSHOT["rollback"])
            return page_of(jobs, [_attempt_past(row) for row in attempts], token_last, limit)

        return await self._connection.read(look)

    async def wanted(self, queue: str) -> int:
        """Return how many jobs of a queue want a worker."""
        now = self._clock.wall()
        return await self._connection.read(lambda cursor: wanted(cursor, now, queue))

    async def minutes(
        self, seconds: float, step: int, most: int = MINUTES_MAX, which: MinuteFilter = EVERY_MINUTE
    ) -> Minutes:
        """Return the attempts that were counted in the last ``seconds``, in steps."""
        now = self._clock.wall()
        return await self._connection.read(
            lambda cursor: sqlite_minutes.minutes(cursor, now, seconds, step, most, which)
        )

    async def totals(self, most: int = TOTALS_MAX) -> list[Counted]:
        """Return all that was counted since the store was made."""
        return await self._connection.read(lambda cursor: sqlite_minutes.totals(cursor, most))

    async def counts(self) -> dict[tuple[str, State], int]:
        """Return the number of jobs by (queue, state)."""
        return {(row[0], State(row[1])): row[2] for row in await self._rows("counts", ())}

    def _these(self, ids: Sequence[int], text_max: int | None) -> dict[str, Any]:
        text = msgspec.json.encode(list(ids)).decode()
        return {"ids": text, "text_max": text_max, "now": self._clock.wall()}

    async def schedules(self, limit: int = 1_000, after: str = "") -> list[ScheduleRow]:
        """Return schedules by name."""
        return [row_of(row) for row in await self._rows("show_all", (after, limit))]

    async def schedule(self, name: str) -> ScheduleRow | None:
        """Return one schedule."""
        rows = await self._rows("show", (name,))
        return row_of(rows[0]) if rows else None

    async def dead_groups(self, which: DeadFilter) -> DeadGroups:
        """Return groups of dead jobs."""
        return await self._connection.read(lambda cursor: evidence.dead_groups(cursor, which))

    async def ended_attempts(self, which: AttemptFilter) -> EndedAttempts:
        """Return ended attempts, newest token first."""
        return await self._connection.read(lambda cursor: evidence.ended_attempts(cursor, which))

    async def last_ends(self, ids: Sequence[int]) -> list[EndedAttempt]:
        """Return the last ended attempt of each of these jobs that has one."""
        return await self._connection.read(lambda cursor: evidence.last_ends(cursor, ids))

    async def causes(self, tenant: str | None = None) -> list[Cause]:
        """Return how the newest attempts ended."""
        now = self._clock.wall()
        return await self._connection.read(lambda cursor: evidence.causes(cursor, now, tenant))

    async def suspects(self) -> list[Suspect]:
        """Return the jobs of the newest shared deaths."""
        return await self._connection.read(evidence.suspects)

    async def _rows(self, name: str, values: Any) -> list[tuple[Any, ...]]:
        def look(cursor: Cursor) -> list[tuple[Any, ...]]:
            return cursor.execute(_SQL[name], values).fetchall()

        return await self._connection.read(look)


# sqlite/sql/inspect.sql and its neighbours select the columns in the order of these fields
# except the last: what is malformed; of a worker whether its lock is free, too
_JOB = StoredJob.__struct_fields__[:-1]
_ATTEMPT = AttemptRow.__struct_fields__[:-1]
_WORKER = WorkerRow.__struct_fields__[:-2]
_REFUSAL = RefusalRow.__struct_fields__
_PLACE = Place.__struct_fields__


def _job(row: tuple[Any, ...]) -> StoredJob:
    values = dict(zip(_JOB, row, strict=True))
    values["malformed"] = find_malformed(values)
    values["state"] = State(values["state"])
    values["waiting"] = bool(values["waiting"])
    values["cancel_requested"] = bool(values["cancel_requested"])
    values["policy"] = policy_of(values["policy"])
    values["progress"] = progress_of(values["progress"])
    values["stack"] = stack_of(values["stack"])
    return StoredJob(**values)


_PAST = tuple(name for name in JobPast.__struct_fields__ if name != "attempts")


def _past(row: tuple[Any, ...]) -> JobPast:
    values = dict(zip(_PAST, row, strict=True))
    values["state"] = State(values["state"])
    values["policy"] = policy_of(values["policy"])
    status = values["worker_status"]
    values["worker_status"] = None if status is None else WorkerStatus(status)
    return JobPast(**values)


def _attempt_past(row: tuple[Any, ...]) -> AttemptPast:
    values = dict(zip(AttemptPast.__struct_fields__, row, strict=True))
    values["has_crash"] = bool(values["has_crash"])
    return AttemptPast(**values)


def _attempt(row: tuple[Any, ...]) -> AttemptRow:
    values = finite(dict(zip(_ATTEMPT, row, strict=True)))
    values["malformed"] = find_malformed(values)
    values["progress"] = progress_of(values["progress"])
    values["crash"] = crash_of(values["crash"])
    return AttemptRow(**values)


def _with_attempt(row: tuple[Any, ...]) -> tuple[StoredJob, AttemptRow | None]:
    attempt = row[len(_JOB) :]
    return _job(row[: len(_JOB)]), None if attempt[0] is None else _attempt(attempt)


def _worker(row: tuple[Any, ...], locks: Path) -> WorkerRow:
    values = dict(zip(_WORKER, row, strict=True))
    values["malformed"] = find_malformed(values)
    values["status"] = WorkerStatus(values["status"])
    values |= {name: names_of(values[name]) for name in ("queues", "tasks", "tags")}
    values["lacks"] = lacks_of(values["lacks"])
    values["lock_path"] = place_in(locks, values["lock_path"])
    values["drain_requested"] = bool(values["drain_requested"])
    return WorkerRow(**values)


def _place(row: tuple[Any, ...]) -> Place:
    values = dict(zip(_PLACE, row, strict=True))
    values["incident"] = msgspec.json.decode(values["incident"])
    return Place(**values)
