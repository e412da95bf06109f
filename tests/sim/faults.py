"""What can go wrong with a call to a store, drawn from the seed: around every call of a real one.

Lost before it was done, done but not answered, done later than the caller believes, slow; the store
away for all, or for one worker only; its disk full; the caller killed before or after. After
the faults are switched off a call only takes its time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from outlast.errors import StoreError, StoreUnavailable
from outlast.store.protocol import Store
from outlast.store.values import WorkerRef
from tests.sim.loop import OUTSIDE, PROCESS

READS = frozenset({"peek", "observe", "overdue", "superseded", "count_peers", "due_schedules"})
SERVED_ONLY = frozenset({"peek", "keep_watch"})  # no trip to a file
VERBS = READS | SERVED_ONLY | {
    "announce", "cancel", "checkpoint", "discard", "enqueue", "expire", "exchange", "heartbeat",
    "acknowledge_pauses", "keep_logs", "merge_minutes", "note_minute", "presence_off", "progress",
    "prune",
    "note", "raise_tokens", "reap", "reclaim", "reconcile", "reconnect", "register",
    "request_drain", "requeue", "set_status", "take_step", "tell_failing", "tell_gone",
    "put_schedules", "delete_schedule", "pause_schedule", "fire", "note_undeclared",
    "declare_limits", "set_limit", "hold_limit", "recount_limits", "spend",
    "find_steps", "keep_steps", "spawn", "watch_children", "send_event", "find_event", "skip",
}  # fmt: skip
FAULTS = {
    "request lost": 0.25,
    "reply lost": 0.25,
    "done late": 0.15,
    "slow": 0.3,
    "reply slow": 0.3,
}


class Plan:
    """How likely each fault is. A seed has only a few kinds of them, so that each gets its turn.

    ``on`` False: none at all. ``seen`` counts, by kind.
    """

    def __init__(self, chance: Callable[[], float], theme: str | None) -> None:
        self.chance = chance
        self.on = True
        self.seen: Counter[str] = Counter()
        self.outage_until = self.still_until = self.moved_until = 0.0
        self.disk_is_full = False
        rare = 1.0 if theme == "calls" else 3.0 if theme is None else 6.0
        self.rates = {
            fault: most * chance() ** rare if chance() < 0.5 else 0.0
            for fault, most in FAULTS.items()
        }
        self.near_deaths = theme == "near deaths"
        self.wake_lost = chance() if chance() < 0.5 else 0.1
        most = 0.5 if theme == "slow disk" else 0.2
        self.slow_disk = most * chance() if theme == "slow disk" or chance() < 0.2 else 0.0
        if theme in {"failovers", "copies"}:
            self.slow_disk = 0.0
        self.crash_rate = 0.01 * chance() ** 2 if chance() < 0.4 else 0.0

    def drawn(self) -> str | None:
        """Return the fault of one call, or None."""
        dice = self.chance()
        for fault, rate in self.rates.items():
            if dice < rate:
                self.seen[fault] += 1
                return fault
            dice -= rate
        return None

    def crashes(self) -> bool:
        """Whether the process that is about to act dies now."""
        return self.on and self.crash_rate > 0 and self.chance() < self.crash_rate

    def thread_delay(self) -> float:
        """Return for how many seconds a thread's work waits: now and then, as on a slow disk."""
        if not self.on or self.slow_disk == 0 or self.chance() >= self.slow_disk:
            return 0.0
        self.seen["slow disk"] += 1
        return 1.5 * self.chance() ** 2

    def stop(self) -> None:
        """Switch the faults off."""
        self.on = False
        self.outage_until = self.still_until = 0.0
        self.disk_is_full = False


class Faults:
    """Makes calls, with the faults that the plan has for them; ``watch`` does and judges a verb."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._plan: Plan = world.plan

    @property
    def is_file(self) -> bool:
        """Whether the store is a file, which shares no looks."""
        return self._world.database is None

    async def call(self, name: str, real: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make one call; or drop it, delay it, or drop its answer."""
        plan, chance = self._plan, self._plan.chance
        owner = PROCESS.get().owner
        await asyncio.sleep(0.002 * chance())
        if name == "reap":
            self._refuse_a_held_row(args[0])
        if owner is not None and owner.bytes_per_second is not None:
            return await self._slowly(owner, name, real, args, kwargs)
        if not plan.on:
            return await self._done(name, real, args, kwargs)
        try:
            return await self._faultily(owner, name, real, args, kwargs)
        except StoreError:
            note_hindrance(owner, self._world.loop.now)
            raise

    async def _faultily(self, owner: Any, name: str, real: Any, args: Any, kwargs: Any) -> Any:
        plan, chance = self._plan, self._plan.chance
        await self._may_die(owner)
        if name == "reap" and plan.near_deaths:
            await self._let_it_beat(args[0])
        fault = await self._before(name, owner)
        if fault is not None and name == "heartbeat":
            owner.is_unwell(fault)
        if fault == "done late":
            self._do_later(15.0 * chance() ** 3, name, real, args, kwargs)
            raise StoreUnavailable("simulated: broke off, and is done later")
        reply = await self._done(name, real, args, kwargs)
        await self._may_die(owner)
        if fault == "reply lost":
            raise StoreUnavailable("simulated: the reply was lost")
        if fault == "reply slow":
            await asyncio.sleep(12.0 * chance() ** 2)
            note_hindrance(owner, self._world.loop.now)
        if name == "heartbeat" and owner.link_dies:
            await self._dying_link(owner)
        if name == "exchange" and owner.beats_are_stuck and reply.claimed:
            await asyncio.sleep(owner.lease / 3 * chance() ** 0.5)  # its trust may end meanwhile
        return reply

    def _refuse_a_held_row(self, gone: Any) -> None:
        """Fail at once, as a reap does that waits for no lock."""
        now = self._world.loop.now
        rows = {each.worker.me.worker_id: each for each in self._world.workers if each.worker}
        held = rows.get(gone.worker_id)
        if held is not None and now < held.row_held_until:
            self._plan.seen["reap of a row that is held"] += 1
            raise StoreUnavailable("simulated: the row is locked")

    async def _slowly(self, owner: Any, name: str, real: Any, args: Any, kwargs: Any) -> Any:
        """Let each counted byte take its time, on the way there and back."""
        if self._plan.on:
            self._in_the_way(name, owner)  # it also has the faults of all
            await self._wait_while_still()
        await asyncio.sleep(_bytes_of(args) / owner.bytes_per_second)
        reply = await self._done(name, real, args, kwargs)
        seconds = _bytes_of(reply) / owner.bytes_per_second
        self._plan.seen["slow reply"] += seconds > 1.0
        await asyncio.sleep(seconds)
        return reply

    async def _before(self, name: str, owner: Any) -> str | None:
        plan, chance = self._plan, self._plan.chance
        self._in_the_way(name, owner)
        await self._wait_while_still()
        fault = plan.drawn()
        if fault == "slow":
            if (
                name == "heartbeat"
            ):  # from its begin on: it may be found gone before its beat gets there
                owner.is_unwell(fault)
            await asyncio.sleep(8.0 * chance() ** 3)
            note_hindrance(owner, self._world.loop.now)
        if fault == "request lost":
            if name == "heartbeat":
                owner.is_unwell(fault)
            await asyncio.sleep(2.0 * chance() ** 3)
            raise StoreUnavailable("simulated: the request was lost")
        return fault

    async def _wait_while_still(self) -> None:
        still = self._plan.still_until - self._world.loop.now
        if still > 0:
            self._plan.seen["call while the store stood still"] += 1
            await asyncio.sleep(still + 0.05 * self._plan.chance())  # then all at once, any order

    def _in_the_way(self, name: str, owner: Any) -> None:
        """Raise where the store is away, for all or for this one, or its disk is full."""
        plan, now = self._plan, self._world.loop.now
        if now < plan.outage_until:
            plan.seen["call in an outage"] += 1
            raise StoreUnavailable("simulated: the store is away")
        if owner is not None and now < owner.astray_until:
            plan.seen["call to where the database was"] += 1
            raise StoreUnavailable("simulated: this worker looks where the database was")
        if owner is not None and owner.is_cut:
            plan.seen["call while cut off"] += 1
            owner.is_unwell("cut off")
            raise StoreUnavailable("simulated: this worker is cut off")
        if name == "heartbeat" and owner.beats_are_stuck:
            plan.seen["beat that is stuck"] += 1
            owner.is_unwell("its beats are stuck")
            raise StoreUnavailable("simulated: this beat is stuck")
        if plan.disk_is_full and name not in READS and plan.chance() < 0.5:
            plan.seen["call with a full disk"] += 1
            if name == "heartbeat":
                owner.is_unwell("disk full")
            raise StoreUnavailable("simulated: the disk is full")

    async def _let_it_beat(self, gone: Any) -> None:
        """Let the beats of a worker get through in the moment of its reap."""
        worker = self._world.owner_of(gone.worker_id)
        if worker is not None and worker.beats_are_stuck:
            self._plan.seen["beats got through before the reap"] += 1
            worker.beats_stuck_until = 0.0
            await asyncio.sleep(self._plan.chance())

    async def _may_die(self, owner: Any) -> None:
        if owner is None or owner.ended or not self._plan.crashes():
            return
        self._plan.seen["worker killed at a call"] += 1
        owner.kill_tree() if self._plan.chance() < 0.5 else owner.kill()
        self._world.replace()
        never = asyncio.get_running_loop().create_future()
        self._world.keep(never)
        await never  # this process is dead

    async def _dying_link(self, owner: Any) -> None:
        """Let this reply take almost as long as allowed; after it nothing gets through."""
        owner.link_dies = False
        owner.is_unwell("its link dies")
        await asyncio.sleep(owner.lease * (0.27 + 0.055 * self._plan.chance()))
        owner.cut_until = self._world.loop.now + owner.lease * (0.9 + 0.6 * self._plan.chance())

    async def _done(self, name: str, real: Any, args: Any, kwargs: Any) -> Any:
        return await self._world.witness.watch(name, real, args, kwargs or {})

    def _do_later(self, delay: float, name: str, real: Any, args: Any, kwargs: Any) -> None:
        async def late() -> None:
            await asyncio.sleep(delay)
            try:
                await self._done(name, real, args, kwargs)
            except StoreUnavailable:
                return

        self._world.keep(_outside(late()))


class FaultyStore:
    """Looks like the store that it wraps."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self._store = store
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if name not in VERBS or (name in SERVED_ONLY and self._faults.is_file):
            return real

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._faults.call(name, real, args, kwargs)

        return call


class FaultyServedStore(FaultyStore):
    """That of a server; what is asked of its class (``ServerStore``) is said by the class."""

    async def count_peers(self, me: WorkerRef) -> tuple[int, int]:
        """Return how many workers serve the same, and how many of them came before."""
        verb = self._store.count_peers  # type: ignore[attr-defined]
        found: tuple[int, int] = await self._faults.call("count_peers", verb, (me,))
        return found

    async def waiting(self, grace: float, limit: int) -> Any:
        """Return what waits and was not announced."""
        return await self._faults.call("waiting", self._store.waiting, (grace, limit))  # type: ignore[attr-defined]

    async def list_run_elsewhere(self, me: WorkerRef, job_ids: Any) -> Any:
        """Return those of the jobs that another worker runs."""
        list_run_elsewhere = self._store.list_run_elsewhere  # type: ignore[attr-defined]
        return await self._faults.call("list_run_elsewhere", list_run_elsewhere, (me, job_ids))


def note_hindrance(owner: Any, now: float) -> None:
    """Note that a call of a worker has failed, or was slow."""
    if owner is not None:
        owner.hindered_at = now


def _bytes_of(value: Any) -> int:
    """Return about how many bytes of text there are in what goes to a store or comes from it."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, (list, tuple)):
        return sum(map(_bytes_of, value))
    if isinstance(value, msgspec.Struct):
        return sum(_bytes_of(getattr(value, name)) for name in value.__struct_fields__)
    return 0


def _outside(coroutine: Awaitable[None]) -> asyncio.Future[None]:
    """Run it as the server would: also when the caller is gone."""
    token = PROCESS.set(OUTSIDE)
    try:
        return asyncio.ensure_future(coroutine)
    finally:
        PROCESS.reset(token)
