"""The whole life of a job on PostgreSQL: what it costs the database to enqueue it, run it, keep it,
delete it and clean up behind it, in processor time, WAL and bytes.

One client enqueues, then claims and hands in, a batch in each statement; then all is vacuumed,
measured, pruned and vacuumed again. The processor time is that of the server with all its
processes, so it depends little on what else the machine does.

    python -m bench life [--quick]
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from bench.environment import cpu
from bench.kit import server, tell
from bench.series import Series
from bench.size import completed
from harness.servers import PostgresServer
from outlast.model.lifecycle import Transition
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import PRUNE_MAX
from outlast.store.values import Claimed, ClaimRequest, NewJob, NewWorker, WorkerRef

JOBS, QUICK_JOBS = 50_000, 2_000
BATCH = 100
ROUNDS = 3
TABLES = ("outlast_jobs", "outlast_attempts")
WAL = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
NEW = NewJob(task="app.nothing", args="[]")


class Life:
    """Jobs on a database of their own, and what they have cost so far."""

    def __init__(self, postgres: PostgresServer, store: PostgresStore, jobs: int) -> None:
        self._postgres = postgres
        self._name = store.url.rpartition("/")[2]
        self._store = store
        self._jobs = jobs

    async def measured(self, work: Callable[[], Awaitable[Any]]) -> tuple[float, float]:
        """Do a part of the work; return its microseconds and its bytes of WAL for one job."""
        used, written = cpu(self._postgres.pid), self._sql(WAL)
        await work()
        used, written = cpu(self._postgres.pid) - used, self._sql(WAL) - written
        return 1e6 * used / self._jobs, written / self._jobs

    async def enqueue(self) -> None:
        """Store all jobs."""
        for _ in range(0, self._jobs, BATCH):
            await self._store.enqueue([NEW] * BATCH)

    async def run(self) -> None:
        """Claim and complete all jobs."""
        new = NewWorker(name="w", host="h", pid=1, boot_id="b", heartbeat=2, lease=6e3)
        me = await self._store.register(new)
        ends: list[Transition] = []
        while claimed := await self._exchange(me, ends):
            ends = [completed(one) for one in claimed]

    async def _exchange(self, me: WorkerRef, ends: list[Transition]) -> list[Claimed]:
        request = ClaimRequest(tasks=[NEW.task], limit=BATCH)
        return list((await self._store.exchange(me, ends, [request])).claimed)

    async def prune(self) -> None:
        """Delete all jobs, as the pruner does."""
        keep = 0.0
        while await self._store.prune(
            jobs_older_than=keep, workers_older_than=keep, limit=PRUNE_MAX
        ):
            pass

    async def vacuum(self) -> None:
        """Clean up as autovacuum does."""
        await asyncio.to_thread(self._postgres.sql, f"VACUUM {', '.join(TABLES)}", self._name)

    def size(self) -> float:
        """Return the bytes on disk for one job, indexes included."""
        sizes = " + ".join(f"pg_total_relation_size('{table}')" for table in TABLES)
        return self._sql(f"SELECT {sizes}") / self._jobs

    def _sql(self, query: str) -> float:
        return float(self._postgres.sql(query, self._name))


async def live(postgres: PostgresServer, series: Series, jobs: int, number: int) -> None:
    """Let jobs live once, and note what each part of their life costs."""
    store = PostgresStore(postgres.create_database(f"life_{number}"))
    await store.open()
    life = Life(postgres, store, jobs)
    await life.enqueue()
    await life.run()
    await life.prune()  # statements are planned, and pages are there
    await life.vacuum()
    costs = {}
    for what, work in {
        "enqueue": life.enqueue,
        "run": life.run,
        "vacuum behind the run": life.vacuum,
        "prune": life.prune,
        "vacuum behind the pruning": life.vacuum,
    }.items():
        costs[what] = await life.measured(work)
        if what == "vacuum behind the run":
            series.figure("kept", "bytes on disk", "B a job").values.append(life.size())
    costs["whole life"] = (sum(us for us, _ in costs.values()), sum(b for _, b in costs.values()))
    for what, (microseconds, written) in costs.items():
        series.figure(what, "processor of the database", "us a job", 1).values.append(microseconds)
        series.figure(what, "WAL", "B a job").values.append(written)
    await store.close()
    postgres.drop_database(f"life_{number}")


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("life", "the whole life of a job on PostgreSQL")
    jobs, rounds = (QUICK_JOBS, 1) if options.quick else (JOBS, ROUNDS)
    with server() as postgres, tell("life", rounds, 30) as step:
        for number in range(rounds):

            def measure(number: int = number) -> None:
                asyncio.run(live(postgres, series, jobs, number))

            series.attempt("whole life", "all", "", measure)
            step(f"round {number + 1}")
    return series.finish(whole=not options.quick)
