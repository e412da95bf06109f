"""``python -m tests.sim.polling FIRST LAST [TWIN]``: seeds in which most of a fleet is idle, among
many, and leaves out the polls that would find nothing.

Callers draw positions and commit late, without a notification; jobs are passed over while a caller
has locked them; looks are taken in parts; listeners fall silent; watchers are lost. The laws: while
a worker is idle and well, no job waits for longer than is documented (decision 79), and where there
are no faults, no worker glances by itself more often than is called for. With the name of a twin,
which lacks one guard, the first violation is printed instead.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any
from unittest import mock

from outlast.clock import seeded
from outlast.model import watch
from outlast.store.glances import Glance
from outlast.store.values import NewJob, WorkerRef
from outlast.worker import worker as worker_module
from outlast.worker.claims import exchange
from outlast.worker.claims.peers import EASED_PEERS, EASED_SECONDS
from outlast.worker.claims.polls import (
    NUMBER_SECONDS,
    POLL_FACTOR_WITH_GLANCES,
    QUIET_SECONDS_MAX,
    Polls,
)
from outlast.worker.claims.wake_turns import WakeTurns
from tests.sim.chunks import Patches, play_kind
from tests.sim.host import SimWorker
from tests.sim.loop import PROCESS
from tests.sim.tasks import brief
from tests.sim.transactions import Transactions
from tests.sim.world import World

POLL_SECONDS = POLL_FACTOR_WITH_GLANCES  # times the default poll, which is 1 s
SLACK_SECONDS = 1.5  # for calls, and for what idles to begin with it
LOOK_SECONDS = 0.25  # virtual, between two looks of the laws
WELL_SECONDS = 10.0  # after a trouble, until a worker counts as idle
EVENTS = 6, 20  # of a seed, amid other faults and after them: transactions, and others
LATE_SECONDS = 0.9 * NUMBER_SECONDS  # at most, after which a transaction has a number
PEERS = (12, 40, 80)  # that a fleet has
VACUUM_SECONDS = 25.0  # for which looks stay dear after the transaction that made them so


class PollingWorld(World):
    """A world of a few idle workers among many, whose peers are busy all the time. Each fourth
    seed has no other faults."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._own_chance = seeded(seed * 104_711 + 7)
        self.faulty = seed % 4 != 0
        self.heartbeat = 2.0
        self.plan.slow_disk = 0.0  # the laws know no other delay than those of calls
        assert self.database is not None
        self.database.peers_elsewhere = PEERS[int(3 * self._own_chance())]
        self.database.on_glance = self._judge_glance
        self.database.tells_what_was_followed = True
        self.silent: dict[str, float] = {}  # worker -> since when its listener is silent
        self._heard_at: dict[str, float] = {}  # worker -> when its listener was back
        self.waits = Waits(self)
        self._shown: dict[int, Shown] = {}

    def _draw_theme(self) -> str | None:
        return "watchers"

    def _some_job(self, index: int) -> NewJob:
        return brief(self.chance, index)

    async def _enqueue(self) -> None:
        self.waits.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(super()._enqueue())
            group.create_task(self._happen(EVENTS[0]))

    async def _quiet(self) -> None:
        self.plan.stop()
        for spare in self.alive()[1:]:
            if self.seed % 2:
                spare.drain()
        if not self.alive():
            self.add_worker()
        await self._happen(EVENTS[1])
        await asyncio.sleep(40.0)
        self.waits.stop()
        await super()._quiet()

    async def _happen(self, events: int) -> None:
        deeds = (self._commit_late, self._commit_late, self._pass_over, self._pass_over,
                 self._fall_silent)  # fmt: skip
        for _ in range(events):
            await asyncio.sleep(16.0 * self._own_chance())
            deed = deeds[int(len(deeds) * self._own_chance())]
            self.keep(self.loop.create_task(deed()))

    async def _commit_late(self) -> None:
        """A caller draws a position, gets a number, and commits after all have looked."""
        self._appears(await self._open(4.0 + 16.0 * self._own_chance()), "late")

    async def _pass_over(self) -> None:
        """The job of such a transaction is locked at once, by one that is rolled back later."""
        transactions = self.database.transactions  # type: ignore[union-attr]
        position = await self._open(4.0 + 6.0 * self._own_chance())
        number = transactions.begin()
        await asyncio.sleep(4.0 + 12.0 * self._own_chance())
        transactions.end(number)
        self._appears(position, "passed over")

    async def _open(self, seconds: float) -> int:
        """Return the position that a transaction has drawn, which was open for so long."""
        database, chance = self.database, self._own_chance
        assert database is not None
        position = database.transactions.draw_position()
        await asyncio.sleep(LATE_SECONDS * (0.5 + 0.5 * chance()))
        number = database.transactions.begin()
        if chance() < 0.5:  # nothing dead is taken away behind it
            database.in_parts_until = self.loop.now + seconds + VACUUM_SECONDS * chance()
        await asyncio.sleep(seconds)
        database.transactions.end(number)
        return position

    def _appears(self, position: int, what: str) -> None:
        assert self.database is not None
        job_id = self.database.transactions.store(position)
        self.witness.accepted.add(job_id)
        self.witness.note(f"{what} job {job_id}", {"position": position})
        self.waits.note(job_id, passed_over=what == "passed over")

    async def _fall_silent(self) -> None:
        """A listener is lost; it says so, and that it is back."""
        well = [each for each in self.listeners if each.owner.well_for > 0]
        if not well:
            return
        listener = well[int(len(well) * self._own_chance())]
        name = listener.owner.name
        if name in self.silent:
            return
        self.silent[name] = self.loop.now
        listener.fall_silent()
        await asyncio.sleep(5.0 + 40.0 * self._own_chance())
        del self.silent[name]
        self._heard_at[name] = self.loop.now
        listener.come_back()

    def _judge_glance(self, me: WorkerRef, glance: Glance, own: bool) -> None:
        """Where nothing fails, a worker among many glances by itself only as a watcher, where no
        beat has brought a glance, or where glances have shown a mark for too long."""
        shown = self._shown.setdefault(me.worker_id, Shown())
        now, owner = self.loop.now, self.owner_of(me.worker_id)
        if own and not self.faulty and owner is not None and owner.worker is not None:
            looks: Any = owner.worker._reaper._looks
            lately = now - shown.last_at < EASED_SECONDS - 0.1
            lately = lately and now - self._heard_at.get(owner.name, -math.inf) > SLACK_SECONDS
            if looks._may_glance_rarely() and lately and shown.oldest_mark() < watch.DOUBT_SECONDS:
                told = f"{owner.name} glances, though it was shown new marks"
                self.witness.wrong("doubt counts from what was seen", told)
        shown.note(now, glance.watches)


class Shown:
    """What glances have shown of the watches to one worker."""

    def __init__(self) -> None:
        self._marks: tuple[int, ...] = ()
        self._since: list[float] = []
        self.last_at = -math.inf

    def note(self, now: float, marks: tuple[int, ...]) -> None:
        """Note a glance."""
        if len(marks) != len(self._marks):
            self._since = [now] * len(marks)
        for place, (before, mark) in enumerate(zip(self._marks, marks, strict=False)):
            if before != mark:
                self._since[place] = now
        self._marks, self.last_at = marks, now

    def oldest_mark(self) -> float:
        """Return for how long the same mark was seen, up to the last glance."""
        kept = [at for at, mark in zip(self._since, self._marks, strict=True) if mark]
        return max((self.last_at - at for at in kept), default=math.inf)


class Waits:
    """How long each job has waited that stands in the line, while a worker was idle."""

    def __init__(self, world: PollingWorld) -> None:
        self._world = world
        self._passed_over: set[int] = set()
        self._since: dict[int, float] = {}  # job -> when it came to stand in the line
        self._idle: dict[str, float] = {}  # worker -> since when it is idle, and well
        self._goes_on = True
        self._told: set[int] = set()
        self.longest = 0.0
        self.found = 0

    def note(self, job_id: int, *, passed_over: bool) -> None:
        """Note a job of a caller's, which can be found from now on."""
        self._since[job_id] = self._world.loop.now
        self.found += 1
        if passed_over:
            self._passed_over.add(job_id)

    def start(self) -> None:
        """Judge from now on."""
        self._world.keep(self._world.loop.create_task(self._judge_on()))

    def stop(self) -> None:
        """Judge no longer."""
        self._goes_on = False

    async def _judge_on(self) -> None:
        look = self._world.disk.look()
        while self._goes_on:
            sql = "SELECT id FROM outlast_jobs WHERE state = 'queued' AND position IS NOT NULL"
            rows = {row[0] for row in look.execute(sql).fetchall()}
            now = self._world.loop.now
            self._since = {each: self._since.get(each, now) for each in rows}
            self._note_idle(now)
            for job_id in sorted(rows):
                self._judge(job_id, now)
            await asyncio.sleep(LOOK_SECONDS)

    def _note_idle(self, now: float) -> None:
        for worker in self._world.workers:
            if worker.worker is None or worker.ended or not is_idle(worker):
                self._idle.pop(worker.name, None)
                continue
            trouble = max(worker.unwell_at, worker.hindered_at) + WELL_SECONDS
            self._idle[worker.name] = max(trouble, self._idle.get(worker.name, now))

    def _judge(self, job_id: int, now: float) -> None:
        for worker in self._world.alive():
            if worker.name not in self._idle:
                continue
            since = max(self._since[job_id], self._idle[worker.name])
            most = self._bound(job_id, worker, since)
            self.longest = max(self.longest, now - since)
            if now - since > most + SLACK_SECONDS and job_id not in self._told:
                self._told.add(job_id)
                told = f"job {job_id} waits for {now - since:.1f} s beside idle {worker.name}"
                self._world.witness.wrong("no job waits beside an idle worker", told)

    def _bound(self, job_id: int, worker: SimWorker, since: float) -> float:
        database = self._world.database
        assert database is not None
        poll = POLL_SECONDS
        if database.in_parts_until > since:
            poll *= 2
        silent = self._world.silent.get(worker.name, math.inf) <= since
        if job_id not in self._passed_over or silent:
            return poll
        share = POLL_SECONDS * (len(self._world.alive()) + database.peers_elsewhere) / EASED_PEERS
        return min(QUIET_SECONDS_MAX, share) + poll


def is_idle(worker: SimWorker) -> bool:
    """Whether it is well, has nothing to do, and may take all that comes."""
    real = worker.worker
    assert real is not None
    return bool(
        worker.well_for > 0
        and real.registration.may_claim()
        and not (real.ledger.running or real.ledger.ended)
        and real.pool.starter.tasks()
    )


def _at_once() -> Patches:
    real = Polls._note_transactions

    def at_once(self: Any, glance: Glance, *, is_new: bool) -> None:
        real(self, glance, is_new=is_new)
        self._bound = glance.newest if is_new else self._bound

    yield mock.patch.object(Polls, "_note_transactions", at_once)


def _snapshot_end() -> Patches:
    real = Transactions.glance

    def glance(self: Any, number: int | None) -> Glance:
        return real(self, self._completed + 1)

    yield mock.patch.object(Transactions, "glance", glance)


def _whole() -> Patches:
    yield mock.patch.object(
        exchange, "_has_found_the_end", lambda reply: not (reply.claimed or reply.solo_waiting)
    )


def _any_health() -> Patches:
    def among_many(wakeup: Any, kind: Any) -> Callable[[], bool]:
        return lambda: kind.peers >= EASED_PEERS

    yield mock.patch.object(worker_module, "is_among_many", among_many)


def _left_by_all() -> Patches:
    real = WakeTurns.follow

    def follow(self: Any, requests: Any) -> Any:
        followed = real(self, requests)
        self._followed = 0
        return followed

    yield mock.patch.object(WakeTurns, "follow", follow)


def _doubt_grows() -> Patches:
    def doubts(self: Any) -> bool:
        now = PROCESS.get().owner.clock.boot()
        return any(e._mark and now - e._since >= watch.DOUBT_SECONDS for e in self._seen)

    yield mock.patch.object(watch.WatchPart, "doubts", doubts)


TWINS: dict[str, Callable[[], Patches]] = {
    "the bound is read with the position": _at_once,
    "the bound is the end of a snapshot": _snapshot_end,
    "a look in parts counts as whole": _whole,
    "a listener that is silent counts as well": _any_health,
    "who owes a look leaves it to others": _left_by_all,
    "doubt grows without a glance": _doubt_grows,
}
KNOWN = {  # a seed that catches it soon
    "the bound is read with the position": 5,
    "the bound is the end of a snapshot": 5,
    "a look in parts counts as whole": 3,
    "a listener that is silent counts as well": 78,
    "who owes a look leaves it to others": 1,
    "doubt grows without a glance": 4,
}


if __name__ == "__main__":
    play_kind(
        PollingWorld,
        TWINS,
        lambda world: (world.waits.found, world.waits.longest),
        lambda waits: (
            f"{sum(found for found, _ in waits)} jobs that nothing announced,"
            f" {max(longest for _, longest in waits):.1f} s beside an idle worker at most"
        ),
    )
