"""Reads for people and screens, on PostgreSQL. Never writes, takes no locks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from outlast.model.job import State
from outlast.model.pause import Pause
from outlast.store.actions import LAST_ID, ActionRow
from outlast.store.columns import (
    action_of,
    crash_of,
    find_malformed,
    finite,
    held_of,
    lacks_of,
    names_of,
    pause_of,
    policy_of,
    progress_of,
    seconds_of,
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
    Ended,
    MinuteFilter,
    Minutes,
    counted_of,
)
from outlast.store.postgres import evidence
from outlast.store.postgres.find import find_ids
from outlast.store.postgres.pool import Connections
from outlast.store.postgres.privileges import limited_to, privileges
from outlast.store.postgres.session import Transaction
from outlast.store.postgres.statistics import statistics
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
from outlast.store.values import Purpose

_ACTIONS = statements("postgres", "actions")
_ENVIRONMENT = statements("postgres", "environment")
_INSPECT = statements("postgres", "inspect")
_MINUTES = statements("postgres", "minutes")
_PAUSES = statements("postgres", "pauses")
_PLACE = statements("postgres", "place")
_SCHEDULES = statements("postgres", "schedules")
_SESSION = statements("postgres", "session")


class PostgresInspector:
    """An ``Inspector`` on the connections of a store."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def job(self, job_id: int, text_max: int | None = None) -> StoredJob | None:
        """Return one job."""
        rows = await self._fetch(_INSPECT["jobs_of"], [job_id], text_max, True)
        return _job(rows[0]) if rows else None

    async def named(self, token: int | None, key: str | None) -> list[int]:
        """Return ids of jobs by a token or by the key of an unfinished job."""
        async with self._by_index() as connection:
            rows = await connection.fetch(_INSPECT["named"], token, key, NAMED_MAX)
        return [row["id"] for row in rows]

    async def job_ids(self, which: JobFilter) -> JobIds:
        """Return ids of jobs, newest first, as one look finds them."""
        async with self._by_index() as connection:
            return await find_ids(connection, which)

    async def jobs_of(self, ids: Sequence[int], text_max: int | None = None) -> list[StoredJob]:
        """Return the jobs with these ids, newest first."""
        rows = await self._fetch(_INSPECT["jobs_of"], list(ids), text_max, False)
        return [_job(row) for row in rows]

    async def search(
        self, ids: Sequence[int], texts: Texts, size_max: int = LOOK_BYTES
    ) -> Searched:
        """Return those of these jobs that hold all that is searched for, as far as it looked."""
        values = (list(ids), texts.args, texts.error, texts.within, size_max)
        (row,) = await self._fetch(_INSPECT["search"], *values)
        return Searched(**row)

    async def jobs(self, which: JobFilter) -> list[StoredJob]:
        """Return jobs, newest first, by as many looks as it takes."""
        return await self.jobs_of((await find(self.job_ids, which)).ids)

    async def attempts(self, job_id: int) -> list[AttemptRow]:
        """Return a job's closed attempts, in the order of their tokens."""
        return [_attempt(row) for row in await self._fetch(_INSPECT["attempts"], job_id)]

    async def logs(self, job_id: int) -> list[LogRow]:
        """Return what is kept of a job's attempts, in the order of their tokens."""
        return [log_of(*row) for row in await self._fetch(_INSPECT["logs"], job_id)]

    async def last_attempts(
        self, ids: Sequence[int], text_max: int | None = None
    ) -> list[tuple[StoredJob, AttemptRow | None]]:
        """Return jobs as ``jobs_of`` does, each with its last closed attempt."""
        rows = await self._fetch(_INSPECT["last_attempts"], list(ids), text_max)
        return [_with_attempt(tuple(row)) for row in rows]

    async def last_token(self) -> int:
        """Return the last token that was issued, else 0."""
        rows = await self._fetch(_INSPECT["token_last"])
        return int(rows[0][0])

    async def workers(self) -> list[WorkerRow]:
        """Return all workers that are there, and those that have gone last, by id."""
        async with self._by_index() as connection:
            rows = await connection.fetch(_INSPECT["workers"], GONE_MAX)
        locks = directory_for(None)
        return [_worker(row, locks) for row in rows]

    async def held(self, limit: int = HELD_MAX) -> list[Held]:
        """Return running jobs by worker, at most ``limit``."""
        rows = await self._fetch(_INSPECT["held"], limit)
        return [held_of(*row) for row in rows]

    async def refusals(
        self, job_id: int | None = None, limit: int = 50, before_id: int | None = None
    ) -> list[RefusalRow]:
        """Return refused writes, newest first; only those with ids below ``before_id``."""
        rows = await self._fetch(_INSPECT["refusals"], job_id, limit, before_id)
        return [RefusalRow(**finite(dict(row))) for row in rows]

    async def place(self, job_id: int) -> Place | None:
        """Return where a job stands among the others."""
        async with self._by_index() as connection:
            rows = await connection.fetch(_PLACE["place"], job_id, PLACE_MAX, NAMED_MAX)
        return Place(**rows[0]) if rows else None

    async def pauses(self) -> list[Pause]:
        """Return all that is paused, by id."""
        return [pause_of(row) for row in await self._fetch(_PAUSES["pauses"])]

    async def actions(
        self, limit: int = 50, before_id: int = LAST_ID, job_id: int | None = None
    ) -> list[ActionRow]:
        """Return what was done, newest first."""
        rows = await self._fetch(_ACTIONS["show"], before_id, job_id, limit)
        return [action_of(dict(row)) for row in rows]

    async def running_actions(self, limit: int = 50) -> list[ActionRow]:
        """Return bulk actions that are under way, the oldest first."""
        return [action_of(dict(row)) for row in await self._fetch(_ACTIONS["show_running"], limit)]

    async def now(self) -> float:
        """Return the time of the database."""
        return float((await self._fetch(_INSPECT["now"]))[0][0])

    async def statistics(self, most: int = STATISTICS_MAX, lanes: int = LANES_MAX) -> Statistics:
        """Return what the store holds, in numbers of one snapshot, each counted up to ``most``."""
        async with self._by_index() as connection:
            return await statistics(connection, most, lanes)

    async def unencrypted(self, most: int = UNENCRYPTED_MAX) -> list[Unencrypted]:
        """Return how many unfinished jobs have plain payloads."""
        async with self._by_index() as connection:
            return [
                Unencrypted(**row) for row in await connection.fetch(_INSPECT["unencrypted"], most)
            ]

    async def environment(self) -> Environment:
        """Return what the server is and how it is set."""
        from outlast.store.postgres.checks import PostgresFacts

        async with self._connections.use() as connection:
            greeted = connection.get_server_pid()
            rows = await connection.fetch(_ENVIRONMENT["environment"], greeted)
            needed = await privileges(connection, None, Purpose.WORKER)
            lacking = [each.what for each in needed if not each.held]
            limited = await limited_to(connection) if lacking else None
        return PostgresFacts(**rows[0], lacking=lacking, limited_to=limited)

    async def served(self) -> Served:
        """Return what active workers take."""
        async with self._by_index() as connection:
            rows = await connection.fetch(_INSPECT["served"])
        return Served((names_of(row["queues"]), names_of(row["tasks"])) for row in rows)

    async def history(self, after_id: int = 0, limit: int = HISTORY_PAGE) -> HistoryPage:
        """Return a page of jobs with their closed attempts, as one snapshot shows them."""
        async with self._connections.use(kind=Transaction.SNAPSHOT) as connection:
            jobs = [
                _past(row)
                for row in await connection.fetch(_INSPECT["history_jobs"], after_id, limit)
            ]
            last = jobs[-1].id if len(jobs) == limit else None
            rows = await connection.fetch(_INSPECT["history_attempts"], after_id, last)
            token_last = await connection.fetchval(_INSPECT["token_last"])
        return page_of(jobs, [AttemptPast(**row) for row in rows], token_last, limit)

    async def wanted(self, queue: str) -> int:
        """Return how many jobs of a queue want a worker."""
        return int((await self._fetch(_INSPECT["wanted"], queue))[0][0])

    async def minutes(
        self, seconds: float, step: int, most: int = MINUTES_MAX, which: MinuteFilter = EVERY_MINUTE
    ) -> Minutes:
        """Return the attempts that were counted in the last ``seconds``, in steps."""
        how = (which.by_queue, which.by_task, which.queue, which.task, which.detail)
        async with self._by_index() as connection:
            rows = await connection.fetch(_MINUTES["minutes"], seconds, step, most, *how)
        now, read, oldest = rows[0][:3]
        ended = [Ended(*row[3:]) for row in rows if row["queue"] is not None]
        return Minutes(now=now, oldest=oldest, is_cut=read >= most, ended=ended)

    async def totals(self, most: int = TOTALS_MAX) -> list[Counted]:
        """Return all that was counted since the store was made."""
        return [counted_of(row) for row in await self._fetch(_MINUTES["totals"], most)]

    async def counts(self) -> dict[tuple[str, State], int]:
        """Return the number of jobs by (queue, state)."""
        rows = await self._fetch(_INSPECT["counts"])
        return {(row["queue"], State(row["state"])): row["number"] for row in rows}

    async def schedules(self, limit: int = 1_000, after: str = "") -> list[ScheduleRow]:
        """Return schedules by name."""
        return [
            ScheduleRow(**row) for row in await self._fetch(_SCHEDULES["show_all"], after, limit)
        ]

    async def schedule(self, name: str) -> ScheduleRow | None:
        """Return one schedule."""
        rows = await self._fetch(_SCHEDULES["show"], name)
        return ScheduleRow(**rows[0]) if rows else None

    async def dead_groups(self, which: DeadFilter) -> DeadGroups:
        """Return groups of dead jobs."""
        async with self._by_index() as connection:
            return await evidence.dead_groups(connection, which)

    async def ended_attempts(self, which: AttemptFilter) -> EndedAttempts:
        """Return ended attempts, newest token first."""
        async with self._by_index() as connection:
            return await evidence.ended_attempts(connection, which)

    async def last_ends(self, ids: Sequence[int]) -> list[EndedAttempt]:
        """Return the last ended attempt of each of these jobs that has one."""
        async with self._by_index() as connection:
            return await evidence.last_ends(connection, ids)

    async def causes(self, tenant: str | None = None) -> list[Cause]:
        """Return how the newest attempts ended."""
        async with self._by_index() as connection:
            return await evidence.causes(connection, tenant)

    async def suspects(self) -> list[Suspect]:
        """Return the jobs of the newest shared deaths."""
        async with self._by_index() as connection:
            return await evidence.suspects(connection)

    @asynccontextmanager
    async def _by_index(self) -> AsyncIterator[Any]:
        """Lend a connection in one snapshot, on which bounded counts go by index."""
        async with self._connections.use(kind=Transaction.SNAPSHOT) as connection:
            await connection.execute(_SESSION["by_index"])
            yield connection

    async def _fetch(self, statement: str, *values: Any) -> list[Any]:
        rows: list[Any] = await self._connections.run(
            lambda connection: connection.fetch(statement, *values)
        )
        return rows


# the columns of last_attempts of inspect.sql, in their order; what is malformed is told here
_JOB = StoredJob.__struct_fields__[:-1]
_ATTEMPT = AttemptRow.__struct_fields__[:-1]


def _with_attempt(row: tuple[Any, ...]) -> tuple[StoredJob, AttemptRow | None]:
    job = _job(dict(zip(_JOB, row[: len(_JOB)], strict=True)))
    attempt = dict(zip(_ATTEMPT, row[len(_JOB) :], strict=True))
    return job, None if attempt["job_id"] is None else _attempt(attempt)


def _job(row: Any) -> StoredJob:
    values: dict[str, Any] = dict(row)
    values["malformed"] = find_malformed(values)
    values["state"] = State(values["state"])
    values["policy"] = policy_of(values["policy"])
    values["progress"] = progress_of(values["progress"])
    values["stack"] = stack_of(values["stack"])
    return StoredJob(**values)


def _past(row: Any) -> JobPast:
    values = dict(row)
    values["state"] = State(values["state"])
    values["policy"] = policy_of(values["policy"])
    status = values["worker_status"]
    values["worker_status"] = None if status is None else WorkerStatus(status)
    return JobPast(**values)


def _attempt(row: Any) -> AttemptRow:
    values = finite(dict(row))
    values["malformed"] = find_malformed(values)
    values["progress"] = progress_of(values["progress"])
    values["crash"] = crash_of(values["crash"])
    return AttemptRow(**values)


def _worker(row: Any, locks: Path) -> WorkerRow:
    values: dict[str, Any] = dict(row)
    values["malformed"] = find_malformed(values)
    values |= {name: seconds_of(values[name]) for name in ("heartbeat", "lease")}
    values["status"] = WorkerStatus(values["status"])
    values |= {name: names_of(values[name]) for name in ("queues", "tasks", "tags")}
    values["lacks"] = lacks_of(values["lacks"])
    values["lock_path"] = place_in(locks, values["lock_path"])
    return WorkerRow(**values)
