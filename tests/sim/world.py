"""A world of hosts, workers and clients on one store, and what happens to them, from one seed.

Two phases. *Safety*: faults of every kind, while every verb and every step of user code is
watched. *Liveness*: no more faults; every accepted job must come to its end within a bound of
virtual time, and the history that is left must hold every rule of ``outlast verify``.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import traceback
from collections import Counter
from contextvars import Context, copy_context
from pathlib import Path
from typing import Any
from unittest import mock

from outlast import events
from outlast.clock import seeded
from outlast.config import WorkerSettings
from outlast.errors import StoreError
from outlast.model.job import Policy
from outlast.store.base import NewJob, NewWorker
from outlast.store.lockfile import LockFile
from outlast.store.sqlite import SqliteStore
from outlast.verify import verify
from outlast.worker import assemble
from outlast.worker.heartbeat import Heartbeat
from outlast.worker.worker import Worker
from tests.sim.faults import FaultyStore, Plan
from tests.sim.loop import PROCESS, Process, SimLoop
from tests.sim.runner import SimRunner
from tests.sim.witness import LAST, RESUMED_SECONDS, Witness

HEARTBEAT, LEASE = 1.0, 10.0
QUIET_SECONDS_MAX = 600.0  # virtual, from the last fault to the last end
TETHER_LOOK = 0.25


class SimHeartbeat(Heartbeat):
    """The production heartbeat, its thread made a task: the same ``run_once``."""

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._beat_until_stopped())

    async def stop(self) -> None:
        self._stopping = True
        self.nudge()
        await asyncio.wait([self._task])


class HostClock:
    """A host's clocks: a drifting boot clock, a wall clock that can be stepped, its own chance."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._rate = 1.0 + 0.001 * (world.chance() - 0.5)
        self._start = 10_000 * world.chance()
        self.random = seeded(seed)

    def wall(self) -> float:
        return 1_700_000_000.0 + self._world.loop.now + self._world.wall_step

    def boot(self) -> float:
        return self._start + self._world.loop.now * self._rate

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._rate)


class SimTether:
    """The tether process of one worker, as a process of its own."""

    def __init__(self, owner: SimWorker) -> None:
        self._owner = owner
        self._groups: set[int] = set()
        self._until = float("inf")
        self.process = Process(f"tether of {owner.name}")

    def add(self, pgid: int) -> None:
        self._groups.add(pgid)

    def drop(self, pgid: int) -> None:
        self._groups.discard(pgid)

    def hold_until(self, boottime: float) -> None:
        self._until = boottime

    async def live(self) -> None:
        """Kill the groups at the end of the span, or of the worker."""
        while not self._owner.process.killed:
            left = self._until - self._owner.clock.boot()
            if left <= 0:
                self._end_groups()
            await asyncio.sleep(min(TETHER_LOOK, max(0.001, left)))
        self._end_groups()
        self._owner.tether_ended()

    def _end_groups(self) -> None:
        for runner in list(self._owner.runners):
            if runner.pid in self._groups:
                runner.die(exit_code=None, signal="SIGKILL")
        self._groups.clear()


class SimWorker:
    """A worker's process with its tether and its runners."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"w{number}"
        self.clock = HostClock(world, number)
        self.process = Process(self.name)
        self.runners: list[SimRunner] = []
        self.lock: LockFile | None = None
        self.tether = SimTether(self)
        self.worker: Worker | None = None  # until its store is open
        self.ended = False

    def start(self) -> None:
        """Start the tether and the worker."""
        self._spawn(self.tether.process, self.tether.live())
        self._spawn(self.process, self._live())

    def _spawn(self, process: Process, coroutine: Any) -> None:
        context: Context = copy_context()
        context.run(PROCESS.set, process)
        self.world.keep(self.world.loop.create_task(coroutine, context=context))

    async def _live(self) -> None:
        world, clock = self.world, self.clock
        if world.chance() < world.lock_share:
            self.lock = LockFile.create(world.folder / "run", self.name)
        settings = WorkerSettings(
            runners=2, concurrency=3, heartbeat=HEARTBEAT, lease=LEASE, name=self.name,
            drain_timeout=3.0,
        )  # fmt: skip
        while True:
            try:
                store = await world.open_store(clock, None)
                break
            except StoreError:
                await asyncio.sleep(0.5)
        new: NewWorker = assemble.new_worker(self.name, settings, self.lock)
        worker = Worker(
            new, settings, store=store, wakeup=None, clock=clock,
            open_beating_store=lambda: world.open_store(clock, self.lock),
            hold_until=self.tether.hold_until,
        )  # fmt: skip
        tether: Any = self.tether
        worker.attach(assemble._pool(worker, self._make_runner, settings, tether, clock))
        self.worker = worker
        try:
            await worker.run()
        except StoreError:
            world.plan.seen["worker could not start"] += 1
        self.ended = True
        if self.lock is not None:
            self.lock.release(unlink=worker.has_left)
            self.lock = None
        self.world.loop.kill(self.process)

    def _make_runner(self, **handlers: Any) -> Any:
        return SimRunner(self, **handlers)

    def drain(self) -> None:
        """SIGTERM."""
        if self.worker is None:
            self.kill_tree()
        else:
            self.worker.request_stop()

    def wake(self, queue: str) -> None:
        """A wake-up, as its process would be told."""
        if self.worker is not None:
            self.worker._on_wake(queue)

    # -- what can happen to it ----------------------------------------------------------------

    def kill(self) -> None:
        """kill -9 of the worker process; its tether ends the rest."""
        if self.worker is not None:
            self.world.witness.worker_killed(self.worker.me.worker_id)
        self.world.loop.kill(self.process)
        self.ended = True

    def kill_tree(self) -> None:
        """kill -9 of everything at once."""
        self.kill()
        for runner in list(self.runners):
            runner.die(exit_code=None, signal="SIGKILL")
        self.world.loop.kill(self.tether.process)
        self.tether_ended()

    def set_stopped(self, stopped: bool, *, tree: bool) -> None:
        """SIGSTOP or SIGCONT."""
        every = [self.process]
        if tree:
            every += [self.tether.process, *(runner.process for runner in self.runners)]
        for process in every:
            process.stopped = stopped and not process.killed
        if tree and not stopped:
            self.world.witness.forgiven_until[self.name] = self.world.loop.now + RESUMED_SECONDS

    def failed(self, error: BaseException) -> None:
        """Something went wrong that never should."""
        self.world.witness.wrong("no stray exception", repr(error))

    def runner_died(self, runner: SimRunner) -> None:
        self.runners.remove(runner)
        self._let_go_when_empty()

    def tether_ended(self) -> None:
        self._tether_gone = True
        self._let_go_when_empty()

    _tether_gone = False

    def _let_go_when_empty(self) -> None:
        """The kernel releases the lock when the last process that holds it is gone."""
        if self.process.killed and self._tether_gone and not self.runners and self.lock:
            self.lock.release(unlink=False)
            self.lock = None


class World:
    """Everything of one seed. ``run`` raises nothing: look at ``witness.violations``."""

    def __init__(self, seed: int, *, faults: bool = True, memory: int | None = LAST) -> None:
        self.seed = seed
        self._memory = memory
        self.faults = faults
        self.loop = SimLoop(seed)
        self.chance = seeded(seed * 7919 + 1)
        self.plan = Plan(self.chance)
        self.plan.on = False
        self.wall_step = self.wall_step_max = 0.0
        self.lock_share = [0.0, 0.5, 1.0][int(3 * self.chance())]
        self.folder = Path(tempfile.mkdtemp(prefix="outlast-sim-", dir=_fast_folder()))
        self.workers: list[SimWorker] = []
        self.innocent: list[int] = []  # jobs that never fail by themselves
        self._kept: list[object] = []
        self._pids = 100
        self.number = 0

    def keep(self, thing: object) -> None:
        """Keep it from being collected: a killed process does not unwind."""
        self._kept.append(thing)

    def next_pid(self) -> int:
        self._pids += 1
        return self._pids

    async def open_store(self, clock: Any, lock: LockFile | None) -> Any:
        """Return a store as one process opens it."""
        store = SqliteStore(self.url, clock=clock, busy_timeout=5.0)
        store.lock = lock
        await store.open()
        self.keep(store)
        return FaultyStore(store, self.plan, self.witness)

    def stepped(self, runner: SimRunner, attempt: Any) -> None:
        owner = runner._owner
        self.witness.stepped(owner.name, attempt.job_id, attempt.token)

    def run(self) -> None:
        """Live through the seed."""
        global current
        current = self
        asyncio.set_event_loop(self.loop)
        self.url = f"sqlite:///{self.folder}/sim.db"
        self.loop.set_exception_handler(self._on_exception)
        unsubscribe = events.subscribe(self._on_event)
        try:
            with mock.patch("outlast.worker.worker.Heartbeat", SimHeartbeat):
                self.loop.run_until_complete(self._story())
        finally:
            unsubscribe()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _on_event(self, name: str, fields: dict[str, Any]) -> None:
        self.witness.note(f"[{PROCESS.get()}] {name}", fields)

    def _on_exception(self, _loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        where = "".join(traceback.format_exception(error)[-4:]) if error else ""
        self.witness.wrong("no stray exception", f"{context.get('message')} {where}")

    async def _story(self) -> None:
        store = SqliteStore(self.url)
        await store.open()
        self.witness = Witness(f"{self.folder}/sim.db", lambda: self.loop.now, memory=self._memory)
        self.client = await self.open_store(HostClock(self, 0), None)
        for _ in range(2 + int(2 * self.chance())):
            self.add_worker()
        self.plan.on = self.faults
        async with asyncio.TaskGroup() as group:
            enqueuing = group.create_task(self._enqueue())
            if self.faults:
                from tests.sim.nemesis import torment

                group.create_task(torment(self, enqueuing))
        self.plan.on = False
        await self._quiet()
        for worker in self.alive():
            worker.drain()
        await asyncio.sleep(30)
        verified = await verify(store.inspector)
        for finding in verified.violations:
            self.witness.wrong("history", f"job {finding.job_id}: {finding.sentence}")
        await store.close()
        self._innocents_are_uncharged()
        if not self.faults:
            self._nothing_was_reclaimed()
        self.witness.close()

    def _nothing_was_reclaimed(self) -> None:
        for name in ("worker_reaped", "lease_lost", "job_reenqueued", "claim_reconciled"):
            if self.witness.happened(name):
                self.witness.wrong("no false reclaim", f"{name} in a world without faults")

    def _innocents_are_uncharged(self) -> None:
        for job_id in self.innocent:
            if failures := self.witness.failures_of(job_id):
                self.witness.wrong(
                    "blame", f"job {job_id} never fails, and has {failures} failures"
                )

    def add_worker(self) -> None:
        """Start one more worker."""
        self.number += 1
        worker = SimWorker(self, self.number)
        self.workers.append(worker)
        worker.start()

    def alive(self) -> list[SimWorker]:
        """Return the workers whose process lives."""
        return [each for each in self.workers if not each.ended]

    async def _enqueue(self) -> None:
        for index in range(15 + int(25 * self.chance())):
            await asyncio.sleep(1.5 * self.chance() ** 2)
            await self._enqueue_one(_drawn(self.chance, index, poisons=self.faults))

    async def _enqueue_one(self, new: NewJob) -> None:
        """Enqueue until it is told to be done: the key makes repeats harmless."""
        while True:
            try:
                (made,) = await self.client.enqueue([new])
            except StoreError:
                await asyncio.sleep(0.3)
                continue
            self.witness.accepted.add(made.job_id)
            if '"ending": "complete"' in new.args:
                self.innocent.append(made.job_id)
            for worker in self.alive():
                if self.chance() < 0.7:
                    self.loop.call_later(
                        0.5 * self.chance() ** 4, worker.wake, new.queue,
                        context=_context_of(worker),
                    )  # fmt: skip
            return

    async def _quiet(self) -> None:
        """No more faults: everything has to come to its end."""
        for worker in self.alive():
            worker.set_stopped(False, tree=True)
        self.wall_step = self.wall_step_max  # what was due once is due again
        while len(self.alive()) < 2:
            self.add_worker()
        end = self.loop.now + QUIET_SECONDS_MAX
        while unfinished := self.witness.unfinished():
            if self.loop.now > end:
                self.witness.wrong("everything ends", f"still there: {unfinished}")
                return
            await asyncio.sleep(1.0)
        self.quiet_took = QUIET_SECONDS_MAX - (end - self.loop.now)


def _context_of(worker: SimWorker) -> Context:
    context = copy_context()
    context.run(PROCESS.set, worker.process)
    return context


def _drawn(chance: Any, index: int, *, poisons: bool) -> NewJob:
    policy = Policy(retries=4, max_losses=40, backoff_first=0.2, backoff_max=2.0)
    dice = chance()
    if poisons and dice < 0.05:
        return NewJob(task="poison", key=f"k{index}", policy=policy)
    if dice < 0.12:
        limited = Policy(retries=1, max_losses=40, backoff_first=0.2, backoff_max=2.0, timeout=6.0)
        args = {"seconds": 10.0 * chance()}
        return NewJob(task="stubborn", args=json.dumps(args), key=f"k{index}", policy=limited)
    endings = ["complete", "complete", "error", "snooze", "retry", "crash" if poisons else "retry"]
    args = {
        "steps": 1 + int(6 * chance()),
        "pause": 2.0 * chance() ** 2,
        "ending": endings[int(len(endings) * chance())],
        "saves": chance() < 0.5,
    }
    return NewJob(
        task="work", args=json.dumps(args), key=f"k{index}", policy=policy,
        delay=3.0 * chance() if chance() < 0.2 else 0.0,
    )  # fmt: skip


current: World  # the one that runs now


def _fast_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def total(counters: list[Counter[str]]) -> Counter[str]:
    """Return the sum of counters."""
    whole: Counter[str] = Counter()
    for counter in counters:
        whole.update(counter)
    return whole
