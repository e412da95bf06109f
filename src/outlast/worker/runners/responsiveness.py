"""Checks whether a runner's event loop turns, and which attempt blocks it.

Each runner with work is pinged about once a second, and answers from its loop. A missing answer
alone proves nothing: a busy machine is slow, too. After five seconds it is reported, with the
stack. ``worker/runners/watchdog.py`` says which attempt is charged while a loop is blocked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import inf

from outlast.base.clock import Clock
from outlast.events import emit
from outlast.model.standstill import SPANS_MAX, Span, find_shared
from outlast.runner.protocol import Ping, Pong
from outlast.runner.stacks import MANY, current_attempt, line_of
from outlast.worker.base import Running
from outlast.worker.claims.in_flight import InFlight
from outlast.worker.runners.process import RunnerProcess

PING_SECONDS = 1.0
BLOCKED_SECONDS = 5.0  # without an answer: reported, with the stack
STEP_SECONDS_MAX = 0.5  # counted by one check at most: a worker that slept has heard no answers
STACKS_SECONDS_MAX = 2.0  # for stacks to arrive; a stopped process sends none
FRESH_SECONDS = 1.0  # after which the stacks are requested again to find the blocker
NAME_SECONDS = 1.0  # without an answer: find the blocker, if other attempts wait
CREDIT_SECONDS_MAX = 5.0  # beyond its timeout, for one attempt: well below a reaper's slack
UNANSWERED = "unanswered"
Tell = Callable[[Running], None]


class Responsiveness:
    """One runner's responsiveness. ``silent``: seconds without an answer, as the checks count."""

    def __init__(
        self, runner: RunnerProcess, in_flight: InFlight, tell: Tell, clock: Clock
    ) -> None:
        self._runner = runner
        self._in_flight = in_flight
        self._tell_store = tell
        self._clock = clock
        self._seq = 0
        self._asking = False
        self._asked_at = self._turned_at = self._looked_at = float("-inf")
        self._told = False
        self._stacks_asked_at: float | None = None
        self._named_at: float | None = None
        self._size = -1
        self._still: deque[Span] = deque(maxlen=SPANS_MAX)  # in which the runner did not run
        self.may_have_stood_still = False  # with this worker, since the last ping with an answer
        self.stacks = ""
        self.named: int | None = None
        self.silent = 0.0

    @property
    def ending(self) -> bool:
        """Whether the runner is dying or dead: its death will decide the ends of its attempts."""
        return self._runner.gone or self._runner.kill_reason is not None

    def look(self, still: Sequence[Span]) -> None:
        """Count the silence, ping if it is time, report a blocked loop."""
        now = self._clock.boot()
        self._leave_out(still, now)
        if self._asking:
            self.silent += min(max(0.0, now - self._looked_at), STEP_SECONDS_MAX)
        self._looked_at = now
        if now - self._asked_at >= PING_SECONDS:
            self.ping()
        if self.silent >= NAME_SECONDS and self._named_at is None and len(self._runner.tokens) > 1:
            self.knows_blocker()  # to credit the others
        if self.silent >= BLOCKED_SECONDS and not self._told and self.knows_blocker():
            self.tell()

    def ping(self) -> None:
        """Send a ping now, unless an answer is awaited."""
        if not self._asking:
            self._seq += 1
            self._asking, self._asked_at = True, self._clock.boot()
            self._looked_at = self._asked_at
            self._runner.send(Ping(self._seq))

    def _leave_out(self, still: Sequence[Span], now: float) -> None:
        self.may_have_stood_still = bool(still) and still[-1][1] > self._turned_at
        for since, until in find_shared(still, self._still):
            emit(
                "runner_stood_still",
                pid=self._runner.pid,
                seconds=round(until - since, 3),
                attempts=len(self._runner.tokens),
            )
            for token in self._runner.tokens & self._in_flight.running.keys():
                running = self._in_flight.running[token]
                running.leave_out(since, until, now)
                self._tell_store(running)  # for the deadline on its row
        self._still.clear()

    def take_answer(self, seq: int, still: Iterable[Span]) -> None:
        """Take the answer to a ping: the loop has turned since. ``still``: spans in which the
        runner did not run; the next check compares them with the spans of this worker."""
        self._still.extend(still)
        if not self._asking or seq != self._seq:
            return
        self._turned_at = self._asked_at
        if self._told:
            emit("loop_unblocked", pid=self._runner.pid, seconds=round(self.silent, 3))
        if self._named_at is not None:
            self._credit()
        self._asking = self._told = False
        self.silent = 0.0
        self._stacks_asked_at = self._named_at = self.named = None

    def has_turned_since(self, when: float) -> bool:
        """Whether the loop has certainly turned since ``when``, on the boot clock."""
        return self._turned_at >= when

    def knows_blocker(self) -> bool:
        """Whether ``named``, the attempt that blocks the loop or None, is up to date. If not,
        stacks are requested: check again soon."""
        now = self._clock.boot()
        if self._named_at is not None and now - self._named_at < FRESH_SECONDS:
            return True
        if self._stacks_asked_at is None:
            self._stacks_asked_at, self._size = now, -1
            self._runner.ask_stacks()
            return False
        stacks = self._runner.stacks()
        came = bool(stacks) and len(stacks) == self._size
        self._size = len(stacks)
        if not came and now - self._stacks_asked_at < STACKS_SECONDS_MAX:
            return False
        self.stacks, self.named = stacks, self._blocker(stacks)
        self._stacks_asked_at, self._named_at = None, now
        return True

    def is_blocked_by(self, token: int) -> bool:
        """Whether this attempt blocks the loop, as far as known; each job of a batch is its call,
        and nothing else runs beside a call."""
        return self.named == token or self._runner.batch is not None

    def tell(self) -> None:
        """Report once which line blocks the loop."""
        if self._told:
            return
        self._told = True
        running = None if self.named is None else self._in_flight.running.get(self.named)
        hide = self._in_flight.hide
        line = line_of(self.stacks, self.named or MANY)
        emit(
            "loop_blocked",
            pid=self._runner.pid,
            seconds=round(self.silent, 3),
            job_id=None if running is None else running.claimed.job_id,
            token=self.named,
            line=line and hide(line),
            stack=hide(self.stacks),
        )

    def give_up(self) -> None:
        """Kill the runner: it does not answer, and no blocking attempt can be named."""
        self._runner.kill(UNANSWERED)

    def _blocker(self, stacks: str) -> int | None:
        tokens = self._runner.tokens
        if len(tokens) == 1:  # even if its stack does not show it: C code may hold the GIL
            return next(iter(tokens))
        token = current_attempt(stacks)
        return token if token in tokens else None

    def _credit(self) -> None:
        now = self._clock.boot()
        most = inf if self.named is not None else CREDIT_SECONDS_MAX  # it may be any attempt
        for token in self._runner.tokens:
            running = self._in_flight.running.get(token)
            if running is not None and not self.is_blocked_by(token):
                running.credit(self.silent, now, most)


class ResponsivenessMonitor:
    """The responsiveness of all runners that have work. ``tell`` writes it to the store."""

    def __init__(self, in_flight: InFlight, tell: Tell, clock: Clock) -> None:
        self._in_flight = in_flight
        self._tell = tell
        self._clock = clock
        self._of: dict[int, Responsiveness] = {}  # by pid

    def look(self, runners: list[RunnerProcess], still: Sequence[Span]) -> None:
        """Check all runners once. ``still``: the spans in which this worker did not run."""
        self._of = {runner.pid: self.of(runner) for runner in runners if runner.tokens}
        for loop in self._of.values():
            if not loop.ending:
                loop.look(still)

    def of(self, runner: RunnerProcess) -> Responsiveness:
        """Return the runner's responsiveness."""
        return self._of.get(runner.pid) or Responsiveness(
            runner, self._in_flight, self._tell, self._clock
        )

    def take_answer(self, runner: RunnerProcess, answer: Pong) -> None:
        """Take a runner's answer."""
        if (loop := self._of.get(runner.pid)) is not None:
            loop.take_answer(answer.seq, answer.still)
