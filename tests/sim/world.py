"""A world of hosts, workers and clients on one store, and what happens to them, from one seed.

Two phases. *Safety*: faults of a few kinds, while every verb and every step of user code is
watched. *Liveness*: no more faults; every accepted job must come to its end within a bound of
virtual time, and the history that is left must hold every rule of ``outlast verify``.

Two kinds of world. *One machine*: all workers and the store share a host, its wall clock and its
lock files, as with SQLite. *Several hosts* and a server: the store has a clock of its own, workers
have presence, a lock file proves nothing on another host, and beats go through the row, as with
PostgreSQL (whose SQL is not what runs here).
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

from harness.rounds import MOST, lowered_constants
from outlast import App, events
from outlast.base.clock import seeded
from outlast.errors import StoreError
from outlast.insight.verify import verify
from outlast.store.lockfile import LockFile
from outlast.store.sqlite import lanes
from outlast.store.sqlite.store import SqliteStore
from outlast.store.values import Cancelled, NewJob
from tests.sim.disk import Disk
from tests.sim.faults import Faults, FaultyServedStore, FaultyStore, Plan
from tests.sim.host import HEARTBEAT, LEASE, Host, SimHeartbeat, SimWorker, StoreClock
from tests.sim.loop import PROCESS, SimLoop
from tests.sim.nemesis import LEASES, SERVED, theme_of, torment
from tests.sim.presence import Database, ServedStore
from tests.sim.runner import SimRunner
from tests.sim.schedules import Timetable
from tests.sim.tasks import SEALED, app, brief, drawn, heavy, relapsing, steady
from tests.sim.wakeups import SimWakeup
from tests.sim.witness import LAST, Witness

TIME_OF_DAY = "CAST(:now * 1000000 AS INTEGER)"  # in the statement that draws tokens on SQLite
QUIET_SECONDS_MAX = 300.0  # virtual, from the last fault to the last end
HELD_SECONDS = 100.0  # virtual, for which rows stay held after the last other fault
RESCUE_SECONDS = 60.0  # virtual, by which all other dead workers' jobs are given back meanwhile
WORKERS_MAX = 4
WITHOUT_FAULTS = 10  # each tenth seed: then nothing may be reclaimed
ON_A_FILE = 10  # each tenth seed, another one
SEALED_OF = 3  # seeds in a row are encrypted or not: themes go round by another number

Laws = Mapping[str, str | Callable[[], Sequence[Any]]]


class World:
    """Everything of one seed. ``run`` raises nothing: look at ``witness.violations``.
    ``loops_block``: event loops of runners may stand while the threads that read go on. ``laws`` of
    this kind of world, each with the SQL or the function that finds what breaks it."""

    loops_block = False
    laws: Laws = {}

    def __init__(self, seed: int, *, memory: int | None = LAST) -> None:
        self.seed = seed
        self._memory = memory
        self.faulty = seed % WITHOUT_FAULTS != 0
        self.most = 0  # rows that fill a round; 0: as in production
        self.sealed = seed // SEALED_OF % 2 == 1  # in every second world, of each theme
        self.copies: list[tuple[sqlite3.Connection, int | None]] = []
        self.loop = SimLoop(seed)
        self.chance = seeded(seed * 7919 + 1)
        self.theme = self._draw_theme()
        self.heartbeat = HEARTBEAT
        self.plan = Plan(self.chance, self.theme)
        self.plan.on = False
        self.faults = Faults(self)
        self.loop.thread_delay = self.plan.thread_delay
        self.lease = LEASES.get(self.theme or "", LEASE)
        self.folder = Path(tempfile.mkdtemp(prefix="outlast-sim-", dir=_fast_folder()))
        self.locks = self.folder / "run"
        self.disk = Disk(
            self.folder, seeded(seed * 7919 + 2), file=seed % ON_A_FILE == ON_A_FILE // 2
        )
        self.workers: list[SimWorker] = []
        self.listeners: list[SimWakeup] = []
        self.quiet_took = 0.0
        self.timetable = Timetable(self) if self.theme == "schedules" else None
        self._kept: list[object] = []
        self._pids = 100
        self._number = 0
        self._make_hosts()

    def _draw_theme(self) -> str | None:
        return theme_of(self.seed)

    def _make_hosts(self) -> None:
        server = self.chance() < 0.5 or self.theme in SERVED
        self.hosts = [
            Host(self, number)
            for number in range(1, (4 if self.chance() < 0.5 else 3) if server else 2)
        ]
        self.store_host = Host(self, 0) if server else self.hosts[0]
        self.store_clock = StoreClock(self, self.store_host)
        self.database = Database(self) if server else None
        self.lock_share = [0.0, 0.5, 1.0][int(3 * self.chance())]
        self.presence_share = [0.5, 1.0][int(2 * self.chance())]
        leaves_wills = self.theme in {"last wills", None} and server
        self.wills = seeded(self.seed * 6007 + 5) if leaves_wills else None
        if self.theme == "last wills":
            self.lock_share = 1.0

    def keep(self, thing: object) -> None:
        """Keep it from garbage collection: a killed process does not unwind."""
        self._kept.append(thing)

    def next_pid(self) -> int:
        """Return a pid that was never used."""
        self._pids += 1
        return self._pids

    async def open_store(self, host: Host, lock: LockFile | None) -> Any:
        """Return a store as one process opens it; beats go to ``lock`` on one machine."""
        store: Any = SqliteStore(self.url, clock=self.store_clock, busy_timeout=5.0)
        store.lock = lock if self.database is None else None
        await store.open()
        self.keep(store)
        if self.database is not None:
            return FaultyServedStore(ServedStore(store, self.database), self.faults)
        return FaultyStore(store, self.faults)

    def app_of(self, owner: SimWorker) -> App:
        """Return the application that a worker's runners have."""
        return SEALED if self.sealed else app

    def stepped(self, runner: SimRunner, attempt: Any) -> None:
        """User code has taken a step."""
        self.witness.stepped(runner.owner.name, attempt.job_id, attempt.token)

    def run(self) -> None:
        """Play the seed."""
        global current
        current = self
        asyncio.set_event_loop(self.loop)
        self.url = f"sqlite:///{self.folder}/sim.db"
        self.loop.set_exception_handler(self._on_exception)
        unsubscribe = events.subscribe(self._on_event)
        try:
            with ExitStack() as stack:
                for patch in self._stand_ins():
                    stack.enter_context(patch)
                self.loop.run_until_complete(self._story())
        except RuntimeError:  # the witness has seen enough, and has stopped the loop
            if not self.witness.violations:
                raise
        finally:
            unsubscribe()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _stand_ins(self) -> Iterator[Any]:
        """Yield the patches that replace threads, files of the machine, and its names."""
        yield mock.patch("outlast.worker.worker.Heartbeat", SimHeartbeat)
        yield mock.patch("outlast.store.sqlite.connection._connected", self.disk.connected)
        yield mock.patch("outlast.store.sqlite.connection.OneThread.submit", _run_later)
        yield mock.patch("outlast.store.lockfile.boot_id", _boot_id)
        yield mock.patch("outlast.store.lockfile.refuses", _fine)
        yield mock.patch("outlast.store.sqlite.readable.refuses", _fine)
        yield mock.patch("outlast.worker.assemble.find_cgroup", _no_cgroup)
        state = mock.Mock(restore=lambda *, signals: [], is_spoiled=False)  # one process has all
        yield mock.patch("outlast.runner.main.ProcessState", return_value=state)
        ticks = mock.Mock(take=list)  # real ones come by a thread, whose time is not the world's
        yield mock.patch("outlast.runner.main.Ticks", return_value=ticks)
        if self.database is not None:  # the time of day is in their jump, not in each of them
            plain = lanes._DRAW_TOKENS.replace(TIME_OF_DAY, "0")
            yield mock.patch.object(lanes, "_DRAW_TOKENS", plain)
        yield from lowered_constants(MOST or self.most)
        if self.seed % 2:  # simulated attempts are too slow for a stock in their runner
            yield mock.patch("outlast.worker.runners.assignment.STOCK_SECONDS", 5.0)
            yield mock.patch("outlast.worker.runners.assignment.QUICK_SECONDS", 5.0)

    def _on_event(self, name: str, fields: dict[str, Any]) -> None:
        self.witness.note(f"[{PROCESS.get()}] {name}", fields)
        self.witness.told(name, fields)

    def _on_exception(self, _loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        where = "".join(traceback.format_exception(error)[-4:]) if error else ""
        self.witness.wrong("no stray exception", f"{context.get('message')} {where}")

    # -- the story ----------------------------------------------------------------------------

    async def _story(self) -> None:
        self.witness = Witness(self, memory=self._memory)
        store = SqliteStore(self.url)
        await store.open()
        self.client = await self.open_store(self.store_host, None)
        for _ in range(3 if self.theme or self.chance() < 0.25 else 2):
            self.add_worker()
        self.plan.on = self.faulty
        async with asyncio.TaskGroup() as group:
            enqueuing = group.create_task(self._enqueue())
            if self.timetable is not None:
                group.create_task(self.timetable.put())
            if self.faulty:
                group.create_task(torment(self, enqueuing))
        await self._quiet()
        if self.timetable is not None:
            await self.timetable.settle()
        await self._end()
        verified = await verify(store.inspector)
        for finding in verified.violations:
            self.witness.wrong("history", f"job {finding.job_id}: {finding.sentence}")
        await store.close()
        self.witness.judge_the_whole()

    async def _quiet(self) -> None:
        """No more faults: every job has to end."""
        self.plan.stop()
        self.disk.free_space()
        for worker in self.alive():
            worker.cut_until, worker.beats_stuck_until, worker.link_dies = 0.0, 0.0, False
        self.store_host.wall_step = self.store_host.wall_step_max  # what was due once is due again
        held = self._hold_rows_on()
        while len(self.alive()) < 2:
            self.add_worker()
        began = self.loop.now
        if held:
            await asyncio.sleep(RESCUE_SECONDS)
            self.witness.judge_the_rescue(held)
        while unfinished := self.witness.unfinished():
            if self.loop.now > began + QUIET_SECONDS_MAX:
                self.witness.wrong("everything ends", f"still there: {unfinished}")
                return
            await asyncio.sleep(1.0)
        self.quiet_took = self.loop.now - began

    def _hold_rows_on(self) -> set[str]:
        """Keep locked rows locked, well beyond a lease; return their workers."""
        held = [each for each in self.workers if each.row_held_until > self.loop.now]
        for worker in held:
            worker.row_held_until = self.loop.now + HELD_SECONDS
        return {worker.name for worker in held}

    async def _end(self) -> None:
        for worker in self.alive():
            worker.drain()
        for _ in range(60):
            if self.alive():
                await asyncio.sleep(0.5)

    # -- workers ----------------------------------------------------------------------------

    def add_worker(self) -> None:
        """Start one more worker, unless there are many."""
        if len(self.alive()) >= WORKERS_MAX:
            return
        self._number += 1
        worker = SimWorker(self, self._number, self.hosts[self._number % len(self.hosts)])
        self.workers.append(worker)
        worker.start()

    def replace(self) -> None:
        """Start a worker in place of one that has gone, soon."""
        self.loop.call_later(0.1 + 5.0 * self.chance(), self.add_worker)

    def replace_one(self, spare: SimWorker | None = None) -> SimWorker | None:
        """Kill a worker, but not that one, and start another at once; return it, if any."""
        there = [each for each in self.alive() if each is not spare]
        if not there:
            return None
        there[int(self.chance() * len(there))].kill_tree()
        self.add_worker()
        return self.workers[-1]

    def alive(self) -> list[SimWorker]:
        """Return the workers whose process lives."""
        return [each for each in self.workers if not each.ended]

    def owner_of(self, worker_id: int) -> SimWorker | None:
        """Return the living worker that believes to have this registration."""
        alive = (each for each in self.alive() if each.worker is not None)
        return next((each for each in alive if each.worker.me.worker_id == worker_id), None)  # type: ignore[union-attr]

    # -- clients ------------------------------------------------------------------------------

    async def _enqueue(self) -> None:
        # jobs are enqueued for as long as there are faults
        pause = {"beats": 6.0, "long pauses": 12.0, "slow links": 0.1}.get(self.theme or "", 1.5)
        most = 20 if self.theme == "slow links" else int(20 * self.chance() ** 2)
        for index in range(4 + most):
            await asyncio.sleep(pause * self.chance() ** 2)
            await self._enqueue_one(self._some_job(index))

    def _some_job(self, index: int) -> NewJob:
        if self.theme == "long pauses" and self.chance() < 0.8:
            return brief(self.chance, index)
        if self.theme == "slow links" and self.chance() < 0.8:
            return heavy(self.chance, index)
        if self.theme == "stalls" and self.chance() < 0.8:
            return steady(self.chance, index)
        if self.theme == "relapses" and self.chance() < 0.8:
            return relapsing(self.chance, index)
        return drawn(self.chance, index, poisons=self.faulty, themed=self.theme is not None)

    async def _enqueue_one(self, new: NewJob) -> None:
        """Enqueue until the store has accepted it: the key makes repeats harmless."""
        while True:
            asked_at = self.loop.now
            try:
                (made,) = await self.client.enqueue([new])
            except StoreError:
                await asyncio.sleep(0.3)
                continue
            if self.witness.went_back_at >= asked_at:  # what has answered may be lost by now
                continue
            self.witness.accept(made.job_id)
            self.tell(f"queue:{new.queue}")
            return

    async def cancel(self, job_id: int) -> None:
        """Cancel a job, as an operator would; once."""
        try:
            answers = await self.client.cancel([job_id])
        except StoreError:
            return
        if answers.get(job_id) is Cancelled.REQUESTED:
            self.tell(f"cancel:{self.witness.worker_of(job_id)}")

    async def requeue(self, job_id: int) -> None:
        """Requeue a job, as an operator would; once."""
        try:
            await self.client.requeue([job_id])
        except StoreError:
            return
        self.tell("queue:default")

    def tell(self, payload: str) -> None:
        """Notify all who listen."""
        for listener in list(self.listeners):
            listener.send(payload)


def _boot_id() -> str:
    owner = PROCESS.get().owner
    return "of no host" if owner is None else str(owner.host.boot_id)


def _fine(path: Path) -> None:
    """Accept every file system."""


def _no_cgroup() -> None:
    """The machine's memory is not simulated."""


def _run_later(_thread: object, job: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
    """Give a store's work to the loop, which says when it runs."""
    return asyncio.get_running_loop().run_in_executor(None, job, *args)


current: World  # the one that runs now


def _fast_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
