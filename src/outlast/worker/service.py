"""Runs the duties of a worker, each in a loop.

Waiting, waking, errors and the end of a duty are handled only here; tests and simulations call
``run_once`` and need no loop.

A worker whose beats go through looks healthy, even if all else fails. So the heartbeat writes a
duty that has failed for a while to the worker's row. And a worker that can neither hand in nor take
jobs, while the store answers, exits, so that supervisors and people notice. If calls only break off
(an outage, a lock, a full server), it stays: exiting would cost it its attempts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from outlast.base.clock import Clock
from outlast.base.text import line
from outlast.base.throttle import Throttle
from outlast.errors import StoreError, StoreUnavailable, describe
from outlast.events import emit

BACKOFF_FIRST, BACKOFF_MAX = 0.1, 2.0  # seconds between tries while a duty fails
TOLD_MAX = 5  # errors of one outage that are reported at first occurrence
CALM_SECONDS = 10.0  # without a failure: the next one is of another outage
FAILING_SECONDS = 5.0  # of failure before the row reports a duty
GIVE_UP_SECONDS = 300.0  # of failure of the vital duty while beats go through
ERROR_MAX = 300  # characters
VITAL = "exchange"


class Duty(Protocol):
    """One thing that a worker does repeatedly."""

    name: str
    nudge: Nudge  # lets it run before its time

    async def run_once(self) -> float | None:
        """Run once; return the seconds until the next run (None: only when nudged). 0: at once,
        before anything else gets a turn, so the duty has to await something itself."""
        ...


class Nudge:
    """Lets one duty run before its time. From the loop's own thread only."""

    def __init__(self) -> None:
        self.is_given = False
        self._waiter: asyncio.Future[None] | None = None  # the wait between two runs
        self._timer: asyncio.Handle | None = None
        self._wakes_at = 0.0  # when the timer ends; uvloop's own does not always say

    def give(self) -> None:
        """Let the next run start now."""
        self.is_given = True
        self._wake()

    def give_within(self, seconds: float) -> None:
        """Let the next run start within this time; 0: now. Without effect during a run, which
        returns the pause after it."""
        if self._waiter is None or self._waiter.done():
            return
        if seconds <= 0:
            self._wake()
            return
        at = asyncio.get_running_loop().time() + seconds
        if self._timer is not None:
            if self._wakes_at <= at:
                return
            self._timer.cancel()
        self._wake_at(at)

    def take(self) -> None:
        """Begin the requested run: nudges from now on are for the next one."""
        self.is_given = False

    def wait(self, seconds: float | None) -> asyncio.Future[None]:
        """Return a future that is done at a nudge, and after ``seconds`` at the latest, in fewer
        steps than an event under a timeout: each is expensive once a duty has left the caches."""
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        if self.is_given:
            self._waiter.set_result(None)
        elif seconds is not None:
            self._wake_at(loop.time() + seconds)
        return self._waiter

    def _wake_at(self, at: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(at, self._wake)
        self._wakes_at = at

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Service:
    """Runs one duty until it is stopped; survives the duty's errors, with a growing pause."""

    def __init__(
        self,
        duty: Duty,
        clock: Clock,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.duty = duty
        self._nudge = duty.nudge
        self._on_failure = on_failure
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._told: set[str] = set()  # reported errors of this outage
        self._throttle = Throttle(clock)
        self._asked_at: float | None = None  # when the present run began
        self.failure: Failure | None = None  # the last one that is remembered: see ``find_failure``
        self._failed_at = self._recovered_at = clock.boot()
        self._worked = 0.0  # the longest time between two failures that are remembered as one

    @property
    def name(self) -> str:
        """The duty's name."""
        return self.duty.name

    def find_failure(self) -> Failure | None:
        """Return why the duty fails, and since when; None while it works. A duty that fails now and
        then works once it has done so for longer than between two failures."""
        now = self._clock.boot()
        if self.failure is None or self._failures:
            return self.failure
        if now - self._failed_at >= CALM_SECONDS:
            self.failure = None
        return self.failure if now - self._recovered_at <= self._worked else None

    def note_late(self, why: str) -> None:
        """Count the present run as a failure, for this reason, if it has lasted for long."""
        now = self._clock.boot()
        if why and not self._failures and now - (self._asked_at or now) >= FAILING_SECONDS:
            self._note_failure(StoreUnavailable(why))

    def start(self) -> None:
        """Begin, in the running loop; not at once, as some of a program's task factories would."""
        self._task = asyncio.Task(self._loop(), name=f"outlast-{self.duty.name}")
        self._task.add_done_callback(self._note_end)

    async def stop(self) -> None:
        """Cancel the duty. Safe to call twice."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            if task is self._task:
                self._on_failure(RuntimeError(f"the {self.duty.name} was cancelled"))
        elif (error := task.exception()) is not None:
            self._on_failure(error)

    async def _loop(self) -> None:
        while True:
            self._nudge.take()
            pause, back_off = None, 0.0
            self._asked_at = self._clock.boot()
            try:
                pause = await self.duty.run_once()
            except Exception as error:
                back_off = self._note_failure(error)
            self._asked_at = None
            if self._task is None:  # stopped, and no cancellation came out of the run
                return
            if back_off:  # a nudge does not shorten it
                await self._clock.sleep(back_off)
                continue
            if self._failures:
                self._failures, self._throttle = 0, Throttle(self._clock)
                self._recovered_at = self._clock.boot()
                self._told.clear()
                emit("store_recovered", duty=self.duty.name)
            if pause is None or pause > 0:
                await self._nudge.wait(pause)
            # otherwise run before everything that is ready by now: the duty itself awaits the store

    def _note_failure(self, error: Exception) -> float:
        """Report a failure; return the pause. An error is reported when it is new, else once a
        minute, with the number of tries since."""
        now = self._clock.boot()
        self.find_failure()  # forgets one of long ago
        before = self.failure
        if before is None:
            self._worked = 0.0
        elif not self._failures:
            self._worked = max(self._worked, now - self._recovered_at)
        if before is None or type(before.error) is not type(error):
            since = self._asked_at or now  # a run may have hung before it failed
            self.failure = Failure(error, since if before is None else before.since)
        self._failed_at = now
        self._failures += 1
        text = describe(error)
        if not isinstance(error, StoreError):
            emit("duty_failed", duty=self.duty.name, error=text)
        else:
            is_new = text not in self._told and len(self._told) < TOLD_MAX
            if count := self._throttle.count(is_new=is_new):
                emit("store_unavailable", duty=self.duty.name, error=text, count=count)
                self._told.add(text)
        return min(BACKOFF_MAX, BACKOFF_FIRST * 2.0 ** min(self._failures - 1, 10))


class Failure(NamedTuple):
    """The reason why a duty fails, and the boot time since which it fails."""

    error: Exception
    since: float


class Trouble(NamedTuple):
    """A failing duty: the error in one line, and the boot time since which it fails."""

    duty: str
    error: str
    since: float


class Condition:
    """Judges the duties of one worker at each answered beat. ``gap``: seconds without one after
    which the store was away. ``hide`` removes secrets from errors."""

    def __init__(self, clock: Clock, gap: float, hide: Callable[[str], str]) -> None:
        self._clock = clock
        self._gap = gap
        self._hide = hide
        self._beat_at = self._beats_since = clock.boot()
        self._answered_at: float | None = None  # since when the store refuses the vital duty

    def note_beat(self) -> None:
        """Note a beat that was answered."""
        now = self._clock.boot()
        if now - self._beat_at >= self._gap:
            self._beats_since = now
        self._beat_at = now

    def find_trouble(self, failures: Mapping[str, Failure | None]) -> Trouble | None:
        """Return the failing duty to report: the vital one, else that of the longest failure."""
        told = [
            (name, why)
            for name, why in failures.items()
            if why is not None and self._seconds_since(why.since) >= FAILING_SECONDS
        ]
        if not told:
            return None
        name, why = min(told, key=lambda each: (each[0] != VITAL, each[1].since))
        text = f"{type(why.error).__name__}: {why.error}"
        return Trouble(name, line(self._hide(text), ERROR_MAX), why.since)

    def find_end(self, failures: Mapping[str, Failure | None]) -> Failure | None:
        """Return the vital duty's failure, if the worker has to leave because of it. Time in which
        calls only broke off does not count, or one refusal after an outage would end the worker."""
        why = failures.get(VITAL)
        if why is None:
            self._answered_at = None
        if why is None or isinstance(why.error, StoreUnavailable):
            return None
        if self._answered_at is None:
            self._answered_at = self._clock.boot()
        lasts = self._seconds_since(max(self._answered_at, self._beats_since))
        return why if lasts >= GIVE_UP_SECONDS else None

    def _seconds_since(self, since: float) -> float:
        return self._clock.boot() - since
