"""What this worker holds: every token from its claim to the store's answer about its end.

Only once its end was answered is a slot free for more claims; until then the token is held, so
that no reconciliation gives the job away.
"""

from __future__ import annotations

import functools
import platform
from collections import deque
from collections.abc import Callable, Sequence
from importlib import metadata

import msgspec

from outlast.clock import Clock
from outlast.events import emit, heard
from outlast.model.crash import LIMITS, Crash, CrashKind, Progress, bounded, clean, hiding, redacted
from outlast.model.job import SHELL_TASK, JobFacts
from outlast.model.lifecycle import Outcome, OutcomeKind, Transition, decide
from outlast.runner.marks import line_of, own_first
from outlast.store.base import Answer, Claimed

MESSAGE_MAX = 2_000


class Running:
    """An attempt that this worker runs. Times are on the worker's boot clock, in seconds."""

    __slots__ = (
        "blocked",
        "checkpoint",
        "claimed",
        "last_sign_at",
        "losses",
        "pid",
        "progress",
        "python",
        "release",
        "saved_at",
        "stack",
        "started_at",
        "stop_reason",
        "stopped_at",
    )

    def __init__(self, claimed: Claimed, now: float) -> None:
        self.claimed = claimed
        self.started_at = now
        self.last_sign_at = now
        self.losses = claimed.losses
        self.checkpoint = claimed.checkpoint
        self.pid: int | None = None
        self.release: str | None = None  # of the application in its runner
        self.python: str | None = None
        self.progress: Progress | None = None
        self.saved_at: float | None = None
        self.blocked = 0.0  # seconds that another has kept it from running: not its own
        self.stack = ""  # where it stood when it reached a limit
        self.stop_reason: str | None = None
        self.stopped_at: float | None = None

    @property
    def token(self) -> int:
        """The attempt's fencing token."""
        return self.claimed.token

    def facts(self) -> JobFacts:
        """Return what the decision about this attempt needs."""
        claimed = self.claimed
        return JobFacts(
            job_id=claimed.job_id,
            token=claimed.token,
            failures=claimed.failures,
            losses=self.losses,
            policy=claimed.policy,
            cancel_requested=self.stop_reason == "cancel",
            solo=claimed.solo,
            incident=claimed.incident,
            cohort=claimed.cohort,
        )


class Ledger:
    """Tokens from claim to answer, and the ends that wait to be handed in, in their order."""

    def __init__(
        self,
        clock: Clock,
        *,
        on_end: Callable[[], None],
        worker: str = "",
        host: str = "",
        release: str | None = None,
        redact: Sequence[str] = (),
    ) -> None:
        self._clock = clock
        self._on_end = on_end
        self.worker = worker
        self.host = host
        self.release = release
        self._hide = hiding(redact)
        self.running: dict[int, Running] = {}
        self.ended: deque[Transition] = deque()
        self._handed_in: dict[int, Transition] = {}
        self._facts: dict[int, JobFacts] = {}
        self._in_transaction: set[int] = set()  # tokens of ends after a ``complete_in``
        self._busy_since: dict[int, float] = {}
        self.token_seen = 0

    def held(self) -> set[int]:
        """Return every token whose end the store has not answered."""
        return {*self.running, *self._handed_in, *(each.token for each in self.ended)}

    def is_empty(self) -> bool:
        """Whether nothing is held."""
        return not (self.running or self.ended or self._handed_in)

    def claim(self, claimed: Claimed) -> Running:
        """Take in a job that the store has given to this worker."""
        running = Running(claimed, self._clock.boot())
        token = claimed.token
        self.running[token] = running
        self.token_seen = max(self.token_seen, token)
        if heard():
            emit(
                "attempt_started",
                job_id=claimed.job_id,
                token=token,
                task=claimed.task,
                number=claimed.number,
            )
        return running

    def end(self, token: int, outcome: Outcome, *, completed_in: bool = False) -> None:
        """Note how an attempt ended; the first word counts, later ones are dropped."""
        running = self.running.pop(token, None)
        if running is None:
            return
        if completed_in:
            self._in_transaction.add(token)
            if outcome.kind is OutcomeKind.COMPLETED:
                outcome = _to_be_checked(outcome)
        if outcome.kind is not OutcomeKind.COMPLETED or outcome.message:
            outcome = self._with_evidence(running, outcome)
        facts = self._facts[token] = running.facts()
        transition = decide(facts, outcome, self._clock.random)
        self.ended.append(transition)
        if heard():
            self._tell_end(running, transition)
        self._on_end()

    def _tell_end(self, running: Running, transition: Transition) -> None:
        emit(
            "attempt_ended",
            job_id=transition.job_id,
            token=transition.token,
            task=running.claimed.task,
            outcome=transition.outcome,
            state=str(transition.state),
            seconds=round(self._clock.boot() - running.started_at, 3),
        )

    def take(self, limit: int) -> list[Transition]:
        """Return the oldest ends, to be handed in; each must be answered or given back."""
        batch = [self.ended.popleft() for _ in range(min(limit, len(self.ended)))]
        self._handed_in.update({each.token: each for each in batch})
        return batch

    def give_back(self, batch: list[Transition]) -> None:
        """Take back ends whose hand-in broke off: they are handed in again, first."""
        for transition in reversed(batch):
            if self._handed_in.pop(transition.token, None) is not None:
                self.ended.appendleft(transition)

    def answered(self, transition: Transition, answer: Answer) -> None:
        """Note the store's answer. ``busy`` ends are handed in again."""
        token = transition.token
        self._handed_in.pop(token, None)
        if answer is Answer.BUSY:
            self._busy_since.setdefault(token, self._clock.boot())
            self.ended.append(transition)
            return
        self._facts.pop(token, None)
        if self._busy_since or self._in_transaction:  # of most attempts there are none
            self._busy_since.pop(token, None)
            self._in_transaction.discard(token)
        if answer is Answer.REFUSED:
            emit("attempt_refused", job_id=transition.job_id, token=token)

    def left_open(self, seconds: float) -> list[tuple[Transition, float]]:
        """Return the ends after a ``complete_in`` that have been ``busy`` for that long, with
        their seconds; each again only after as long again."""
        if not self._in_transaction:
            return []
        now, since = self._clock.boot(), self._busy_since
        late = [
            (transition, now - since[transition.token])
            for transition in self.ended
            if transition.token in self._in_transaction
            and now - since.get(transition.token, now) >= seconds
        ]
        since.update((transition.token, now) for transition, _ in late)
        return late

    def reject(self, transition: Transition) -> Transition:
        """Return the end of an attempt whose result or report the store would not take."""
        emit("result_rejected", job_id=transition.job_id, token=transition.token)
        crash = Crash(kind=CrashKind.REJECTED_RESULT, message="the store refused the result")
        outcome = Outcome(kind=OutcomeKind.CRASHED, crash=crash, pid=transition.pid)
        return decide(self._facts[transition.token], outcome, self._clock.random)

    def noted_save(self, token: int, value: str) -> None:
        """Note an accepted checkpoint: one that differs from the last forgives losses."""
        running = self.running.get(token)
        if running is None:
            return
        running.saved_at = running.last_sign_at = self._clock.boot()
        if value != running.checkpoint:
            running.checkpoint = value
            running.losses = 0

    def noted_progress(self, token: int, progress: Progress) -> None:
        """Note what the attempt last said."""
        running = self.running.get(token)
        if running is not None:
            running.progress = progress
            running.last_sign_at = self._clock.boot()

    def _with_evidence(self, running: Running, outcome: Outcome) -> Outcome:
        outcome = msgspec.structs.replace(
            outcome, pid=running.pid, message=clean(self._hide(outcome.message), MESSAGE_MAX)
        )
        if outcome.kind is OutcomeKind.COMPLETED or outcome.crash is None:
            return outcome
        age = None if running.saved_at is None else self._clock.boot() - running.saved_at
        crash = msgspec.structs.replace(
            outcome.crash,
            progress=running.progress,
            checkpoint_age_seconds=age,
            worker=self.worker,
            host=self.host,
            pid=running.pid,
            release=running.release or self.release,
            python=running.python or platform.python_version(),
            outlast=_own_version(),
        )
        if running.claimed.task == SHELL_TASK:
            crash = msgspec.structs.replace(crash, stacks=None)  # of our own code, which waits
        elif crash.kind in LIMITS:
            crash = _with_line(crash, running)
        return msgspec.structs.replace(outcome, crash=bounded(redacted(crash, self._hide)))


def _with_line(crash: Crash, running: Running) -> Crash:
    """Return the report of a limit with the stacks, the attempt's own first, and its line."""
    stacks = own_first(f"{running.stack}\n\n{crash.stacks or ''}", running.token)
    line = line_of(stacks, running.token)
    message = f"{crash.message}; it stood at {line}" if line else crash.message
    return msgspec.structs.replace(crash, stacks=stacks or None, message=message)


@functools.cache
def _own_version() -> str | None:
    try:
        return metadata.version("outlast")
    except metadata.PackageNotFoundError:  # run from a source tree
        return None


def _to_be_checked(outcome: Outcome) -> Outcome:
    """Turn "I completed in my own transaction" into an end that the store checks.

    If the job is completed by this token, the store answers ``already``; if the transaction is
    still open, ``busy``; otherwise it was never committed, and this failure stands. What a task
    raised after ``complete_in`` needs no check: its transaction was most likely rolled back by
    it, and if not, the end is refused.
    """
    message = "complete_in was called, but its transaction was not committed"
    return Outcome(
        kind=OutcomeKind.CRASHED,
        crash=Crash(kind=CrashKind.COMPLETION_NOT_COMMITTED, message=message),
        message=outcome.message,
    )
