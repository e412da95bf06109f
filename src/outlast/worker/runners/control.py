"""Ends attempts in runners: asks them to stop, and kills the runners of attempts that do not
stop."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from outlast.base.clock import Clock
from outlast.base.text import line
from outlast.client.attempt import StopReason
from outlast.model.crash import LIMITS
from outlast.model.job import SHELL_TASK
from outlast.model.standstill import Span
from outlast.runner.protocol import ShowStack, Stop
from outlast.runner.stacks import own_first
from outlast.store.values import Claimed
from outlast.worker.base import SHOW_SECONDS_MAX, WAITS, Running
from outlast.worker.claims.in_flight import InFlight
from outlast.worker.claims.prefetch import Ahead
from outlast.worker.runners.exits import LOCKS_FILE, SUPERSEDED
from outlast.worker.runners.process import RunnerProcess
from outlast.worker.runners.responsiveness import Responsiveness, ResponsivenessMonitor
from outlast.worker.runners.supervisor import RunnerSupervisor

SHOW_LOOK_SECONDS = 0.05  # between two checks while waiting for stacks
COMMAND = "The processes of its command:"
SILENT = (
    "Its process did not show its stacks: it is stopped, or a system call does not return."
    " Its session:"
)
PROCESSES_MAX = 50  # listed
COMMAND_MAX = 200  # characters of a command
STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "in a system call that cannot be interrupted",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "Z": "a zombie: its parent has not waited for it",
}
UNSEEN = "its processes cannot be seen on this system"


class RunnersControl:
    """The ``AttemptControl`` of a pool of runners."""

    def __init__(
        self,
        in_flight: InFlight,
        supervisor: RunnerSupervisor,
        ahead: Ahead,
        monitor: ResponsivenessMonitor,
        clock: Clock,
    ) -> None:
        self._in_flight = in_flight
        self._supervisor = supervisor
        self._runners = supervisor.runners
        self._ahead = ahead
        self._monitor = monitor
        self._clock = clock

    def has(self, token: int) -> bool:
        return self.runner_of(token) is not None or token in self._ahead

    def runner_of(self, token: int) -> RunnerProcess | None:
        """Return the runner that this attempt runs in."""
        return next((runner for runner in self._runners if token in runner.tokens), None)

    def stop(self, token: int, reason: str) -> None:
        """Take back an attempt that has not begun, or ask it to stop; at a limit, request its
        stacks first. Cancelling one job of a batch stops nothing while the others continue."""
        self._ahead.stop(token, reason)
        running, runner = self._in_flight.running.get(token), self.runner_of(token)
        if running is None or runner is None or running.stopped_at is not None:
            return
        goes_on = reason == StopReason.CANCEL and self._others_go_on(runner, token)
        if goes_on and running.stop_reason is not None:
            return
        running.stop_reason = running.stop_reason or reason
        if not goes_on:
            running.stopped_at = self._clock.boot()
        if reason in LIMITS:
            runner.ask_stacks()
        runner.send(Stop(token, reason))

    def _others_go_on(self, runner: RunnerProcess, token: int) -> bool:
        """Whether other attempts of the same call continue, so that its runner is not killed."""
        others = runner.tokens - {token} if runner.batch is not None else ()
        attempts = (self._in_flight.running.get(other) for other in others)
        return any(each is not None and each.stop_reason is None for each in attempts)

    def recall(self, reason: str, which: Callable[[Claimed], bool] | None = None) -> bool:
        self._ahead.give_back(reason, which)
        running, answered = self._in_flight.running, True
        for runner in self._runners:
            unsure = running.keys() & (runner.tokens - runner.begun)
            asked = {token for token in unsure if which is None or which(running[token].claimed)}
            if asked and not runner.gone:  # a dead runner begins no attempt
                runner.recall(asked)
                answered = False
        return answered

    async def find_stack(self, token: int) -> str:
        """Return the stacks of the attempt's runner, its own first, or a command's processes."""
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
        """Wait until the stacks of the runner's threads, and of its loop unless it is blocked, have
        arrived whole: their text no longer grows."""
        until, size = self._clock.boot() + SHOW_SECONDS_MAX, 0
        while not runner.gone and self._clock.boot() < until:
            await self._clock.sleep(SHOW_LOOK_SECONDS)
            before, size = size, len(runner.stacks())
            if 0 < before == size and running.shown is not None:
                return

    def end_all(self, reason: str, spare: Collection[int] = ()) -> None:
        self._ahead.give_back(reason)
        for runner in self._runners:
            if runner.tokens.difference(spare):
                runner.kill(reason)

    # -- by force ------------------------------------------------------------------------------

    def kill(self, token: int) -> None:
        runner, running = self.runner_of(token), self._in_flight.running.get(token)
        if runner is not None and running is not None:
            reason = running.stop_reason or "stop"
            # its neighbours stay leased, unless the worker trusts no lease (see exits.outcome_of)
            self._supervisor.kill(runner, SUPERSEDED if reason == "lease_lost" else reason)

    def kill_process(self, pid: int, reason: str) -> None:
        for runner in self._runners:
            if runner.pid == pid:
                runner.kill(reason)

    def kill_locking(self, pid: int, waits: int | None) -> None:
        for runner in self._runners:
            if runner.pid == pid and (waits is not None or not runner.tokens):
                runner.left_by.update([] if waits is None else [waits])
                runner.kill(LOCKS_FILE)

    def give_up(self, tokens: Collection[int]) -> None:
        self._supervisor.give_up(tokens)

    # -- for the watchdog ----------------------------------------------------------------------

    def look_at_loops(self, still: Sequence[Span]) -> None:
        """Check whether the loops turn; ``still``: the spans in which this worker did not run."""
        self._monitor.look(self._runners, still)

    def responsiveness_of(self, token: int) -> Responsiveness | None:
        runner = self.runner_of(token)
        return None if runner is None else self._monitor.of(runner)


class Process(NamedTuple):
    """One process at the time of reading."""

    pid: int
    parent: int
    state: str
    command: str


def describe_session(session: int, *, leader: bool = True) -> str:
    """Return the processes of a session as a tree, a line each; ``leader``: include its leader."""
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:  # not Linux
        return UNSEEN
    found = [one for name in names if (one := _look(name, session)) is not None]
    shown = found if leader else [one for one in found if one.pid != session]
    lines = list(_lines(shown))
    more = [f"and {len(lines) - PROCESSES_MAX} more"] if len(lines) > PROCESSES_MAX else []
    return "\n".join(lines[:PROCESSES_MAX] + more)


def _look(pid: str, session: int) -> Process | None:
    """Return a process if it belongs to the session; None also if it is gone, or another user's."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            head, _, rest = file.read().rpartition(b")")
        state, parent, _, its_session = rest.split()[:4]
        if int(its_session) != session:
            return None
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(8 * COMMAND_MAX).rstrip(b"\0").replace(b"\0", b" ")
    except (OSError, ValueError):
        return None
    name = (words or head.partition(b"(")[2]).decode(errors="replace")
    return Process(int(pid), int(parent), state.decode(), line(name, COMMAND_MAX))


def _lines(found: list[Process]) -> Iterator[str]:
    pids = {one.pid for one in found}
    below: defaultdict[int, list[Process]] = defaultdict(list)
    for one in sorted(found):
        below[one.parent if one.parent in pids else 0].append(one)
    left = [(one, 0) for one in reversed(below[0])]
    while left:
        one, depth = left.pop()
        state = STATES.get(one.state, one.state)
        yield f"{'  ' * min(depth, 20)}{one.pid} {one.command} ({state})"
        left += [(child, depth + 1) for child in reversed(below[one.pid])]
