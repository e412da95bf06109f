"""A host and what runs on it: workers, each with its tether and its runners, as processes.

Everything is the production code but the processes themselves, the tether's (the same rule, a task)
and the heartbeat's thread (the same ``run_once``, a task).
"""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import Context, copy_context
from typing import Any, cast

import msgspec

from outlast.base.clock import seeded
from outlast.base.config import WorkerSettings
from outlast.errors import StoreError
from outlast.store.lockfile import LockFile
from outlast.store.values import LockIdentity, NewWorker
from outlast.worker import assemble
from outlast.worker.lease import last_will
from outlast.worker.lease.heartbeat import Heartbeat
from outlast.worker.runners.pool import RunnerPool
from outlast.worker.runners.process import RunnerOwner
from outlast.worker.worker import Worker
from tests.sim.loop import PROCESS, Process
from tests.sim.presence import SimPresence
from tests.sim.runner import SimRunner
from tests.sim.wakeups import SimWakeup
from tests.sim.witness import RESUMED_SECONDS

HEARTBEAT, LEASE = 1.0, 8.0
TETHER_LOOK = 0.5
QUANTUM = 0.05  # seconds: no sleep is shorter, as on a busy machine
EPOCH = 1_700_000_000.0


class SimHeartbeat(Heartbeat):
    """The production heartbeat, its thread made a task: the same ``run_once``."""

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._beat_until_stopped())

    async def stop(self) -> None:
        self._stopping = True
        self.nudge()
        await asyncio.wait([self._task])


class Host:
    """A machine: its clocks, its boot id, and the workers on it.

    ``wall_step``: seconds that its wall clock was set forward. The boot clock drifts, and goes on
    while the host is suspended; the loop's clock (CLOCK_MONOTONIC) does not.
    """

    def __init__(self, world: Any, number: int) -> None:
        self.world = world
        self.name = f"h{number}"
        self.boots = 1
        self.rate = 1.0 + 0.001 * (world.chance() - 0.5)
        self.started = 10_000 * world.chance()
        self.wall_step = self.wall_step_max = 0.0
        self.set_back_at = float("-inf")  # when its wall clock was last set back
        self.suspended = False

    @property
    def boot_id(self) -> str:
        """The boot id."""
        return f"boot {self.boots} of {self.name}"

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back."""
        self.wall_step += seconds
        self.wall_step_max = max(self.wall_step_max, self.wall_step)
        if seconds < 0:
            self.set_back_at = self.world.loop.now

    def workers(self) -> list[SimWorker]:
        """Return the workers that live on it."""
        return [each for each in self.world.alive() if each.host is self]

    def suspend(self, seconds: float) -> None:
        """Suspend everything for so long, unnoticed by the timers."""
        processes = {process for each in self.workers() for process in each.processes()}
        self.suspended = True
        for process in processes:
            process.stops += 1
        self.world.loop.oversleep(processes, seconds)
        for each in self.workers():
            each.is_unwell("suspended")
        self.world.loop.call_later(seconds, self._resume, processes)

    def _resume(self, processes: set[Process]) -> None:
        self.suspended = False
        for process in processes:
            process.stops = max(0, process.stops - 1)
        for each in self.world.workers:
            if each.host is self:  # also where the worker was killed meanwhile: its runners wake
                each.is_unwell("resumed")
                self.world.witness.forgive(each.name, RESUMED_SECONDS)

    def cut_the_power(self) -> None:
        """End everything at once; peers see no close, and the database keeps the sessions long."""
        for each in self.workers():
            each.kill_tree(linger=20.0 * self.world.chance())
        self.boots += 1


class HostClock:
    """A process's view of its host's clocks, and its own chance."""

    def __init__(self, world: Any, host: Host, seed: int) -> None:
        self._world = world
        self._host = host
        self.random = seeded(seed)

    def wall(self) -> float:
        """The host's wall clock."""
        return EPOCH + self._world.loop.now + self._host.wall_step

    def boot(self) -> float:
        """CLOCK_BOOTTIME."""
        return self._host.started + self._world.loop.now * self._host.rate

    async def sleep(self, seconds: float) -> None:
        """Sleep on CLOCK_MONOTONIC, as asyncio does."""
        await asyncio.sleep(max(seconds, QUANTUM) / self._host.rate)


class StoreClock:
    """The store's time: the wall clock of its own machine."""

    def __init__(self, world: Any, host: Host) -> None:
        self._world = world
        self._host = host
        self.random = seeded(0)

    def wall(self) -> float:
        """The wall clock, which drifts as fast as the boot clock and can be stepped."""
        return EPOCH + self._world.loop.now * self._host.rate + self._host.wall_step

    def boot(self) -> float:
        """Never asked for."""
        return float(self._world.loop.now)

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        await asyncio.sleep(seconds)


class SimTether:
    """The tether process of one worker, as a process of its own."""

    def __init__(self, owner: SimWorker) -> None:
        self._owner = owner
        self._groups: set[int] = set()
        self._until = float("inf")
        self.process = Process(f"tether of {owner.name}")

    def add(self, pgid: int) -> None:
        """Take a runner's group on the tether."""
        self._groups.add(pgid)

    def drop(self, pgid: int) -> None:
        """Let go of a group that is empty."""
        self._groups.discard(pgid)

    def hold_until(self, boottime: float) -> None:
        """Let runners go on until then."""
        self._until = boottime

    async def live(self) -> None:
        """Kill the groups at the end of the span, or of the worker."""
        while not self._owner.process.killed:
            left = self._until - self._owner.clock.boot()
            if left <= 0:
                self._end_groups()
            await asyncio.sleep(min(TETHER_LOOK, left) if left > 0 else TETHER_LOOK)
        self.let_go()
        await self.carry_out_the_will()

    def let_go(self) -> None:
        """Kill the groups, then let go of the lock file."""
        self._end_groups()
        self._owner.tether_ended()

    async def carry_out_the_will(self) -> None:
        """Become another program, which starts, connects, and does what the production's does."""
        world, will = self._owner.world, self._owner.will
        if will is None or world.wills is None:
            return
        await asyncio.sleep(0.1 + 0.4 * world.wills())
        if self._owner.is_cut:
            return
        with contextlib.suppress(StoreError, TimeoutError):
            store = await world.open_store(self._owner.host, None)
            if await last_will.carry_out(will, store, self._owner.clock):
                world.plan.seen["last will"] += 1

    def _end_groups(self) -> None:
        for runner in list(self._owner.runners):
            if runner.pid in self._groups:
                runner.die(exit_code=None, signal="SIGKILL")
        self._groups.clear()


class SimWorker:
    """A worker's process with its tether and its runners."""

    def __init__(self, world: Any, number: int, host: Host) -> None:
        self.world = world
        self.host = host
        self.name = f"w{number}"
        self.clock = HostClock(world, host, number)
        self.process = Process(self.name)
        self.process.owner = self
        self.runners: list[SimRunner] = []
        self.lock: LockFile | None = None
        self.will: LockIdentity | None = None  # None where there is no lock file, or it leaves
        self.presence: SimPresence | None = None
        self.tether = SimTether(self)
        self.worker: Worker | None = None  # until its store is open
        self.ended = False
        self.lease = world.lease
        self.unwell_at = world.loop.now  # when it last had trouble of its own
        self.hindered_at = float("-inf")  # when a call of it last failed, or was slow
        self.cut_until = self.beats_stuck_until = self.astray_until = 0.0
        self.link_dies = False
        self.row_held_until = 0.0  # by a server that waits for a reply to be read
        self.bytes_per_second: float | None = None  # of its link; None: as fast as it may be
        self._tether_gone = False

    def start(self) -> None:
        """Start the tether and the worker."""
        self._spawn(self.tether.process, self.tether.live())
        self._spawn(self.process, self._live())

    def _spawn(self, process: Process, coroutine: Any) -> None:
        self.world.keep(self.world.loop.create_task(coroutine, context=self.context(process)))

    def context(self, process: Process | None = None) -> Context:
        """Return a context in which callbacks belong to a process of this worker."""
        context = copy_context()
        context.run(PROCESS.set, process or self.process)
        return context

    def processes(self) -> list[Process]:
        """Return everything of it that the kernel knows."""
        runners = [process for each in self.runners for process in each.processes]
        return [self.process, self.tether.process, *runners]

    async def _live(self) -> None:
        self._take_proofs()
        settings = WorkerSettings(
            runners=2, concurrency=3, heartbeat=self.world.heartbeat, lease=self.lease,
            name=self.name, drain_timeout=3.0,
        )  # fmt: skip
        store = await self._opened()
        wakeup = SimWakeup(self)
        worker = self.worker = self._assembled(settings, store, wakeup)
        try:
            await worker.run()
        except StoreError:
            self.world.plan.seen["worker could not start"] += 1
        self._end(worker)

    def _take_proofs(self) -> None:
        world = self.world
        if world.chance() < world.lock_share:
            self.lock = LockFile.create(world.locks, self.name)
        if world.database is not None and world.chance() < world.presence_share:
            self.presence = SimPresence(self)

    async def _opened(self) -> Any:
        while True:
            try:
                return await self.world.open_store(self.host, None)
            except StoreError:
                await asyncio.sleep(0.5)

    def _assembled(self, settings: WorkerSettings, store: Any, wakeup: SimWakeup) -> Worker:
        def make_pool(worker: Worker) -> RunnerPool:
            return assemble.make_runner_pool(
                worker, self._make_runner, settings, cast(Any, self.tether), self.clock
            )

        return Worker(
            self._registration(settings), settings, make_pool, store=store, wakeup=wakeup,
            open_beating_store=lambda: self.world.open_store(self.host, self.lock),
            hold_until=self.tether.hold_until, presence=self.presence, lock=self.lock,
            clock=self.clock,
        )  # fmt: skip

    def _registration(self, settings: WorkerSettings) -> NewWorker:
        boot_id = self.host.boot_id
        if self.lock is not None:
            path, device, inode = str(self.lock.path), self.lock.device, self.lock.inode
            self.will = LockIdentity(boot_id=boot_id, path=path, device=device, inode=inode)
        new = assemble.new_worker(self.name, settings, self.lock)
        return msgspec.structs.replace(new, host=self.host.name, boot_id=boot_id)

    def _end(self, worker: Worker) -> None:
        self.ended, self.will = True, None
        if self.lock is not None:
            self.lock.release(unlink=worker.registration.has_left)
            self.lock = None
        self._end_presence(0.0)
        self.world.loop.kill(self.process)

    def _make_runner(self, pool: RunnerOwner) -> SimRunner:
        return SimRunner(self, pool)

    def drain(self) -> None:
        """SIGTERM."""
        if self.worker is None:
            self.kill_tree()
        else:
            self.worker.request_stop()

    # -- what can happen to it ----------------------------------------------------------------

    @property
    def is_cut(self) -> bool:
        """Return whether nothing of it reaches the store."""
        return bool(self.world.loop.now < self.cut_until)

    @property
    def beats_are_stuck(self) -> bool:
        """Return whether only its beats do not get through."""
        return bool(self.world.loop.now < self.beats_stuck_until)

    @property
    def well_for(self) -> float:
        """Return for how many seconds it has had no fault of its own."""
        if self.process.stopped or self.is_cut or self.beats_are_stuck:
            return 0.0
        return float(self.world.loop.now - self.unwell_at)

    def is_unwell(self, why: str) -> None:
        """Note a fault of only this worker: it may now rightly be found gone."""
        del why
        self.unwell_at = self.world.loop.now

    def kill(self, *, linger: float = 0.0) -> None:
        """kill -9 of the worker process; its tether ends the rest."""
        if self.worker is not None:
            self.world.witness.worker_killed(self.worker.me.worker_id)
        for runner in self.runners:  # what is alone in its worker is charged: that is the rule
            self.world.witness.killed_from_outside |= runner.tokens
        self.world.loop.kill(self.process)
        self.ended = True
        self._end_presence(linger)

    def kill_tree(self, *, linger: float = 0.0) -> None:
        """kill -9 of everything at once."""
        self.kill(linger=linger)
        for runner in list(self.runners):
            runner.die(exit_code=None, signal="SIGKILL")
        self.world.loop.kill(self.tether.process)
        self.tether_ended()

    def _end_presence(self, after: float) -> None:
        if self.presence is not None and self.world.database is not None:
            self.world.database.end_session_later(self.presence, after)

    def stop(self, seconds: float, *, tree: bool) -> None:
        """SIGSTOP now, SIGCONT after ``seconds``."""
        processes = self.processes() if tree else [self.process]
        for process in processes:
            process.stops += 1
        self.is_unwell("stopped")
        self.world.loop.call_later(seconds, self._go_on, processes, tree)

    def _go_on(self, processes: list[Process], tree: bool) -> None:
        for process in processes:
            process.stops = max(0, process.stops - 1)
        self.is_unwell("woken")
        if tree:
            self.world.witness.forgive(self.name, RESUMED_SECONDS)

    def runner_died(self, runner: SimRunner) -> None:
        """Forget a runner whose process is gone."""
        self.runners.remove(runner)
        self._let_go_when_empty()

    def tether_ended(self) -> None:
        """Forget the tether, whose process is gone."""
        self._tether_gone = True
        self._let_go_when_empty()

    def _let_go_when_empty(self) -> None:
        """The kernel releases the lock when the last process that holds it is gone."""
        if self.process.killed and self._tether_gone and not self.runners and self.lock:
            self.lock.release(unlink=False)
            self.lock = None
