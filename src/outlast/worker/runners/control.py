"""Ends attempts in runners: asks them to stop, and kills the runners of those that do not."""

from __future__ import annotations

from collections.abc import Callable, Collection

from outlast.base.clock import Clock
from outlast.model.crash import LIMITS
from outlast.model.job import SHELL_TASK
from outlast.runner.protocol import ShowStack, Stop
from outlast.runner.stacks import own_first
from outlast.store.values import Claimed
from outlast.worker.base import SHOW_SECONDS_MAX, WAITS
from outlast.worker.claims.in_flight import InFlight
from outlast.worker.runners.exits import SUPERSEDED
from outlast.worker.runners.process import RunnerProcess
from outlast.worker.runners.processes import describe_session
from outlast.worker.runners.responsiveness import Responsiveness, ResponsivenessMonitor
from outlast.worker.runners.starter import Prefetches
from outlast.worker.runners.supervisor import RunnerSupervisor
from outlast.worker.running import Running

CANCEL = "cancel"
SHOW_LOOK_SECONDS = 0.05  # between two checks while stacks come
COMMAND = "The processes of its command:"
SILENT = (
    "Its process has shown no stacks: it is stopped, or a call of the kernel does not return."
    " Its session:"
)


class RunnersControl:
    """The ``AttemptControl`` and the ``RunnerControl`` of a pool of runners."""

    def __init__(
        self,
        in_flight: InFlight,
        supervisor: RunnerSupervisor,
        prefetches: Prefetches,
        monitor: ResponsivenessMonitor,
        clock: Clock,
    ) -> None:
        self._in_flight = in_flight
        self._supervisor = supervisor
        self._runners = supervisor.runners
        self._prefetches = prefetches
        self._monitor = monitor
        self._clock = clock

    def has(self, token: int) -> bool:
        """Whether some runner has this attempt, or it waits for one."""
        runs = self.runner_of(token) is not None
        return runs or any(token in prefetch for prefetch in self._prefetches)

    def runner_of(self, token: int) -> RunnerProcess | None:
        """Return the runner that this attempt runs in."""
        return next((runner for runner in self._runners if token in runner.tokens), None)

    def stop(self, token: int, reason: str) -> None:
        """Take an attempt back if its code has not begun, else ask it to stop; the first reason
        stays. At a limit, request its stack first. A cancelled job in a batch stops nothing while
        the others go on."""
        for prefetch in self._prefetches:
            if token in prefetch:
                prefetch.stop(token, reason)
        running, runner = self._in_flight.running.get(token), self.runner_of(token)
        if running is None or runner is None or running.stopped_at is not None:
            return
        goes_on = reason == CANCEL and self._others_go_on(runner, token)
        if goes_on and running.stop_reason is not None:
            return
        running.stop_reason = running.stop_reason or reason
        if not goes_on:
            running.stopped_at = self._clock.boot()
        if reason in LIMITS:
            runner.ask_stacks()
        runner.send(Stop(token, reason))

    def _others_go_on(self, runner: RunnerProcess, token: int) -> bool:
        """Whether the call with this attempt has others that are not to stop: it goes on with
        them, and the runner is not killed."""
        others = runner.tokens - {token} if runner.batch is not None else ()
        attempts = (self._in_flight.running.get(other) for other in others)
        return any(each is not None and each.stop_reason is None for each in attempts)

    def recall(self, reason: str, which: Callable[[Claimed], bool] | None = None) -> bool:
        """Take back attempts whose code has not begun: all, or those that ``which`` selects. Return
        whether all runners have answered."""
        for prefetch in self._prefetches:
            prefetch.give_back(reason, which)
        running, answered = self._in_flight.running, True
        for runner in self._runners:
            unsure = running.keys() & (runner.tokens - runner.begun)
            asked = {token for token in unsure if which is None or which(running[token].claimed)}
            if asked and not runner.gone:  # a dead runner begins no attempt
                runner.recall(asked)
                answered = False
        return answered

    async def find_stack(self, token: int) -> str:
        """Return the stacks of an attempt's runner, the attempt's own first; for a command, return
        its processes."""
        running, runner = self._in_flight.running.get(token), self.runner_of(token)
        if running is None:
            return ""
        if runner is None:
            return WAITS
        if running.claimed.task == SHELL_TASK:  # its stacks only show Outlast's code, which waits
            return f"{COMMAND}\n\n{describe_session(runner.pid, leader=False)}"
        running.shown = None
        runner.send(ShowStack(token))
        runner.ask_stacks()
        await self._until_shown(running, runner)
        stacks = own_first(f"{running.shown or ''}\n\n{runner.stacks()}", token)
        return stacks or f"{SILENT}\n\n{describe_session(runner.pid)}"

    async def _until_shown(self, running: Running, runner: RunnerProcess) -> None:
        """Wait until the runner's loop and its threads have answered: the stacks are complete once
        they no longer grow. A blocked loop does not answer."""
        until, size = self._clock.boot() + SHOW_SECONDS_MAX, 0
        while not runner.gone and self._clock.boot() < until:
            await self._clock.sleep(SHOW_LOOK_SECONDS)
            before, size = size, len(runner.stacks())
            if 0 < before == size and running.shown is not None:
                return

    def end_all(self, reason: str, spare: Collection[int] = ()) -> None:
        """Kill every runner with attempts other than ``spare``; give back waiting attempts."""
        for prefetch in self._prefetches:
            prefetch.give_back(reason)
        for runner in self._runners:
            if runner.tokens.difference(spare):
                runner.kill(reason)

    # -- by force ------------------------------------------------------------------------------

    def kill(self, token: int) -> None:
        """Kill the runner of an attempt, with the stacks of its threads."""
        runner, running = self.runner_of(token), self._in_flight.running.get(token)
        if runner is not None and running is not None:
            reason = running.stop_reason or "stop"
            # its neighbours stay leased, unless the worker trusts no lease (see exits.outcome_of)
            self._supervisor.kill(runner, SUPERSEDED if reason == "lease_lost" else reason)

    def kill_process(self, pid: int, reason: str) -> None:
        """Kill the runner with this pid, if it is still there."""
        for runner in self._runners:
            if runner.pid == pid:
                runner.kill(reason)

    def give_up(self, tokens: Collection[int]) -> None:
        """Stop waiting for killed runners with these attempts."""
        self._supervisor.give_up(tokens)

    # -- for the watchdog ----------------------------------------------------------------------

    def look_at_loops(self) -> None:
        """Check whether the runners' event loops turn."""
        self._monitor.look(self._runners)

    def responsiveness_of(self, token: int) -> Responsiveness | None:
        """Return the responsiveness of the attempt's runner."""
        runner = self.runner_of(token)
        return None if runner is None else self._monitor.of(runner)
