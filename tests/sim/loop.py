"""An event loop without a clock and without chance: time jumps, and every run is the same.

Nothing ever waits. When no callback is ready, time jumps to the next timer. What production runs
on threads (SQLite) runs inline, in the loop's own thread.

Each callback belongs to the simulated *process* in whose context it was made. A process can be
stopped (its callbacks wait, as under SIGSTOP) or killed (they never run: nothing is unwound, no
``finally`` is reached, as under SIGKILL). Within a process callbacks keep their order; which
process goes next is drawn from the seed.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any

from outlast.clock import seeded

STEPS_MAX = 3_000_000  # of one run: a loop that never ends is a finding


class Process:
    """What can be stopped and killed. ``name`` is for people."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[asyncio.Handle] = deque()
        self.stopped = False
        self.killed = False

    def __repr__(self) -> str:
        return self.name


OUTSIDE = Process("outside")
PROCESS: ContextVar[Process] = ContextVar("process", default=OUTSIDE)


class Stuck(AssertionError):
    """Nothing is left that could ever run, or far too much of it."""


class SimLoop(asyncio.BaseEventLoop):
    """Runs callbacks of simulated processes in virtual time, in an order drawn from ``seed``."""

    _scheduled: list[Any]  # the base class's heap of timers

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = seeded(seed)
        self.now = 1_000.0
        self.steps = 0
        self._waiting: list[Process] = []

    def time(self) -> float:
        """Virtual seconds."""
        return self.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(
            callback, args, self, copy_context() if context is None else context
        )
        self._add(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there is only one thread

    def _add(self, handle: asyncio.Handle) -> None:
        process = handle._context.get(PROCESS, OUTSIDE)  # type: ignore[attr-defined]
        if not process.ready:
            self._waiting.append(process)
        process.ready.append(handle)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run it here and now: simulated threads take no time and never overlap."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except BaseException as error:
            future.set_exception(error)
        return future

    def _run_once(self) -> None:
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise Stuck(f"{STEPS_MAX} steps and no end")
        self._collect_due()
        runnable = [process for process in self._waiting if not process.stopped]
        if not runnable:
            self._jump()
            return
        process = runnable[int(self.chance() * len(runnable))]
        handle = process.ready.popleft()
        if not process.ready:
            self._waiting.remove(process)
        if not (process.killed or handle.cancelled()):
            handle._run()

    def _collect_due(self) -> None:
        while self._scheduled and self._scheduled[0].when() <= self.now:
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False
            if not timer.cancelled():
                self._add(timer)

    def _jump(self) -> None:
        while self._scheduled and self._scheduled[0].cancelled():
            heapq.heappop(self._scheduled)._scheduled = False
        if not self._scheduled:
            raise Stuck("nothing is left that could ever run")
        self.now = max(self.now, self._scheduled[0].when())

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing: cancelled timers are dropped when their time has come."""

    def _process_events(self, event_list: Any) -> None:
        """Nothing: there are no sockets."""

    def _write_to_self(self) -> None:
        """Nothing: there is no selector to wake."""

    def kill(self, process: Process) -> None:
        """Let none of the process's callbacks ever run again."""
        process.killed = True
        process.stopped = False
