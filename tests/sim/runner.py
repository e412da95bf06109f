"""A runner as a simulated process: the production code of a runner on a socket that is a queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from outlast.runner.channel import Channel
from outlast.runner.main import Runner
from outlast.runner.protocol import TO_RUNNER, TO_WORKER, RunnerSettings, Unpacker, pack
from outlast.worker.runners.process import Death, RunnerOwner, RunnerProcess
from tests.sim.loop import PROCESS, Process, SimLoop
from tests.sim.tasks import RUNNER, app

SETTINGS = RunnerSettings(
    app="tests.sim.tasks:app", stacks=-1, concurrency=4, store_id="simulated",
    url=app.url, lock=None,
)  # fmt: skip


class SimChannel(Channel):
    """The runner's end of the socket: the production code above a queue instead of a socket."""

    def __init__(self, to_worker: Callable[[Any], None]) -> None:
        nothing: Any = None
        super().__init__(nothing)
        self._to_worker = to_worker

    def start(self, on_frame: Callable[[Any], None]) -> None:
        """Take frames from now on."""
        self._on_frame = on_frame

    def send(self, frame: Any) -> None:
        """Send a frame to the worker."""
        self._to_worker(frame)

    def took(self, frame: Any) -> None:
        """Take a frame of the worker's."""
        self._handle(frame)


class SimRunner(RunnerProcess):
    """What the pool sees of a runner; its process can be stopped and killed."""

    def __init__(self, owner: Any, pool: RunnerOwner) -> None:
        super().__init__(SETTINGS, pool, clock=owner.clock, output=lambda *_: None)
        self.owner = owner
        self._world = owner.world
        self._to_worker = Unpacker(TO_WORKER)
        self._to_runner = Unpacker(TO_RUNNER)
        self.pid = self._world.next_pid()
        self.process = self.reader = Process(f"runner {self.pid}")
        if self._world.loops_block:  # the thread that reads goes on where the event loop stands
            self.reader = Process(f"reader of runner {self.pid}")
            self.reader.loop = self.process
        self.dead = False

    @property
    def loop(self) -> SimLoop:
        """The one loop."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        return loop

    async def start(self) -> None:
        self.owner.runners.append(self)
        self._worker_context = copy_context()
        context = copy_context()
        context.run(PROCESS.set, self.process)
        context.run(RUNNER.set, self)
        self._context = context.copy()
        self._context.run(PROCESS.set, self.reader)
        self._channel = SimChannel(self._tell_worker)
        self._world.keep(self.loop.create_task(self._live(), context=context))

    async def _live(self) -> None:
        await asyncio.sleep(0.05 + 0.4 * self._world.chance())
        code = self._world.app_of(self.owner)
        await Runner(code, SETTINGS, self._channel, self.owner.clock).run()
        self.die(exit_code=0, signal=None)

    @property
    def processes(self) -> set[Process]:
        """Its threads, each of which can stand still."""
        return {self.process, self.reader}

    # -- as the pool uses it -------------------------------------------------------------------

    @property
    def gone(self) -> bool:
        return self.dead

    def send(self, frame: Any) -> None:
        if self.dead or self._dies_at_a_frame():
            return
        for copy in self._to_runner.feed(pack(frame)):
            self.loop.call_soon(self._channel.took, copy, context=self._context)

    def _tell_worker(self, frame: Any) -> None:
        if self.dead:
            return
        for copy in self._to_worker.feed(pack(frame)):
            self.loop.call_soon(self._owner.take_frames, self, [copy], context=self._worker_context)
        self._dies_at_a_frame()

    def _dies_at_a_frame(self) -> bool:
        if self._world.plan.crashes():
            self._world.plan.seen["runner killed at a frame"] += 1
            self.killed_from_outside()
        return self.dead

    def kill(self, reason: str | None = None) -> None:
        if not self.dead:
            self.note_kill_reason(reason)
            self.die(exit_code=None, signal="SIGKILL")

    def ask_stacks(self) -> None:
        """Do nothing: simulated runners have no stacks."""

    def stacks(self) -> str:
        return ""

    # -- as the tasks and the nemesis use it ------------------------------------------------------

    def die(self, *, exit_code: int | None, signal: str | None) -> None:
        """Be gone at once; the worker hears of it a moment later, if it lives."""
        if self.dead:
            return
        self.dead = True
        for process in self.processes:
            self.loop.kill(process)
        death = Death(
            pid=self.pid, exit_code=exit_code, signal=signal, rss_peak_bytes=1, cpu_seconds=0.0,
            stacks="", output=[],
        )  # fmt: skip
        self.loop.call_later(
            0.001 + 0.05 * self._world.chance(),
            self._owner.take_death, self, death,
            context=self._worker_context,
        )  # fmt: skip
        self.owner.runner_died(self)

    def killed_from_outside(self) -> None:
        """Die of kill -9; charged if it was alone, though it did nothing: that is the rule."""
        self._world.witness.killed_from_outside |= self.tokens
        self.die(exit_code=None, signal="SIGKILL")

    async def crash(self) -> None:
        """Die of a signal, from inside."""
        self._world.plan.seen["runner crashed by its task"] += 1
        self.die(exit_code=None, signal="SIGSEGV")
        await asyncio.get_running_loop().create_future()  # never: this process is dead

    async def take_its_worker_down(self) -> None:
        """Kill the worker, and all that it has started, while there are faults."""
        if not self._world.plan.on:
            return
        self._world.plan.seen["worker killed by a task"] += 1
        self.owner.kill_tree()
        self._world.replace()
        await asyncio.get_running_loop().create_future()  # never: this process is dead

    def step(self, attempt: Any) -> None:
        """User code takes a step."""
        self._world.stepped(self, attempt)
