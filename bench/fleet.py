"""What idle workers cost the database, by their number: CPU and statements a second.

One process does for all of them, over a few connections, the duties of a worker without work: a
beat in each heartbeat, a reaper with its peeks and looks, an exchange in each poll, a
reconciliation, the count of its peers and the sweep of expired jobs. So the figures leave out the
cost of sessions. Beats have connections of their own, as in a worker: calls that keep plans
and calls that do not would take them from each other, and open new ones all the time. *Each look by
each*: the same, but each worker takes each look by itself; more than 100 of them would overload the
database.

    python -m bench fleet [--quick]
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from bench.environment import cpu
from bench.kit import server, tell
from bench.series import Series
from harness.servers import PostgresServer
from outlast.base.clock import SYSTEM, seeded
from outlast.errors import StoreError
from outlast.model.lease import LeaseTerms
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import ClaimRequest, NewWorker, Peek, WorkerRef
from outlast.worker.base import Lease
from outlast.worker.claims.exchange import RECONCILE_SECONDS
from outlast.worker.claims.pacing import EASED_PEERS, PeerCount, TripPlan, WakeTurns
from outlast.worker.maintenance.pruner import Expirer
from outlast.worker.maintenance.reaper import Deadlines, OwnLooks, Reaper

SIZES, QUICK_SIZES = (1, 10, 100, 300, 1_000), (1, 10)
ALONE, QUICK_ALONE = 100, 10  # workers that take each look by themselves, for comparison
HOSTS = 10
HEARTBEAT, POLL = 2.0, 1.0
SECONDS, QUICK_SECONDS = 20.0, 3.0
REST = 3  # times SECONDS pass before the measurement, so that all workers are at rest
PRESENT = """SELECT outlast_hold_presence_v1(
    w.id, w.registration, inet_client_port(), pg_backend_pid()) FROM outlast_workers w"""


class Counted:
    """A store that counts the calls of its verbs."""

    def __init__(self, store: PostgresStore, calls: Counter[str]) -> None:
        self._store = store
        self.calls = calls

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            return real(*args, **kwargs)

        return call


class IdleTurns(WakeTurns):
    """Wake-ups of a worker that hears of new work, and follows no wake-up."""

    def are_among_many(self) -> bool:
        """Count the peers alone."""
        return self.peers >= EASED_PEERS

    def hear_of_look(self, before: int, drawn: int) -> bool:
        """Follow nothing."""
        return False


class Idle:
    """What the duties of one idle worker share. It ignores all that its duties report to it."""

    def __init__(self) -> None:
        self.claimed_at = float("-inf")
        worker: Any = self
        self.turns = IdleTurns(worker, (), SYSTEM)
        self.plan = TripPlan(SYSTEM, poll=POLL, look_every=HEARTBEAT, turns=self.turns)

    def take_peek(self, peek: Peek) -> None:
        """Take a peek."""
        self.plan.take_peek(peek)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class Fleet:
    """Idle workers on one store."""

    def __init__(self, store: Counted, beats: Counted, *, alone: bool) -> None:
        self._store: Any = store
        self._beats: Any = beats
        self._alone = alone
        self._random = seeded(1)
        self.count = 0
        self._over = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def grow(self, count: int) -> None:
        """Register that many more workers, and begin their duties."""
        self.count += count
        for number in range(count):
            new = NewWorker(
                name=f"w{number}",
                host=f"h{number % HOSTS}",
                pid=number,
                boot_id=f"b{number % HOSTS}",
                heartbeat=HEARTBEAT,
                lease=60.0,
                tasks=[f"app.task_{n}" for n in range(20)],
                registration=f"{id(self)}/{number}",
                lock_path=f"/nowhere/{number}.lock",
            )
            me = await self._store.register(new)
            self._live(me, new.boot_id)

    def _live(self, me: WorkerRef, boot_id: str) -> None:
        store = self._store
        idle: Any = Idle()
        lease = Lease(LeaseTerms(HEARTBEAT), SYSTEM)
        lease.me = me
        looks = OwnLooks(store, lease, boot_id, clock=SYSTEM, turns=idle.turns)
        reaper = Reaper(
            idle,
            store,
            clock=SYSTEM,
            own=lease,
            deadlines=Deadlines(store, SYSTEM),
            looks=None if self._alone else looks,
        )

        async def beat() -> float:
            beat = await self._beats.heartbeat(me)
            if beat.peek is not None:
                reaper.take_peek(beat.peek)
            return HEARTBEAT

        async def poll() -> float:
            idle.plan.note_asked(SYSTEM.boot(), 0)
            requests = [ClaimRequest(["t"], 10)]
            reply = await store.exchange(me, [], requests)
            idle.claimed_at = SYSTEM.boot()
            return idle.plan.take_reply(requests, reply, 0, tasks=["t"], is_running=False, ahead=0)

        async def reconcile() -> float:
            await store.reconcile(me, [])
            return RECONCILE_SECONDS

        peers = PeerCount(store, lease, idle.turns)
        expirer = Expirer(store, idle, SYSTEM, idle.turns)
        duties = (beat, poll, reconcile, reaper.run_once, peers.run_once, expirer.run_once)
        for duty in duties:
            self._tasks.append(asyncio.create_task(self._serve(duty)))

    async def _serve(self, duty: Callable[[], Awaitable[float]]) -> None:
        pause = 2.0 * self._random()
        while not await self._is_over_within(max(0.01, pause)):
            began_at = time.monotonic()
            try:
                pause = await duty() - (time.monotonic() - began_at)
            except StoreError:
                pause = 1.0

    async def _is_over_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self._over.wait()
        return False

    async def end(self) -> None:
        """End the duties of all workers."""
        self._over.set()
        await asyncio.gather(*self._tasks)


async def measured(
    postgres: PostgresServer, count: int, *, alone: bool, seconds: float
) -> tuple[float, Counter[str], dict[str, float]]:
    """Return CPU a second of the database, calls a second, and the costs of one call."""
    name = f"fleet_{count}_{alone}".lower()
    store = PostgresStore(postgres.create_database(name), connections=8, reserved=4)
    await store.open()
    beats = PostgresStore(store.url, connections=8)
    calls: Counter[str] = Counter()
    fleet = Fleet(Counted(store, calls), Counted(beats, calls), alone=alone)
    await fleet.grow(count)
    present = await asyncpg.connect(store.url)
    await present.fetch(PRESENT)
    await asyncio.sleep(REST * seconds)
    calls.clear()
    before, at = cpu(postgres.pid), time.monotonic()
    await asyncio.sleep(seconds)
    used = (cpu(postgres.pid) - before) / (time.monotonic() - at)
    calls = Counter({verb: round(n / seconds, 1) for verb, n in calls.items()})
    await fleet.end()
    costs = await _costs(postgres, store)
    await present.close()
    await beats.close()
    await store.close()
    postgres.drop_database(name)
    return used, calls, costs


async def _costs(postgres: PostgresServer, store: PostgresStore) -> dict[str, float]:
    """Return the milliseconds of the server's processor for one call of each kind."""
    new = NewWorker(name="m", host="h0", pid=1, boot_id="b0", heartbeat=HEARTBEAT, lease=60.0)
    me = await store.register(new)
    calls: dict[str, tuple[int, Callable[[], Awaitable[Any]]]] = {
        "one peek": (300, lambda: store.peek(me)),
        "one heartbeat": (300, lambda: store.heartbeat(me)),
        "one exchange": (300, lambda: store.exchange(me, [], [ClaimRequest(["t"], 10)])),
        "one look": (50, store.observe),
    }
    costs = {}
    for what, (count, call) in calls.items():
        await call()
        before = cpu(postgres.pid)
        for _ in range(count):
            await call()
        costs[what] = 1_000 * (cpu(postgres.pid) - before) / count
    return costs


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("fleet", "idle workers on PostgreSQL")
    sizes, seconds = (QUICK_SIZES, QUICK_SECONDS) if options.quick else (SIZES, SECONDS)
    alone_at = QUICK_ALONE if options.quick else ALONE
    steps = [(count, alone) for count in sizes for alone in sorted({False, count == alone_at})]
    with server() as postgres, tell("fleet", len(steps), (1 + REST) * seconds + 4) as step:
        for count, alone in steps:

            def measure(count: int = count, alone: bool = alone) -> None:
                used, calls, costs = asyncio.run(
                    measured(postgres, count, alone=alone, seconds=seconds)
                )
                who = f"{count:,} workers" + (", each look by each" if alone else "")
                series.figure(who, "CPU of the database", "s a second", 3).values.append(used)
                series.figure(who, "statements", "a second", 1).values.append(sum(calls.values()))
                series.figure(who, "looks at all", "a second", 1).values.append(calls["observe"])
                for what, cost in costs.items():
                    series.figure(who, what, "ms of CPU", 2).values.append(cost)
                step(f"{who}: {used:.3f} s a second, {dict(calls)}, {costs}")

            series.attempt(f"{count:,} workers", "CPU of the database", "s a second", measure)
    return series.finish(whole=not options.quick)
