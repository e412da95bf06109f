"""Decides a job's next state, the delay before its next attempt, and which budget is charged.

``decide`` is pure, and no other code decides this. SQL guards (id, token, state) and applies the
decision, which it changes only for facts that arrived later or that only the row knows: a cancel
request turns a return to the queue into ``cancelled``; losses that a checkpoint forgave turn
``dead`` into a return; the delay doubles with ``doubles_to``, and ends before the expiry of a job
that has not begun.

The rules of blame. A death is charged to a job's ``retries`` only if the attempt was alone in the
process that died: alone in its runner, which its worker shows by the kind of the crash, or alone in
its whole worker (``solo`` 2) when that worker's death is proven. Every other death is a loss. Too
many losses end a job, except losses caused by neighbours: a bystander continues, strictly alone. An
attempt that was charged alone clears the others of its incident. A suspect whose runner outlived
its attempt is cleared; one that was interrupted, or has never begun, is still a suspect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from outlast.model.crash import PROCESS_DEATHS, Charge, Crash, CrashKind, charge_of, fingerprint_of
from outlast.model.job import ALONE_IN_RUNNER, ALONE_IN_WORKER, JobFacts, Policy, State

UNDECODABLE_PAUSE_SECONDS = 10.0  # the first delay; another release has time to take the job
UNDECODABLE_PAUSE_MAX_SECONDS = 600.0  # the delay doubles up to this while no release can decode it
WORKER_LOSSES = 2  # workers lost without a new checkpoint, then a job gets one to itself
DELAY_SECONDS_MAX = 100 * 365 * 86_400.0  # a hundred years: every store can hold it
_DOUBLINGS_MAX = 60


class OutcomeKind(StrEnum):
    """How an attempt ended, as its worker (or a reaper) saw it."""

    COMPLETED = "completed"
    CRASHED = "crashed"  # charged by the kind of its crash report
    SNOOZED = "snoozed"
    RELEASED = "released"  # handed back uncharged: drain, or bystander of a deploy
    CANCELLED = "cancelled"
    DEAD = "dead"  # the task raised Dead


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One attempt's end.

    Attributes:
        delay: seconds, set by a snooze or requested by a retry.
        incident: the shared death that a bystander is suspected of; None where the evidence names
            another attempt.
        proven: the death of the worker is proven, not concluded from its silence.
        began: whether code of the task may have run; if not, the job's expiry still applies.
        throttles: a limit under which nothing is to start for ``delay`` seconds.
        blocks: a snooze until the children that the attempt watches have ended.
        event: a snooze that ends sooner if an event of this name is sent.
    """

    kind: OutcomeKind
    result: str | None = None
    crash: Crash | None = None
    delay: float | None = None
    message: str = ""
    pid: int | None = None
    incident: int | None = None
    proven: bool = False
    began: bool = True
    throttles: str | None = None
    blocks: bool = False
    event: str | None = None


class Transition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The change to write, guarded by (job_id, token, running); the head of this file says where
    the store changes it.

    Attributes:
        outcome: the word on the attempt's row: the crash kind, or the kind of the outcome.
        delay: seconds, from the store's own time; before the expiry of a job that has not begun.
        state: blocked: the job waits for children that the attempt watches, if any has not ended.
        solo, incident: how the job runs next.
        losses: a charged one is added to the row's, which a later save may have reset.
        clears: an incident whose other suspects are innocent: the queued ones run shared again.
        fingerprint: of the death after which the job is dead.
        doubles_to: above 0: the delay doubles with each such end in a row, to at most this.
        began: the job no longer expires, since an expiry is for its first start.
        throttles: the limit whose permit, held by this attempt, starts nothing for ``delay``.
        event: makes the queued job due if it is sent.
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
    solo: int = 0
    incident: int | None = None
    clears: int | None = None
    doubles_to: float = 0.0
    fingerprint: str | None = None
    began: bool = True
    throttles: str | None = None
    event: str | None = None


def decide(facts: JobFacts, outcome: Outcome, random: Callable[[], float]) -> Transition:
    """Return the transition for this end. A completion beats a cancel request, and a cancel request
    beats every way back to the queue."""
    if outcome.kind is _COMPLETED:
        return _plain(facts, outcome, _ENDED_WELL)
    if outcome.kind is OutcomeKind.CRASHED:
        transition = _crash(facts, outcome, random)
    else:
        transition = _by_the_task(facts, outcome)
    if transition.state in _GOES_ON and facts.cancel_requested:
        return msgspec.structs.replace(transition, state=State.CANCELLED, delay=0.0)
    return transition


def as_applied(decided: Transition, state: State) -> Transition:
    """Return the decision as the guard has applied it, with this state."""
    if state is decided.state:
        return decided
    return msgspec.structs.replace(decided, state=state, delay=0.0)


_WORDS = {kind: kind.value for kind in OutcomeKind}
# module-level names, used for every job: a lookup in the class takes 0.3 us on Python 3.11
_GOES_ON = (State.QUEUED, State.BLOCKED)
_COMPLETED, _ENDED_WELL, _UNCHARGED = OutcomeKind.COMPLETED, State.COMPLETED, Charge.NONE


def _plain(facts: JobFacts, outcome: Outcome, state: State, delay: float = 0.0) -> Transition:
    return Transition(
        job_id=facts.job_id,
        token=facts.token,
        state=state,
        outcome=_WORDS[outcome.kind],
        charge=_UNCHARGED,
        failures=facts.failures,
        losses=facts.losses,
        delay=delay,
        result=outcome.result,
        crash=outcome.crash,
        message=outcome.message,
        pid=outcome.pid,
        solo=facts.solo,
        incident=facts.incident,
        began=outcome.began,
    )


def _by_the_task(facts: JobFacts, outcome: Outcome) -> Transition:
    if outcome.kind is OutcomeKind.CANCELLED:
        return _plain(facts, outcome, State.CANCELLED)
    if outcome.kind is OutcomeKind.DEAD:
        return msgspec.structs.replace(
            _plain(facts, outcome, State.DEAD),
            charge=Charge.FAILURE,
            failures=facts.failures + 1,
            fingerprint=fingerprint_of(facts.task, outcome.kind.value, outcome.crash),
        )
    state = State.BLOCKED if outcome.blocks else State.QUEUED
    moved = _plain(facts, outcome, state, _within(outcome.delay or 0.0))
    if outcome.kind is OutcomeKind.RELEASED:
        return moved
    return msgspec.structs.replace(
        moved, **_NO_SUSPECT, throttles=outcome.throttles, event=outcome.event
    )


def _crash(facts: JobFacts, outcome: Outcome, random: Callable[[], float]) -> Transition:
    crash = outcome.crash
    if crash is None:
        raise ValueError("a crashed outcome needs its crash report")
    charge = _charge(facts, outcome, crash)
    failures = facts.failures + (charge is Charge.FAILURE)
    losses = facts.losses + (charge is Charge.LOSS)
    dead = failures > facts.policy.retries or losses > facts.policy.max_losses
    charged = losses if charge is Charge.LOSS else failures
    pause = _pause(facts.policy, outcome, crash, charged, random)
    undecodable = crash.kind is CrashKind.UNDECODABLE
    return Transition(
        job_id=facts.job_id,
        token=facts.token,
        state=State.DEAD if dead else State.QUEUED,
        outcome=crash.kind.value,
        charge=charge,
        failures=failures,
        losses=losses,
        delay=0.0 if dead else pause,
        crash=crash,
        message=crash.message,
        pid=outcome.pid,
        doubles_to=UNDECODABLE_PAUSE_MAX_SECONDS if undecodable and outcome.delay is None else 0.0,
        fingerprint=fingerprint_of(facts.task, crash.kind.value, crash) if dead else None,
        began=outcome.began and not undecodable,
        **_suspect(facts, outcome, crash, charge, losses),
    )


# ---------------------------------------------------------------------------------- blame

_NO_SUSPECT: dict[str, Any] = {"solo": 0, "incident": None}


def _charge(facts: JobFacts, outcome: Outcome, crash: Crash) -> Charge:
    if crash.kind is CrashKind.LOST_WORKER and _killed_its_worker(facts, outcome):
        return Charge.FAILURE
    if _had_neighbours(crash) and facts.losses >= facts.policy.max_losses:
        return Charge.NONE  # neighbours never make a job dead: it runs alone from now on
    return charge_of(crash.kind)


def _killed_its_worker(facts: JobFacts, outcome: Outcome) -> bool:
    """Whether the job was alone in a worker whose death is proven, without progress since."""
    return outcome.proven and facts.solo == ALONE_IN_WORKER and facts.losses >= WORKER_LOSSES


def _had_neighbours(crash: Crash) -> bool:
    """Whether a bystander had neighbours. Alone, it may have ended the runner itself."""
    return crash.kind is CrashKind.BYSTANDER and bool(crash.neighbours)


def _suspect(
    facts: JobFacts, outcome: Outcome, crash: Crash, charge: Charge, losses: int
) -> dict[str, Any]:
    kind = crash.kind
    as_before = {"solo": facts.solo, "incident": facts.incident}
    if _had_neighbours(crash):
        return _after_a_shared_death(facts, outcome.incident, charge)
    if charge is Charge.FAILURE and kind in PROCESS_DEATHS:
        if facts.solo == 0:
            return _NO_SUSPECT
        # it stays alone, under a new incident; the others of the old incident are innocent
        return as_before | {"incident": facts.token, "clears": facts.incident}
    if kind is CrashKind.LOST_WORKER:
        in_runner = 0 if facts.incident is None else ALONE_IN_RUNNER
        return as_before | {"solo": ALONE_IN_WORKER if losses >= WORKER_LOSSES else in_runner}
    if kind in PROCESS_DEATHS or kind is CrashKind.UNDECODABLE:
        return as_before
    return _NO_SUSPECT


def _after_a_shared_death(facts: JobFacts, incident: int | None, charge: Charge) -> dict[str, Any]:
    if charge is Charge.NONE:
        return {"solo": ALONE_IN_RUNNER, "incident": facts.incident or facts.token}
    if incident is None:
        return _NO_SUSPECT
    return {"solo": ALONE_IN_RUNNER, "incident": incident}


def _pause(
    policy: Policy, outcome: Outcome, crash: Crash, charged: int, random: Callable[[], float]
) -> float:
    if outcome.delay is not None:
        return _within(outcome.delay)
    if crash.kind is CrashKind.UNDECODABLE:
        return UNDECODABLE_PAUSE_SECONDS
    if outcome.incident is not None and _had_neighbours(crash):
        return 0.0  # it runs alone, where its next death is certain: no need to wait
    return delay_seconds(policy, crash.kind, charged, random)


def _within(seconds: float) -> float:
    return min(DELAY_SECONDS_MAX, max(0.0, seconds))


def delay_seconds(
    policy: Policy, kind: CrashKind, charged: int, random: Callable[[], float]
) -> float:
    """Return the seconds until the next attempt: exponential back-off, half of it jittered ("equal
    jitter" in M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).

    ``charged`` counts the attempts on the budget, this one included. The first death of a process
    is retried at once: its cause is most often the machine.
    """
    if kind in PROCESS_DEATHS:
        charged -= 1
    if charged <= 0:
        return 0.0
    full = min(policy.backoff_max, policy.backoff_first * 2.0 ** min(charged - 1, _DOUBLINGS_MAX))
    return full * (0.5 + 0.5 * random())


def find_suspects(died: Mapping[int, int | None], named: int | None) -> dict[int, int]:
    """Return the suspects among attempts that died together -> their incident. Each runs alone
    next, so that one more death makes the culprit certain, and no innocent attempt dies again.

    ``died``: token -> the incident that it was suspected of already, or None. ``named``: the token
    that the evidence names, or None; ignored if it is not among the dead.
    """
    known = [incident for incident in died.values() if incident is not None]
    if named is not None and named in died:
        return {named: died[named] or named}
    incident = min(known or died, default=0)
    return dict.fromkeys(died, incident)
