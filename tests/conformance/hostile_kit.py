"""Rows that Outlast itself never writes: raw SQL on either store, and all verbs after it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import asyncpg
import msgspec

from outlast.insight.availability import Served, phase_of
from outlast.insight.deaths import dead_groups_document, read_dead_groups, shared_deaths
from outlast.insight.documents import JOB, job_document, workers_document
from outlast.insight.stats import stats_document
from outlast.insight.verify import verify
from outlast.model.crash import Crash, CrashKind
from outlast.model.job import Policy
from outlast.model.lifecycle import OutcomeKind, Transition
from outlast.store.protocol import ServerStore, Store
from outlast.store.rows import AttemptFilter, JobFilter
from outlast.store.values import Answer, Claimed
from tests.conformance.kit import Hands, ended, enqueued, job, lost_worker

DEEP = "[" * 5_000
NUMBERS = ["0", "-1", "2147483647", "-2147483648", "9223372036854775807", "-9223372036854775808"]
FLOATS = ["5e-324", "NaN", "Infinity", "-Infinity", "1e308", "-1e308"]
TIMES = ["infinity", "-infinity", "294276-12-31", "4713-01-01 BC"]
TEXTS = [
    DEEP,
    '{"retries":' + DEEP,
    '{"retries":1e999}',
    '{"retries":' + "9" * 100 + "}",
    '{"retries":-5,"max_losses":18446744073709551616,"timeout":-1e300,"cancel_grace":1e300}',
    '{"x":' * 4_000,
    "nothing",
    "[1]",
    '"\\ud800"',
    '{"kind":"nothing"}',
    '{"fraction":1e308,"stage":5}',
    "/dev/zero",
]
# as SQLite accepts them: any type in any column
TYPES = [
    "x'ff00'",
    "CAST(x'ff22' AS TEXT)",
    "'abc'",
    "''",
    "1.5",
    "9e999",
    "-9e999",
    "1e300",
    "5e-324",
    "NULL",
]
VALUES = {"postgres": [f"'{one}'" for one in (*NUMBERS, *FLOATS, *TIMES, *TEXTS, "true")]}
VALUES["sqlite"] = [*NUMBERS, *TYPES, *(f"'{one}'" for one in TEXTS)]


class Raw:
    """A connection of another program."""

    def __init__(self, url: str, connection: Any) -> None:
        self.values = VALUES["sqlite" if url.startswith("sqlite") else "postgres"]
        self._connection = connection

    async def run(self, statement: str) -> bool:
        """Run a statement; return whether the database takes it."""
        try:
            done = self._connection.execute(statement)
            if not isinstance(done, sqlite3.Cursor):
                await done
        except (asyncpg.PostgresError, sqlite3.Error):
            return False
        return True

    async def rows(self, query: str) -> list[Any]:
        """Return the rows of a query."""
        if isinstance(self._connection, sqlite3.Connection):
            return self._connection.execute(query).fetchall()
        found: list[Any] = await self._connection.fetch(query)
        return found

    async def columns(self, table: str) -> set[str]:
        """Return the names of a table's columns."""
        if isinstance(self._connection, sqlite3.Connection):
            return {row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")}
        rows = await self._connection.fetch(
            "SELECT attname FROM pg_attribute"
            " WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped",
            table,
        )
        return {row["attname"] for row in rows}


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[Raw]:
    """Open the store as any program could."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            yield Raw(url, file)
        return
    connection = await asyncpg.connect(url)
    try:
        yield Raw(url, connection)
    finally:
        await connection.close()


async def victims(store: Store, count: int) -> list[list[int]]:
    """Return jobs by their ids whose rows will be damaged: ``count`` of each kind."""
    lost, here = await Hands.on(store, "lost"), await Hands.on(store, "victim")
    orphans = await enqueued(store, *[job()] * count)
    assert len(await lost.claim(count)) == count
    running = await enqueued(store, *[job(policy=Policy(timeout=1_000.0))] * count)
    assert len(await here.claim(count)) == count
    await lost.vanish()
    dead = await enqueued(store, *[job()] * count)
    ends = [ended(one, OutcomeKind.DEAD, message="so it said") for one in await here.claim(count)]
    assert await here.hand_in(*ends) == [Answer.ACCEPTED] * count
    retrying = await enqueued(store, *[job()] * count)
    crash = {"crash": _crash("its error"), "delay": 9_999.0}
    ends = [ended(one, OutcomeKind.CRASHED, **crash) for one in await here.claim(count)]
    assert await here.hand_in(*ends) == [Answer.ACCEPTED] * count
    scheduled = await enqueued(store, *[job(delay=9_999.0)] * count)
    queued = await enqueued(store, *[job()] * count)
    return [orphans, running, dead, retrying, scheduled, queued]


def _crash(message: str) -> Crash:
    return Crash(kind=CrashKind.ERROR, message=message)


async def works_on(store: Store) -> None:
    """Do what workers do, for undamaged jobs: nothing of it may fail."""
    gone = await Hands.on(store, "gone")
    (orphan,) = await enqueued(store, job(queue="of-the-gone"))
    (taken,) = await gone.claim(1, queues=["of-the-gone"])
    assert taken.job_id == orphan
    await gone.vanish()
    await _rescue(store, orphan)
    hands = await Hands.on(store, "sound")
    (sound,) = await enqueued(store, job(queue="sound"))
    await _run(store, hands, {sound, orphan})
    assert (await store.heartbeat(hands.me)).renewed
    await store.reconcile(hands.me, [])
    if isinstance(store, ServerStore):
        await store.waiting(0.0, 100)
    await store.prune(jobs_older_than=1e6, workers_older_than=1e6)


async def _rescue(store: Store, orphan: int) -> None:
    look = await store.observe(0.0)
    assert look.orphans
    for late in await store.overdue(0.0):
        assert late.policy is not None
        await store.reclaim(lost_worker, only=[(late.job_id, late.token)])
    rescued: set[int] = set()
    while orphan not in rescued:
        reclaimed = {end.job_id for end in await store.reclaim(lost_worker)}
        assert reclaimed - rescued, f"job {orphan} is not reclaimed"
        rescued |= reclaimed


async def _run(store: Store, hands: Hands, wanted: set[int]) -> None:
    for _ in range(10):
        claimed = await hands.claim()
        for one in claimed:
            packable(one)
        ends = [_end_of(one) for one in claimed]
        answers = await hands.hand_in(*ends)
        assert set(answers) <= {Answer.ACCEPTED}
        wanted -= {one.job_id for one in claimed}
        if not wanted:
            return
    raise AssertionError(f"jobs {wanted} were not claimed")


def packable(claimed: Claimed) -> None:
    msgspec.msgpack.encode(claimed)
    assert 0 <= claimed.number < 2**31
    assert 0 <= claimed.failures < 2**31
    assert 0 <= claimed.losses < 2**31


def _end_of(claimed: Claimed) -> Transition:
    if claimed.malformed is not None:
        return ended(claimed, OutcomeKind.DEAD, message=claimed.malformed)
    return ended(claimed, OutcomeKind.CRASHED, crash=_crash("again"), delay=9_999.0)


async def shows(store: Store, ids: list[int]) -> None:
    """Read all documents; each must be JSON, and hold all rows."""
    look = store.inspector
    served = Served(await look.workers())
    rows = await look.jobs(JobFilter(limit=1_000))
    _json([JOB.document(row, phase=phase_of(row, served)) for row in rows])
    for job_id in ids:
        row = await look.job(job_id)
        if row is not None:
            refusals = await look.refusals(job_id)
            _json(job_document(row, await look.attempts(job_id), refusals=refusals))
            await look.place(job_id)
    assert len(await look.last_attempts([row.id for row in rows])) == len(rows)
    await look.last_token()
    workers = await look.workers()
    _json(workers_document(workers))
    _json(stats_document(await look.statistics(), workers))
    await look.held()
    _json(dead_groups_document(await read_dead_groups(store, JobFilter())))
    _json(msgspec.to_builtins(await look.ended_attempts(AttemptFilter(limit=1_000))))
    _json(msgspec.to_builtins(await look.causes()))
    shared_deaths(await look.suspects())
    await look.counts()
    await look.environment()
    await verify(look)


def _json(document: Any) -> None:
    json.loads(json.dumps(document, allow_nan=False))
