"""The one place that decides what becomes of a job when an attempt ends.

``decide`` is pure. SQL only guards (id, token, state) and applies what was decided here, with
one exception that a guard must settle: a cancel request that arrived after the facts were read
turns a move back to ``queued`` into ``cancelled``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from outlast.model.crash import Charge, Crash, CrashKind, charge_of
from outlast.model.job import JobFacts, State
from outlast.model.retry import delay_seconds

UNDECODABLE_PAUSE_SECONDS = 10.0  # leaves another release the time to take it
DELAY_SECONDS_MAX = 100 * 365 * 86_400.0  # a hundred years: what every store can hold


class OutcomeKind(StrEnum):
    """How an attempt ended, as its worker (or a reaper) saw it."""

    COMPLETED = "completed"
    CRASHED = "crashed"  # charged by the kind of its crash report
    SNOOZED = "snoozed"
    RELEASED = "released"  # handed back uncharged: drain, bystander of a deploy
    CANCELLED = "cancelled"
    DEAD = "dead"  # the task raised Dead


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt's end. ``delay`` is in seconds: a snooze's, or a retry's own wish."""

    kind: OutcomeKind
    result: str | None = None
    crash: Crash | None = None
    delay: float | None = None
    message: str = ""
    pid: int | None = None


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """What to write: guarded by (job_id, token, running), applied as it stands.

    ``outcome`` is the word on the attempt's row: the crash kind, or the outcome's own.
    ``delay`` counts from the store's own now.
    """

    job_id: int
    token: int
    state: State
    outcome: str
    charge: Charge
    failures: int
    losses: int
    delay: float = 0.0
    result: str | None = None
    crash: Crash | None = None
    message: str = ""
    pid: int | None = None


def decide(facts: JobFacts, outcome: Outcome, random: Callable[[], float]) -> Transition:
    """Return the transition for this end of this attempt.

    A completion beats a cancel request; a cancel request beats every way back to the queue.
    """
    move = _crashed if outcome.kind is OutcomeKind.CRASHED else _MOVES[outcome.kind]
    transition = move(facts, outcome, random)
    if transition.state is State.QUEUED and facts.cancel_requested:
        return msgspec.structs.replace(transition, state=State.CANCELLED, delay=0.0)
    return transition


def _plain(facts: JobFacts, outcome: Outcome, state: State, delay: float = 0.0) -> Transition:
    return Transition(
        job_id=facts.job_id,
        token=facts.token,
        state=state,
        outcome=outcome.kind.value,
        charge=Charge.NONE,
        failures=facts.failures,
        losses=facts.losses,
        delay=delay,
        result=outcome.result,
        crash=outcome.crash,
        message=outcome.message,
        pid=outcome.pid,
    )


def _completed(facts: JobFacts, outcome: Outcome, _: Callable[[], float]) -> Transition:
    return _plain(facts, outcome, State.COMPLETED)


def _snoozed(facts: JobFacts, outcome: Outcome, _: Callable[[], float]) -> Transition:
    return _plain(facts, outcome, State.QUEUED, _within(outcome.delay or 0.0))


def _released(facts: JobFacts, outcome: Outcome, _: Callable[[], float]) -> Transition:
    return _plain(facts, outcome, State.QUEUED, _within(outcome.delay or 0.0))


def _cancelled(facts: JobFacts, outcome: Outcome, _: Callable[[], float]) -> Transition:
    return _plain(facts, outcome, State.CANCELLED)


def _dead(facts: JobFacts, outcome: Outcome, _: Callable[[], float]) -> Transition:
    return msgspec.structs.replace(
        _plain(facts, outcome, State.DEAD), charge=Charge.FAILURE, failures=facts.failures + 1
    )


_MOVES = {
    OutcomeKind.COMPLETED: _completed,
    OutcomeKind.SNOOZED: _snoozed,
    OutcomeKind.RELEASED: _released,
    OutcomeKind.CANCELLED: _cancelled,
    OutcomeKind.DEAD: _dead,
}


def _crashed(facts: JobFacts, outcome: Outcome, random: Callable[[], float]) -> Transition:
    crash = outcome.crash
    if crash is None:
        raise ValueError("a crashed outcome needs its crash report")
    charge = charge_of(crash.kind)
    failures = facts.failures + (charge is Charge.FAILURE)
    losses = facts.losses + (charge is Charge.LOSS)
    dead = failures > facts.policy.retries or losses > facts.policy.max_losses
    return Transition(
        job_id=facts.job_id,
        token=facts.token,
        state=State.DEAD if dead else State.QUEUED,
        outcome=crash.kind.value,
        charge=charge,
        failures=failures,
        losses=losses,
        delay=0.0 if dead else _pause(facts, outcome, crash.kind, failures, losses, random),
        crash=crash,
        message=crash.message,
        pid=outcome.pid,
    )


def _pause(
    facts: JobFacts,
    outcome: Outcome,
    kind: CrashKind,
    failures: int,
    losses: int,
    random: Callable[[], float],
) -> float:
    if outcome.delay is not None:
        return _within(outcome.delay)
    if kind is CrashKind.UNDECODABLE:
        return UNDECODABLE_PAUSE_SECONDS
    charged = losses if charge_of(kind) is Charge.LOSS else failures
    return delay_seconds(facts.policy, kind, charged, random)


def _within(seconds: float) -> float:
    """Return a task's own wish as a delay that every store can hold; NaN is no wish."""
    return min(DELAY_SECONDS_MAX, max(0.0, seconds))
