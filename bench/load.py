"""A steady load on three healthy workers, and the count of what happened to it.

Jobs of three kinds: short ones all the time, long ones now and then, and *anchors*, which begin
before the fault and outlast it. What became of them is read from the store (closed attempts,
workers marked lost) and from the journal that the tasks write (what was begun twice).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from bench import tasks
from harness.scene import ROOT, Scene, boot
from outlast.errors import StoreUnavailable
from outlast.model.job import ENDED, State
from outlast.store.rows import AttemptRow, JobFilter, StoredJob, WorkerStatus
from outlast.store.values import NewJob

WORKERS = 3
PACE = 0.25  # seconds between two short jobs
LONG_EVERY = 8  # of these steps
LONG_SECONDS = 5.0
ANSWER_SECONDS = 5.0  # the feeder waits no longer for the store
REST_SECONDS = 90.0  # for what was enqueued to end, on top of the anchors' own time
PAGE = 500


class Count(msgspec.Struct, kw_only=True):
    """What became of the load. The first four are the false alarms: all zero where no worker died.

    Attributes:
        reclaimed: attempts taken from a worker that was called gone.
        interrupted: attempts that had begun and ended otherwise than completed.
        twice: jobs whose work was begun more than once.
        lost: workers marked lost.
        unstarted: claims given back before the work had begun (a claim whose reply was lost).
        unfinished: jobs that did not end in time.
        refused: writes refused by the fence.
        lapsed: times that a worker gave up its own lease.
        slowest: seconds from the enqueuing of a short job to its first start, at most.
        jobs: how many were enqueued.
        causes: why attempts were closed, the most frequent first.
    """

    reclaimed: int = 0
    interrupted: int = 0
    twice: int = 0
    lost: int = 0
    unstarted: int = 0
    unfinished: int = 0
    refused: int = 0
    lapsed: int = 0
    slowest: float = 0.0
    jobs: int = 0
    causes: list[str] = []

    def alarms(self) -> int:
        """Return the sum of what has to be zero."""
        return self.reclaimed + self.interrupted + self.twice + self.lost + self.unfinished


class Load:
    """Feeds the workers of a stage; the feeder itself lives with an absent store."""

    def __init__(self, stage: Scene) -> None:
        self._stage = stage
        self._number = 0
        self._put_at: dict[int, float] = {}

    async def anchors(self, seconds: float) -> None:
        """Enqueue jobs that run for so long, two for each worker; return when they run."""
        for _ in range(WORKERS):
            await self._put(tasks.long_with_checkpoints.call(seconds))
            await self._put(tasks.long_plain.call(seconds))

        async def all_run() -> bool:
            return len(self._stage.entries()) >= WORKERS * 2

        await self._stage.until(all_run, "the start of the anchors", 60)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Feed until the block ends."""
        feeder = asyncio.create_task(self._feed())
        try:
            yield
        finally:
            feeder.cancel()
            await asyncio.wait([feeder])

    async def _feed(self) -> None:
        step = 0
        while True:
            await self._put(tasks.short.call(0.05))
            if step % LONG_EVERY == 0:
                await self._put(tasks.long_with_checkpoints.call(LONG_SECONDS))
            if step % (LONG_EVERY * 2) == LONG_EVERY:
                await self._put(tasks.long_plain.call(LONG_SECONDS))
            step += 1
            await asyncio.sleep(PACE)

    async def _put(self, call: Any) -> None:
        """Enqueue, again and again while the store is away; the key makes that safe."""
        self._number += 1
        new: NewJob = msgspec.structs.replace(call.job, key=f"load-{self._number}")
        while True:
            with contextlib.suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    (job,) = await self._stage.store.enqueue([new])
                    if new.task == tasks.short.name:  # plain functions also wait for a runner
                        self._put_at[job.job_id] = boot()
                    return
            await asyncio.sleep(PACE)

    def slowest_start(self) -> float:
        """Return the longest that a short job has waited for its first start, in seconds."""
        first: dict[int, float] = {}
        for entry in self._stage.entries():
            first.setdefault(entry["job"], entry["at"])
        waits = [first[job] - at for job, at in self._put_at.items() if job in first]
        return max(waits, default=0.0)


async def all_ended(stage: Scene, seconds: float) -> None:
    """Wait until every job has ended, or until the time is over: then some are unfinished."""

    async def done() -> bool:
        try:
            counts = await stage.store.inspector.counts()
        except StoreUnavailable:
            return False
        return all(state in ENDED for (_, state), n in counts.items() if n)

    with contextlib.suppress(AssertionError):
        await stage.until(done, "the end of all jobs", seconds + REST_SECONDS)


async def count(stage: Scene) -> Count:
    """Read what became of everything."""
    jobs = await _all_jobs(stage)
    closed = [one for job in jobs for one in await stage.attempts(job.id)]
    begun = {entry["token"] for entry in stage.entries()}
    starts = Counter(entry["job"] for entry in stage.entries())
    workers = await stage.store.inspector.workers()
    interrupted = [one for one in closed if one.token in begun]
    return Count(
        reclaimed=sum(one.outcome == "lost_worker" for one in closed),
        interrupted=len(interrupted),
        twice=sum(n > 1 for n in starts.values()),
        lost=sum(one.status is WorkerStatus.LOST for one in workers),
        unstarted=len(closed) - len(interrupted),
        unfinished=sum(job.state is not State.COMPLETED for job in jobs),
        refused=len(await stage.store.inspector.refusals(limit=PAGE)),
        lapsed=sum(worker.log.read_text().count("lease_lost") for worker in stage.workers),
        jobs=len(jobs),
        causes=_causes(closed),
    )


async def _all_jobs(stage: Scene) -> list[StoredJob]:
    jobs: list[StoredJob] = []
    while page := await stage.store.inspector.jobs(
        JobFilter(limit=PAGE, before_id=jobs[-1].id if jobs else None)
    ):
        jobs += page
    return jobs


def _causes(closed: list[AttemptRow]) -> list[str]:
    causes = Counter(
        f"{one.outcome}: {one.message.replace(f'{ROOT}/', '')}"[:120] for one in closed
    )
    return [f"{n}x {cause}" for cause, n in causes.most_common(5)]
