"""What the conformance tests share: workers, claims and ends in one line each. No SQL."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import msgspec
import pytest

from harness.rounds import MOST
from outlast.base.clock import SYSTEM, Clock
from outlast.errors import StoreUnavailable
from outlast.model import lifecycle
from outlast.model.crash import Crash, CrashKind
from outlast.model.job import JobFacts
from outlast.model.lease import DeathCause
from outlast.model.lifecycle import Outcome, OutcomeKind, Transition
from outlast.store.foreign import open_driver
from outlast.store.protocol import ForeignConnection, Store
from outlast.store.rows import StoredJob, WorkerRow
from outlast.store.values import (
    Answer,
    Claimed,
    ClaimRequest,
    Enqueued,
    Exchanged,
    NewJob,
    NewWorker,
    Orphan,
    WorkerRef,
    WorkerSeen,
)

TASK = "app.work"
of_whole_rounds = pytest.mark.skipif(MOST > 0, reason="counts what one round does, or needs many")


def new_worker(name: str = "w1", **fields: Any) -> NewWorker:
    """A registration; its lease is longer than a test takes on a busy machine."""
    values: dict[str, Any] = {"host": "h1", "pid": 4711, "boot_id": "b1", "tasks": [TASK]}
    values |= {"heartbeat": 1.0, "lease": 60.0}
    return NewWorker(name=name, **(values | fields))


def job(**fields: Any) -> NewJob:
    """A job of the one known task."""
    return NewJob(**({"task": TASK} | fields))


def no_dice() -> float:
    """Half the jitter, always."""
    return 0.5


def facts_of(claimed: Claimed) -> JobFacts:
    """What the decision needs of a claimed job."""
    return claimed.make_facts(claimed.losses)


def ended(claimed: Claimed, kind: OutcomeKind = OutcomeKind.COMPLETED, **fields: Any) -> Transition:
    """The decided end of a claimed job's attempt."""
    return lifecycle.decide(facts_of(claimed), Outcome(kind=kind, **fields), no_dice)


def crashed(claimed: Claimed, kind: CrashKind = CrashKind.ERROR, **fields: Any) -> Transition:
    """The decided end of an attempt that crashed; a bystander had a neighbour."""
    neighbours = [0] if kind is CrashKind.BYSTANDER else []
    crash = Crash(kind=kind, message="it broke", neighbours=neighbours)
    return ended(claimed, OutcomeKind.CRASHED, crash=crash, **fields)


def lost_worker(orphan: Orphan) -> Transition:
    """The usual decision on an orphan."""
    crash = Crash(kind=CrashKind.LOST_WORKER, message="its worker is gone", worker=orphan.worker)
    return lifecycle.decide(orphan.facts, Outcome(kind=OutcomeKind.CRASHED, crash=crash), no_dice)


async def reclaimed(store: Store, only: Collection[tuple[int, int]] | None = None) -> list[Orphan]:
    """Reclaim as usual; return the orphans that were decided on."""
    met: list[Orphan] = []

    def decide(orphan: Orphan) -> Transition:
        met.append(orphan)
        return lost_worker(orphan)

    await store.reclaim(decide, only=only)
    return met


async def reap(store: Store, gone: WorkerSeen, cause: DeathCause = DeathCause.SILENCE) -> bool:
    """Reap; repeat while another session holds the row."""
    async with asyncio.timeout(25):
        while True:
            with contextlib.suppress(StoreUnavailable):
                return await store.reap(gone, cause)
            await asyncio.sleep(0.01)


def on(connection: object, clock: Clock = SYSTEM, *, notify: bool = True) -> ForeignConnection:
    """Return the verbs on a caller's own connection."""
    driver, callers = open_driver(connection)
    return callers.connect(driver, notify=notify, clock=clock)


class Hands:
    """A worker whose calls a test makes."""

    def __init__(self, store: Store, me: WorkerRef) -> None:
        self.store = store
        self.me = me

    @classmethod
    async def on(cls, store: Store, name: str = "w1", **fields: Any) -> Hands:
        """Register a worker."""
        return cls(store, await store.register(new_worker(name, **fields)))

    async def exchange(self, *ends: Transition, limit: int = 0, **request: Any) -> Exchanged:
        """Hand in ends and take up to ``limit`` jobs of the known task."""
        values: dict[str, Any] = {"tasks": [TASK], "limit": limit}
        requests = [ClaimRequest(**(values | request))] if limit else []
        reply = await self.store.exchange(self.me, ends, requests)
        while (
            MOST and reply.next_due == 0 and not reply.claimed
        ):  # come back at once, as workers do
            again = await self.store.exchange(self.me, [], requests)
            expired = reply.expired + again.expired
            reply = msgspec.structs.replace(again, answers=reply.answers, expired=expired)
        return reply

    async def claim(self, limit: int = 100, **request: Any) -> list[Claimed]:
        """Take up to ``limit`` jobs."""
        return (await self.exchange(limit=limit, **request)).claimed

    async def settle(self) -> None:
        """Let exchanges that claim nothing do what is noted, where a round does a part of it."""
        if MOST:
            await self.exchange(limit=1, tasks=["app.none"])

    async def claim_one(self) -> Claimed:
        """Take exactly one job, which must be there."""
        (claimed,) = await self.claim(1)
        return claimed

    async def hand_in(self, *ends: Transition) -> list[Answer]:
        """Hand in ends and take nothing."""
        return (await self.exchange(*ends)).answers

    async def follow(self, *ends: Transition, limit: int = 1) -> list[Claimed]:
        """Hand in ends, again while another session holds their rows, as workers do: a claim that
        waited for a row locks it for a moment, though it is taken. Take up to ``limit`` jobs with
        each exchange, and return them."""
        claimed: list[Claimed] = []
        async with asyncio.timeout(25):
            while ends:
                reply = await self.exchange(*ends, limit=limit)
                assert Answer.REFUSED not in reply.answers
                claimed += reply.claimed
                pairs = zip(ends, reply.answers, strict=True)
                ends = tuple(end for end, answer in pairs if answer is Answer.BUSY)
        return claimed

    async def seen(self) -> WorkerSeen:
        """One look at this worker."""
        looks = (await self.store.observe()).workers
        return next(look for look in looks if look.worker_id == self.me.worker_id)

    async def row(self) -> WorkerRow:
        """This worker as people see it."""
        rows = await self.store.inspector.workers()
        return next(row for row in rows if row.id == self.me.worker_id)

    async def vanish(self) -> None:
        """Be found gone by a reaper."""
        assert await reap(self.store, await self.seen())


async def enqueued(store: Store, *jobs: NewJob) -> list[int]:
    """Enqueue and return the ids."""
    made: Sequence[Enqueued] = await store.enqueue(jobs or [job()])
    return [one.job_id for one in made]


async def row_of(store: Store, job_id: int) -> StoredJob:
    """A job as people see it, which must be there."""
    row = await store.inspector.job(job_id)
    assert row is not None
    return row


async def eventually(look: Callable[[], Awaitable[Any]], seconds: float = 60.0) -> Any:
    """Return the first true answer; it waits only for the store's own clock."""
    async with asyncio.timeout(seconds):
        while not (found := await look()):
            await asyncio.sleep(0.01)
    return found
