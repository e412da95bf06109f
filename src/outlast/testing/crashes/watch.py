"""Let an attempt meet its fate at a point: killed, robbed of its lease, or asked to stop."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from outlast.base.clock import Clock
from outlast.base.sync import drive, loop_is_running
from outlast.client.app import App
from outlast.client.attempt import Attempt, StopReason
from outlast.errors import StoreUnavailable
from outlast.model.crash import Crash
from outlast.model.lifecycle import Outcome, Transition
from outlast.store.protocol import ForeignConnection, Store
from outlast.testing.app_under_test import reclaim_all
from outlast.testing.crashes.cases import Case, Fate, Point
from outlast.testing.crashes.recorder import Recorder, Trace, owner_of
from outlast.testing.faults import FaultWatch, WatchedAttempt

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
LEASE, CHECKPOINT = MISUSES = ("LostLease", "checkpoint")  # effects that a save may show
_ASKED = {Fate.DRAINED: StopReason.DRAIN, Fate.CANCELLED: StopReason.CANCEL}


class CrashWatch(FaultWatch):
    """The attempts of one run, and the case that one of them meets. ``die`` ends this process, a
    copy in which the attempt is to be killed."""

    def __init__(self, app: App, case: Case | None, recorder: Recorder, clock: Clock) -> None:
        super().__init__(None, clock)
        self.recorder = recorder
        self.die: Callable[[], NoReturn] | None = None
        self._app = app
        self._case = case
        self._numbering = threading.Lock()

    @property
    def trace(self) -> Trace:
        """What the run has done so far."""
        return self.recorder.trace

    @property
    def lost_lease(self) -> bool:
        """Whether the worker has lost its lease."""
        return self._case is not None and self._case.fate is Fate.LEASE_LOST

    @property
    def ignores_checkpoint(self) -> bool:
        """Whether an attempt was killed after a save, and no later one looked at it."""
        later = [each for each in self._attempts.values() if each.token > self.trace.hit_token]
        return self.trace.hit_saves > 0 and bool(later) and not any(each.looked for each in later)

    @contextmanager
    def ends(self, app: App) -> Iterator[None]:
        """Within the block, note the end of each attempt, and end the transactions that it leaves
        open, which would lock the store."""

        def note(_: Attempt, __: Outcome) -> None:
            self.recorder.release()
            self.recorder.attempt = None

        app._end_fns.append(note)  # noqa: SLF001
        try:
            yield
        finally:
            app._end_fns.remove(note)  # noqa: SLF001

    def describe(self) -> str:
        """Say where a run is, for one that does not end."""
        return f"{self._case or 'without a crash'}, after {len(self.trace.points)} points"

    def reach(self, attempt: CrashAttempt, kind: str, what: str, line: str) -> None:
        """Come to a point; meet the fate of the case there, if this is its point."""
        trace = self.trace
        with self._numbering:
            if attempt.job_id != trace.job_id or trace.happened:
                return
            number = len(trace.points) + 1
            trace.points.append(Point(number, kind, what, line))
            if self._case is None or self._case.point != number:
                return
            trace.happened = True
        self._meet(attempt, self._case.fate)

    def note_end(self, end: Transition) -> None:
        """Note how an attempt ended; deliver it twice now, if that is the case."""
        before = len(self._failures)
        super().note_end(end)
        trace = self.trace
        trace.failures += [crash for _, crash in self._failures[before:]]
        trace.went_on = trace.went_on or self._went_on
        attempt = self._attempts.get(end.token)
        is_twice = self._case is not None and self._case.fate is Fate.TWICE
        if is_twice and not trace.happened and attempt and attempt.job_id == trace.job_id:
            trace.happened = True
            self._hit(attempt)

    def _hit(self, attempt: WatchedAttempt) -> None:
        """Let this attempt be the one that was hit: its process ends, if it is killed."""
        self.trace.hit_token, self.trace.hit_saves = attempt.token, attempt._saves  # noqa: SLF001
        if self.die is not None:
            self.die()
        self.hit = attempt

    def _meet(self, attempt: CrashAttempt, fate: Fate) -> None:
        if fate in _ASKED:
            self._ask_to_stop(attempt, fate)
            return
        if fate is Fate.LEASE_LOST:
            if self.recorder.busy():
                self.trace.locked = True
                return
            self._outside(self._rob)
        self._hit(attempt)
        self._loop.call_soon_threadsafe(self._worker.plan.nudge.give)

    def _ask_to_stop(self, attempt: CrashAttempt, fate: Fate) -> None:
        if fate is Fate.CANCELLED and not self.recorder.busy():
            self._outside(lambda store: store.cancel([attempt.job_id]))

        async def ask() -> None:
            self._worker.pool.control.stop(attempt.token, _ASKED[fate])

        if loop_is_running():
            drive(ask())
        else:
            asyncio.run_coroutine_threadsafe(ask(), self._loop).result()

    async def _rob(self, store: Store) -> None:
        """Take the lease away and give the job back, as a worker does that finds this one gone."""
        await self.reap(store)
        await reclaim_all(store)

    def _outside(self, verb: Callable[[Store], Awaitable[Any]]) -> None:
        """Use the store while this thread waits: on the worker's loop, or else in another one."""

        async def use() -> None:
            try:
                await self._app.stores.ask(verb)
            except StoreUnavailable:  # an open transaction that we cannot see
                self.trace.locked = True

        if not loop_is_running():
            asyncio.run_coroutine_threadsafe(use(), self._loop).result()
            return
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, use()).result()


class CrashAttempt(WatchedAttempt):
    """An attempt whose saves, reports and steps are points of ``crash_watch`` and ``recorder``."""

    def __init__(self, watch: CrashWatch, *args: Any, **kwargs: Any) -> None:
        super().__init__(watch, *args, **kwargs)
        self.crash_watch = watch
        self.recorder = watch.recorder
        self.recorder.attempt = self

    @property
    def cancelled(self) -> bool:
        """As ``Attempt.cancelled``."""
        self.recorder.trace.may_stop = True
        return super().cancelled

    @property
    def stop_reason(self) -> StopReason | None:
        """As ``Attempt.stop_reason``."""
        self.recorder.trace.may_stop = True
        return super().stop_reason

    def report(
        self, fraction: float | None = None, message: str | None = None, *, stage: str | None = None
    ) -> None:
        """As ``Attempt.report``."""
        self.recorder.reach("report", "report")
        super().report(fraction, message, stage=stage)

    async def save(self, value: Any) -> None:
        """As ``Attempt.save``."""
        self.recorder.reach("save", "save", MISUSES)
        await super().save(value)

    def _begin_step(self, name: str, function: Callable[..., Any]) -> Any:
        self.recorder.reach("begin", f"begin step {name}")
        return super()._begin_step(name, function)

    def _encode_step(self, name: str, value: Any, returns: Any) -> tuple[Any, str]:
        self.recorder.reach("step", f"keep step {name}")
        return super()._encode_step(name, value, returns)

    async def _checked(self, connection: object, verb: str = "complete_in") -> ForeignConnection:
        if verb == "complete_in":
            self.recorder.reach("complete_in", "complete_in")
        return await super()._checked(connection, verb)


def last_line(failures: Sequence[Crash]) -> str:
    """Return the line of the user's code where the last attempt failed."""
    for crash in reversed(failures):
        found = _FRAME.findall(crash.traceback or "")
        if own := [each for each in found if owner_of(each[0]) == "user"]:
            path, line = own[-1]
            return f"{Path(path).name}:{line}"
    return ""
