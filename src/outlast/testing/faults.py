"""Make a fault happen in a drain, watch the attempts that it hits, and judge their task by it.

A crash takes effect when a checkpoint has been stored. The attempt's next request to its worker
raises ``Killed``, a BaseException, so that its coroutine or thread ends and releases locks and
connections, as the death of a process does. Its ``finally`` blocks do run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any

import msgspec

from outlast.base.clock import Clock
from outlast.base.sync import loop_is_running
from outlast.client.attempt import Attempt
from outlast.errors import LostLease, StoreUnavailable
from outlast.model.crash import Crash
from outlast.model.lease import DeathCause
from outlast.model.lifecycle import OutcomeKind, Transition
from outlast.store.protocol import ForeignConnection, Store
from outlast.worker.maintenance.reaper import Reaper
from outlast.worker.worker import Worker

REAP_TRIES = 100
REAP_PAUSE_SECONDS = 0.02
FAILURES_SHOWN = 3
_COMPLETIONS = {OutcomeKind.COMPLETED.value, "completion_not_committed"}


class Killed(BaseException):
    """The worker of this attempt was killed by the test. Do not catch it."""


class FaultKind(StrEnum):
    """A kind of fault."""

    CRASH_AFTER_SAVE = "crash_after_save"
    LOSE_LEASE = "lose_lease"
    DELIVER_TWICE = "deliver_twice"


class Fault(msgspec.Struct, frozen=True):
    """A fault to happen once: at the ``at``-th checkpoint of an attempt, of this task or of any."""

    kind: FaultKind
    at: int = 0
    task: str | None = None

    def __str__(self) -> str:
        return f"{self.kind}({self.at or ''})"


class FaultWatch:
    """The attempts of one drain, and the fault that hits one of them: ``hit``."""

    def __init__(self, fault: Fault | None, clock: Clock) -> None:
        self.fault = fault
        self.hit: WatchedAttempt | None = None
        self.clock = clock
        self._attempts: dict[int, WatchedAttempt] = {}
        self._failures: list[tuple[WatchedAttempt | None, Crash]] = []
        self._seen: set[int] = set()
        self._most_saves = 0
        self._went_on = False  # after its lease was lost
        self._killed = False

    def begin(self, worker: Worker, store: Store) -> None:
        """Watch the attempts of this worker from now on, in the running loop."""
        self._worker = worker
        self.store = store
        self._loop = asyncio.get_running_loop()
        self._noticed = asyncio.Event()
        self._before = self.hit

    @property
    def count(self) -> int:
        """How many attempts have begun."""
        return len(self._attempts)

    @property
    def is_cut_off(self) -> bool:
        """Whether the current worker has been killed, or has lost its lease."""
        return self.hit is not self._before

    @property
    def lost_lease(self) -> bool:
        """Whether the current worker has lost its lease."""
        return self.fault is not None and self.fault.kind is FaultKind.LOSE_LEASE

    def let_end(self) -> None:
        """Let the attempt that was hit end: its reports will not be handed in."""
        self._killed = not self.lost_lease
        self._noticed.set()

    def add(self, attempt: WatchedAttempt) -> None:
        """Note that an attempt begins."""
        self._attempts[attempt.token] = attempt

    # -- what attempts do ----------------------------------------------------------------------

    def check_alive(self, attempt: WatchedAttempt) -> None:
        """Raise Killed in an attempt whose worker was killed."""
        if attempt is self.hit and self._killed:
            raise Killed("the test has killed this attempt's worker")

    def check_write(self, attempt: WatchedAttempt) -> None:
        """Do the same, and note an attempt that writes after it got LostLease."""
        self.check_alive(attempt)
        self._went_on = self._went_on or attempt.refused

    async def before_save(self, attempt: WatchedAttempt, number: int) -> None:
        """Lose the lease now, if that is due: the checkpoint will be refused."""
        self.check_write(attempt)
        if self._is_due(FaultKind.LOSE_LEASE, attempt, number):
            await self._in_loop(self._lose_lease())

    async def after_save(self, attempt: WatchedAttempt, number: int) -> None:
        """Kill the worker now, if that is due: the checkpoint is stored."""
        if self._is_due(FaultKind.CRASH_AFTER_SAVE, attempt, number):
            self._loop.call_soon_threadsafe(self._worker.plan.nudge.give)
            await self._in_loop(self._noticed.wait())
            self.check_alive(attempt)

    def note_end(self, end: Transition) -> None:
        """Note how an attempt ended, before that is stored."""
        attempt = self._attempts.get(end.token)
        if end.token in self._seen:
            return
        self._seen.add(end.token)
        if attempt is not None and attempt is self.hit:
            return
        if end.crash is not None and end.outcome not in _COMPLETIONS:
            self._failures.append((attempt, end.crash))
        if attempt is not None and end.outcome in _COMPLETIONS:
            self._is_due(FaultKind.DELIVER_TWICE, attempt, 0)

    def _is_due(self, kind: FaultKind, attempt: WatchedAttempt, number: int) -> bool:
        fault = self.fault
        if fault is None or fault.kind is not kind or fault.task not in {None, attempt.task}:
            return False
        self._most_saves = max(self._most_saves, number)
        if self.hit is not None or number < fault.at:
            return False
        self.hit = attempt
        return True

    async def _in_loop(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Await a coroutine on the worker's loop, from there or from a plain function's thread."""
        if loop_is_running():
            await coroutine
        else:
            asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _lose_lease(self) -> None:
        """Reap this worker and reclaim its jobs, as another worker does that believes it dead."""
        for tries_left in reversed(range(REAP_TRIES)):
            try:
                await self.reap(self.store)
                break
            except StoreUnavailable:  # an exchange holds the row
                if not tries_left:
                    raise
                await self.clock.sleep(REAP_PAUSE_SECONDS)
        await Reaper(self._worker, self.store, clock=self.clock).run_once()
        self._worker.plan.nudge.give()

    async def reap(self, store: Store) -> None:
        """Take this worker's lease away."""
        for seen in (await store.observe()).workers:
            if seen.worker_id == self._worker.me.worker_id:
                await store.reap(seen, DeathCause.SILENCE)

    # -- what it shows -------------------------------------------------------------------------

    def find_fault(self, *, may_fail: bool) -> str | None:
        """Return why the test should fail: a failed attempt, a fault that did not happen, or a
        mistake of the task that it revealed."""
        if self._failures and not may_fail:
            return self._describe_failures()
        fault, hit = self.fault, self.hit
        if fault is None:
            return None
        if hit is None:
            return self._describe_missed(fault)
        if fault.kind is FaultKind.LOSE_LEASE and self._went_on:
            return f"{hit.task} went on after LostLease: it wrote again; let LostLease pass"
        later = [each for each in self._attempts.values() if each.job_id == hit.job_id]
        later = [each for each in later if each.token > hit.token]
        if fault.kind is FaultKind.CRASH_AFTER_SAVE and later and not any(x.looked for x in later):
            return (
                f"{hit.task} does not resume: it had saved a checkpoint, and its next attempt never"
                " looked at attempt.checkpoint"
            )
        return None

    def _describe_missed(self, fault: Fault) -> str:
        whose = "no attempt" if fault.task is None else f"no attempt of {fault.task}"
        if fault.kind is FaultKind.DELIVER_TWICE:
            return f"{fault} did not happen: {whose} completed"
        most = f"; the most were {self._most_saves}" if self._most_saves else ""
        return f"{fault} did not happen: {whose} saved {fault.at} checkpoints{most}"

    def _describe_failures(self) -> str:
        shown = [_describe(*each) for each in self._failures[:FAILURES_SHOWN]]
        if len(self._failures) > len(shown):
            shown.append(f"and {len(self._failures) - len(shown)} more")
        return "\n".join([*shown, "(where a task may fail: drain(may_fail=True))"])


def _describe(attempt: WatchedAttempt | None, crash: Crash) -> str:
    whose = "an attempt" if attempt is None else f"{attempt.task} (job {attempt.job_id})"
    return f"{whose} failed: {crash.message or crash.kind}\n{crash.traceback or ''}".rstrip()


class WatchedAttempt(Attempt):
    """An attempt in a drain. ``looked``: the task has read its checkpoint. ``refused``: a
    checkpoint was refused because the lease is lost."""

    def __init__(self, watch: FaultWatch, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._watch = watch
        self._clock = watch.clock
        self.looked = False
        self.refused = False
        watch.add(self)

    @property
    def checkpoint(self) -> Any:
        """As ``Attempt.checkpoint``."""
        self.looked = True
        return super().checkpoint

    def report(
        self, fraction: float | None = None, message: str | None = None, *, stage: str | None = None
    ) -> None:
        """As ``Attempt.report``."""
        self._watch.check_alive(self)
        super().report(fraction, message, stage=stage)

    async def save(self, value: Any) -> None:
        """As ``Attempt.save``."""
        await self._watch.before_save(self, self._saves + 1)
        try:
            await super().save(value)
        except LostLease:
            self.refused = True
            raise
        await self._watch.after_save(self, self._saves)

    def _begin_step(self, name: str, function: Callable[..., Any]) -> Any:
        """Begin a step, which resumes by itself."""
        self.looked = True
        return super()._begin_step(name, function)

    async def _checked(self, connection: object, verb: str = "complete_in") -> ForeignConnection:
        self._watch.check_write(self)
        return await super()._checked(connection, verb)
