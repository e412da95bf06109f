"""Supervises the runners of a pool: starts, recycles and kills them, and reports their ends.

It keeps a fixed number of runners and a warm spare, which replaces a dead runner or runs suspects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from math import inf

import msgspec

from outlast.base.clock import Clock
from outlast.errors import ApplicationError
from outlast.events import emit
from outlast.model.crash import LIMITS
from outlast.runner.protocol import ApplicationFailed, FrameError, Hello
from outlast.worker.base import KILL_SECONDS, Owner
from outlast.worker.runners.assignment import Assignment
from outlast.worker.runners.process import QUIT_SECONDS, Death, RunnerProcess
from outlast.worker.runners.recycling import Recycling
from outlast.worker.runners.tether import Tether
from outlast.worker.service import Nudge

START_BACKOFF_FIRST, START_BACKOFF_MAX = 0.5, 30.0  # seconds
# of work without a death comes the spare: its start takes 0.3 s of a core
SPARE_AFTER_SECONDS = 2.0

LOOK_SECONDS = 1.0  # between two checks of runners that start
SLOW_SECONDS = 60.0  # of a start: then an event reports it, with the line at which it stands
START_SECONDS_MAX = 300.0  # of a start: then the runner is killed

TOO_LATE = "startup"  # reason of a kill: the start took too long
LIFESPAN = "lifespan"  # reason of a kill: the application's lifespan has failed
RELOAD = "reload"  # reason to replace runners with older code
UNKILLABLE = "unkillable"  # reason to give no attempts to a killed runner that does not end


class RunnerSupervisor:
    """The duty that keeps the number of runners. ``make`` returns a runner that is not started;
    ``hide`` removes secrets from stacks."""

    name = "pool"

    def __init__(
        self,
        owner: Owner,
        make: Callable[[], RunnerProcess],
        assignment: Assignment,
        recycling: Recycling,
        tether: Tether,
        hide: Callable[[str], str],
        *,
        tags: Collection[str],
        has: Mapping[str, int],
        clock: Clock,
    ) -> None:
        self.nudge = Nudge()
        self._owner = owner
        self._make = make
        self._assignment = assignment
        self._recycling = recycling
        self._tether = tether
        self._hide = hide
        self.runners = assignment.runners
        self._size = assignment.size
        self._tags, self._has = tags, has
        self._clock = clock
        self._slow: set[int] = set()  # pids of starting runners that were reported
        self._complaints: dict[int, ApplicationFailed] = {}  # by pid: why it could not start
        self._starts_failed = 0
        self._next_start_at = 0.0
        self.ever_ready = False
        self._on_trial = False  # whether the first runner with changed code has yet to become ready
        self._spare_at = 0.0  # when the spare may be started, once a runner was ready
        self._killings: set[asyncio.Task[None]] = set()
        self.closing = False

    # -- their number --------------------------------------------------------------------------

    async def run_once(self) -> float | None:
        """Spawn missing runners and the spare; handle those that start or are due for recycling.
        Return the seconds until the next run; None: until something happens."""
        pauses = [
            await self._fill(),
            await self._look_at_starts(),
            await self._recycling.look(self.runners, self.kill),
        ]
        self.retire_worn()
        return min((pause for pause in pauses if pause is not None), default=None)

    async def _fill(self) -> float | None:
        while not (self.closing or self._owner.registration.draining) and self._is_missing_one():
            is_spare = self._count_staying() >= self._size
            wait = max(self._next_start_at, is_spare * self._spare_at) - self._clock.boot()
            if wait > 0:
                return None if wait == inf else wait
            await self._spawn()
        return None

    def _is_missing_one(self) -> bool:
        """Whether to spawn a runner. At the start the spare comes last, unless a runner has died:
        it must not take time from the first ones, nor from their first work. A runner with a
        suspect, or with a crowded-out plain function, comes on top of the others and the spare."""
        if not self.ever_ready and len(self.runners) >= self._size:
            return False
        if self._on_trial and self._count_staying():
            return False
        beside = int(self._assignment.count_suspects() > 0)
        beside += self._assignment.is_overfull()
        return self._count_staying() < self._size + 1 + beside

    def _count_staying(self) -> int:
        return sum(runner.retiring is None for runner in self.runners)

    def retire_worn(self) -> None:
        """Retire runners that are due for recycling, unless there is no replacement."""
        if not (self.closing or self._owner.registration.draining) and self._recycling.retire(
            self.runners
        ):
            self._owner.note_pool_change()

    def start_over(self) -> None:
        """Replace all runners, since the code has changed: those without work now, the others when
        the caller ends them. A single runner tries the new code first."""
        for runner in self.runners:
            if runner.retiring != UNKILLABLE:
                runner.retiring = RELOAD
            if runner.ready:
                self._recycling.dismiss(runner)
            else:
                runner.kill(RELOAD)
        self._on_trial = True
        self._starts_failed, self._next_start_at, self._spare_at = 0, 0.0, 0.0
        self._owner.note_pool_change()

    # -- starts --------------------------------------------------------------------------------

    async def _look_at_starts(self) -> float | None:
        """Report runners that start slowly, and kill very late ones: code that hangs in an import
        or the lifespan has no attempt whose limit could end it."""
        starting = [each for each in self.runners if not (each.ready or each.kill_reason)]
        self._slow &= {runner.pid for runner in starting}
        for runner in starting:
            age = self._clock.boot() - runner.started_at
            if age >= START_SECONDS_MAX:
                runner.kill(TOO_LATE)
            elif age >= SLOW_SECONDS and runner.pid not in self._slow:
                self._slow.add(runner.pid)
                stacks = self._hide(await runner.ask_for_stacks())
                emit("runner_slow", pid=runner.pid, seconds=round(age, 3), stacks=stacks)
        return LOOK_SECONDS if starting else None

    async def _spawn(self) -> None:
        runner = self._make()
        await runner.start()
        self.runners.append(runner)
        self._tether.add(runner.pid)
        emit("runner_started", pid=runner.pid)

    def take_hello(self, runner: RunnerProcess, frame: Hello) -> None:
        """Accept a runner as ready, with its tasks. FrameError for a name that no store can hold:
        the store would refuse each exchange that requests it."""
        if any(
            "\x00" in text
            for info in frame.tasks
            for text in (info.name, *info.requires, *info.uses)
        ):
            raise FrameError("a frame with a NUL in the name of a task")
        if any("\x00" in each.name + each.spec for each in frame.schedules):
            raise FrameError("a frame with a NUL in the name of a schedule")
        named = [each.name for each in frame.limits.limits]
        named += [text for task in frame.limits.tasks for text in (task.name, *task.limits)]
        if any("\x00" in name for name in named):
            raise FrameError("a frame with a NUL in the name of a limit")
        if not self.ever_ready and (complaint := self._recycling.check_idle_memory(runner)):
            self._owner.fail(ApplicationError(complaint))
            return
        runner.note_ready(frame, self._tags, self._has)
        self._on_trial = self._on_trial and runner.retiring is not None
        self._starts_failed = 0
        if not self.ever_ready:
            self.ever_ready = True
            self._spare_at = self._clock.boot() + SPARE_AFTER_SECONDS
        emit(
            "runner_ready",
            pid=runner.pid,
            seconds=round(self._clock.boot() - runner.started_at, 3),
        )
        self._owner.note_pool_change()
        self.retire_worn()

    def note_failed(self, runner: RunnerProcess, frame: ApplicationFailed) -> None:
        """Note why a runner could not start or continue, for the report of its death."""
        self._complaints[runner.pid] = frame
        if runner.ready:
            runner.note_kill_reason(LIFESPAN)  # even if its exit was heard of first
            runner.kill()

    def _delay_next_start(
        self, death: Death, complaint: ApplicationFailed | None, killed_for: str | None
    ) -> None:
        if self.closing or killed_for == RELOAD:
            return
        failure = complaint or _describe_failed_start(death, killed_for)
        error, stack = failure.message, failure.traceback.rstrip() or None
        if self._on_trial:
            emit("reload_failed", error=error, stack=stack)
            self._next_start_at = inf  # the same code would fail again
            return
        if not self.ever_ready and complaint:
            emit("application_failed", error=error, stack=stack)
            self._owner.fail(ApplicationError("\n".join(filter(None, (error, stack)))))
            return
        self._starts_failed += 1
        pause = min(START_BACKOFF_MAX, START_BACKOFF_FIRST * 2.0 ** (self._starts_failed - 1))
        self._next_start_at = self._clock.boot() + pause
        emit("runner_restart_delayed", seconds=pause, error=error, stack=stack)

    # -- deaths --------------------------------------------------------------------------------

    def kill(self, runner: RunnerProcess, reason: str) -> None:
        """Kill a runner, with the stacks of its threads; the first reason stays."""
        if runner.kill_reason is None and not runner.gone:
            runner.note_kill_reason(reason)
            if reason in LIMITS:  # its stacks have come already
                runner.kill()
                return
            self._killings.add(task := asyncio.create_task(runner.kill_with_stacks()))
            task.add_done_callback(self._killings.discard)

    def note_death(self, runner: RunnerProcess, death: Death) -> Death:
        """Note that a runner is gone; return its death with the evidence on memory."""
        self.runners.remove(runner)
        self._spare_at = 0.0
        self._tether.drop(runner.pid)
        asked = self.closing or runner.quit_at is not None
        unready = self.closing and not runner.ready and runner.kill_reason == "stop"
        death = msgspec.structs.replace(death, memory=self._recycling.explain(runner, death))
        emit(
            "runner_stopped" if unready or (asked and death.exit_code == 0) else "runner_died",
            pid=death.pid,
            exit_code=death.exit_code,
            signal=death.signal,
            attempts=len(runner.tokens),
            killed_for=runner.kill_reason,
        )
        if runner.quit_at is not None and runner.kill_reason is not None:  # it did not leave
            seconds = round(self._clock.boot() - runner.quit_at, 3)
            stacks = self._hide(death.stacks)
            emit("runner_slow", pid=runner.pid, seconds=seconds, stacks=stacks)
        complaint = self._complaints.pop(runner.pid, None)
        if not runner.ready or complaint is not None:
            self._delay_next_start(death, complaint, runner.kill_reason)
        return death

    def give_up(self, tokens: Collection[int]) -> None:
        """Stop waiting for killed runners with these attempts, and start others in their places.
        The attempts, whose code runs no more, are held until the runners are gone."""
        for runner in self.runners:
            if runner.kill_reason is not None and not runner.tokens.isdisjoint(tokens):
                _tell_unkillable(runner)
                runner.retiring = UNKILLABLE
        self._owner.note_pool_change()

    async def close(self) -> None:
        """Let idle runners leave; kill runners that do not. One that cannot be killed is left
        behind, with its attempts: a worker has to end."""
        self.closing = True
        for runner in self.runners:
            if runner.ready and not runner.tokens:
                runner.quit_at = self._clock.boot()
                runner.quit()
            else:
                runner.kill("stop")
        deadline = self._clock.boot() + QUIT_SECONDS
        while self.runners and self._clock.boot() < deadline + KILL_SECONDS:
            if self._clock.boot() >= deadline:
                for runner in self.runners:
                    self.kill(runner, "stop")
            await self._clock.sleep(0.01)
        for runner in self.runners:
            _tell_unkillable(runner)
            self._tether.drop(runner.pid)


def _tell_unkillable(runner: RunnerProcess) -> None:
    if runner.retiring != UNKILLABLE:
        emit("runner_unkillable", pid=runner.pid, attempts=len(runner.tokens))


def _describe_failed_start(death: Death, killed_for: str | None) -> ApplicationFailed:
    how = death.signal or f"exit code {death.exit_code}"
    if killed_for == TOO_LATE:
        how = f"killed: it was not after {START_SECONDS_MAX:g} s"
    message = f"a runner died before it was ready ({how})"
    return ApplicationFailed(message, "\n".join(death.output[-5:]))
