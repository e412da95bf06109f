"""An event loop without a clock and without chance: time jumps, and every run is the same.

Nothing ever waits. When no callback is ready, time jumps to the next timer. What production runs
on threads (SQLite) runs in the loop's own thread, at once or, drawn from the seed, a moment later.

Each callback belongs to the simulated *process* in whose context it was made. A process can be
stopped (its callbacks wait, as under SIGSTOP), put to sleep with its host (its timers wait, too:
the loop's clock is CLOCK_MONOTONIC) or killed (they never run: nothing is unwound, no ``finally``
is reached, as under SIGKILL). Within a process callbacks keep their order; which process goes next
is drawn from the seed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from contextvars import Context, ContextVar, copy_context
from heapq import heapify, heappop, heappush
from typing import Any

from outlast.base.clock import seeded

STEPS_MAX = 3_000_000  # of one run: a loop that never ends is a finding


class Process:
    """What can be stopped and killed. ``name`` is for people; ``slept``: seconds, in all, that its
    host was suspended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[Call] = deque()
        self.stops = 0  # reasons for which it stands still
        self.killed = False
        self.slept = 0.0
        self.owner: Any = None  # the simulated worker whose main process it is
        self.loop = self  # where callbacks run that a thread of it hands over: not where it reads

    @property
    def stopped(self) -> bool:
        """Whether it stands still."""
        return self.stops > 0

    def __repr__(self) -> str:
        return self.name


OUTSIDE = Process("outside")
AROUND: ContextVar[Any] = ContextVar(
    "around", default=None
)  # looks before and after a thread's work
PROCESS: ContextVar[Process] = ContextVar("process", default=OUTSIDE)


class Stuck(AssertionError):
    """Nothing is left that could ever run, or far too much of it."""


class Call:
    """A callback that waits for its turn: what asyncio calls a handle."""

    __slots__ = ("args", "callback", "context", "dropped", "due", "process")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context, due: float
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.process = context.get(PROCESS, OUTSIDE)
        self.due = due
        self.dropped = False

    def cancel(self) -> None:
        """Never run it."""
        self.dropped = True

    def cancelled(self) -> bool:
        """Whether it never runs."""
        return self.dropped

    def when(self) -> float:
        """When it is due, on its process's own clock."""
        return self.due - self.process.slept


class SimLoop(asyncio.BaseEventLoop):
    """Runs callbacks of simulated processes in virtual time, in an order drawn from ``seed``.

    ``thread_delay`` returns for how many seconds a thread's work waits for its turn; 0: not at all.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = seeded(seed)
        self.now = 1_000.0
        self.steps = 0
        self.thread_delay: Callable[[], float] = lambda: 0.0
        self._waiting: list[Process] = []
        self._never: list[Call] = []  # of killed processes: what they hold is not released, either
        self._timers: list[tuple[float, int, Call]] = []
        self._made = 0

    def time(self) -> float:
        """Virtual seconds on the clock of the process that asks: it stands still in a suspend."""
        return self.now - PROCESS.get().slept

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Call:
        call = Call(callback, args, copy_context() if context is None else context, 0.0)
        process = call.process
        if not process.ready:
            self._waiting.append(process)
        process.ready.append(call)
        return call

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Call:
        """As ``call_soon``, in the event loop of the process whose thread this is."""
        if PROCESS.get().loop is not PROCESS.get():
            context = copy_context() if context is None else context.copy()
            context.run(PROCESS.set, PROCESS.get().loop)
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any,
        context: Context | None = None,
    ) -> Call:  # fmt: skip
        call = Call(callback, args, copy_context() if context is None else context, when)
        call.due = due = when + call.process.slept
        self._made += 1
        heappush(self._timers, (due, self._made, call))
        return call

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any,
        context: Context | None = None,
    ) -> Call:  # fmt: skip
        due = self.now + delay
        call = Call(callback, args, copy_context() if context is None else context, due)
        self._made += 1
        heappush(self._timers, (due, self._made, call))
        return call

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run it here, now or a little later: simulated threads never overlap."""
        future = self.create_future()
        around = AROUND.get()

        def run() -> None:
            try:
                if around is not None:
                    around.before()
                result = func(*args)
                if around is not None:
                    around.after(result)
            except BaseException as error:
                if not future.done():  # its caller may have given up
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        delay = self.thread_delay()
        if delay > 0:
            self.call_later(delay, run)
        else:
            run()
        return future

    def _run_once(self) -> None:
        """Take steps until the loop is stopped."""
        waiting, chance = self._waiting, self.chance
        while not self._stopping:  # type: ignore[attr-defined]
            self._wake_the_due()
            if len(waiting) == 1:
                process = waiting[0]
                runnable = not process.stops
            else:
                able = [process for process in waiting if not process.stops]
                runnable = bool(able)
                process = able[int(chance() * len(able))] if able else OUTSIDE
            if runnable:
                self._step(process)
            else:
                self._jump()

    def _wake_the_due(self) -> None:
        timers, now = self._timers, self.now
        while timers and timers[0][0] <= now:
            call = heappop(timers)[2]
            if call.dropped:
                continue
            process = call.process
            if not process.ready:
                self._waiting.append(process)
            process.ready.append(call)

    def _step(self, process: Process) -> None:
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise Stuck(f"{STEPS_MAX} steps and no end")
        call = process.ready.popleft()
        if not process.ready:
            self._waiting.remove(process)
        if process.killed:
            self._never.append(call)
            return
        if call.dropped:
            return
        try:
            call.context.run(call.callback, *call.args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            told = f"exception in {call.callback!r}"
            self.call_exception_handler({"message": told, "exception": error})

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2].dropped:
            heappop(timers)
        if not timers:
            raise Stuck("nothing is left that could ever run")
        self.now = max(self.now, timers[0][0])

    def _process_events(self, event_list: Any) -> None:
        """Nothing: there are no sockets."""

    def _write_to_self(self) -> None:
        """Nothing: there is no selector to wake."""

    def kill(self, process: Process) -> None:
        """Let none of the process's callbacks ever run again."""
        process.killed = True
        process.stops = 0

    def oversleep(self, processes: Collection[Process], seconds: float) -> None:
        """Let the clock of these processes stand still for so long: their timers are due later."""
        for process in processes:
            process.slept += seconds
        for at, (due, made, call) in enumerate(self._timers):
            if call.process in processes and not call.dropped:
                call.due = due + seconds
                self._timers[at] = (call.due, made, call)
        heapify(self._timers)
