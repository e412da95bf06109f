"""The one decision: the next state of a job when an attempt ends."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.model.crash import Charge, Crash, CrashKind, charge_of
from outlast.model.job import ENDED, JobFacts, Policy, State
from outlast.model.lifecycle import (
    DELAY_SECONDS_MAX,
    UNDECODABLE_PAUSE_MAX_SECONDS,
    UNDECODABLE_PAUSE_SECONDS,
    Outcome,
    OutcomeKind,
    decide,
)
from tests.cases import each_case
from tests.model.laws import TRANSITIONS

FAILURES = sorted(kind for kind in CrashKind if charge_of(kind) is Charge.FAILURE)
LOSSES = [CrashKind.LOST_LEASE, CrashKind.LOST_WORKER]  # a bystander: test_blame.py


def no_jitter() -> float:
    return 1.0


def facts(failures=0, losses=0, *, cancel=False, **policy) -> JobFacts:
    return JobFacts(
        job_id=1,
        token=70,
        failures=failures,
        losses=losses,
        policy=Policy(**policy),
        cancel_requested=cancel,
    )


def crashed(kind: CrashKind, delay: float | None = None) -> Outcome:
    return Outcome(kind=OutcomeKind.CRASHED, crash=Crash(kind=kind, message="boom"), delay=delay)


def plain(kind: OutcomeKind, **fields) -> Outcome:
    return Outcome(kind=kind, **fields)


# ------------------------------------------------------------------------ each kind, once


@each_case(
    ("kind", "state", "when_cancelled", "charge"),
    [
        (OutcomeKind.COMPLETED, State.COMPLETED, State.COMPLETED, Charge.NONE),
        (OutcomeKind.SNOOZED, State.QUEUED, State.CANCELLED, Charge.NONE),
        (OutcomeKind.RELEASED, State.QUEUED, State.CANCELLED, Charge.NONE),
        (OutcomeKind.CANCELLED, State.CANCELLED, State.CANCELLED, Charge.NONE),
        (OutcomeKind.DEAD, State.DEAD, State.DEAD, Charge.FAILURE),
    ],
)
def test_an_end_that_is_no_crash_moves_the_job_by_its_kind(kind, state, when_cancelled, charge):
    outcome = plain(kind, message="so it is", pid=9)
    moved = decide(facts(2, 4), outcome, no_jitter)
    assert (moved.state, moved.charge, moved.outcome) == (state, charge, kind.value)
    assert (moved.failures, moved.losses) == (2 + (charge is Charge.FAILURE), 4)
    assert (moved.job_id, moved.token, moved.message, moved.pid) == (1, 70, "so it is", 9)
    assert decide(facts(2, 4, cancel=True), outcome, no_jitter).state is when_cancelled


@each_case("cancel", [False, True])
@each_case(("failures", "dead"), [(0, False), (2, False), (3, True)])
@each_case("kind", FAILURES)
def test_a_failure_is_charged_to_retries_and_the_fourth_ends_the_job(kind, failures, dead, cancel):
    moved = decide(facts(failures, 10, cancel=cancel), crashed(kind), no_jitter)
    back = State.CANCELLED if cancel else State.QUEUED
    assert moved.state is (State.DEAD if dead else back)
    assert (moved.failures, moved.losses, moved.charge) == (failures + 1, 10, Charge.FAILURE)
    assert (moved.outcome, moved.message) == (kind.value, "boom")


@each_case("cancel", [False, True])
@each_case(("losses", "dead"), [(0, False), (9, False), (10, True)])
@each_case("kind", LOSSES)
def test_a_loss_is_charged_to_losses_and_the_eleventh_ends_the_job(kind, losses, dead, cancel):
    moved = decide(facts(3, losses, cancel=cancel), crashed(kind), no_jitter)
    back = State.CANCELLED if cancel else State.QUEUED
    assert moved.state is (State.DEAD if dead else back)
    assert (moved.failures, moved.losses, moved.charge) == (3, losses + 1, Charge.LOSS)


def test_undecodable_arguments_are_released_uncharged_after_a_pause():
    moved = decide(facts(3, 10), crashed(CrashKind.UNDECODABLE), no_jitter)
    assert (moved.state, moved.charge) == (State.QUEUED, Charge.NONE)
    assert (moved.failures, moved.losses) == (3, 10)
    assert moved.delay == UNDECODABLE_PAUSE_SECONDS
    assert moved.doubles_to == UNDECODABLE_PAUSE_MAX_SECONDS


def test_only_the_pause_of_an_undecodable_job_grows_with_repeats():
    others = [crashed(kind) for kind in CrashKind if kind is not CrashKind.UNDECODABLE]
    assert {decide(facts(), end, no_jitter).doubles_to for end in others} == {0.0}


def test_no_retries_means_that_the_first_failure_ends_the_job():
    moved = decide(facts(retries=0), crashed(CrashKind.ERROR), no_jitter)
    assert (moved.state, moved.delay) == (State.DEAD, 0.0)


def test_a_crash_without_a_report_is_an_error_of_the_caller():
    with pytest.raises(ValueError, match="crash report"):
        decide(facts(), plain(OutcomeKind.CRASHED), no_jitter)


# ------------------------------------------------------------------------ when it goes on


def test_a_completion_carries_its_result():
    moved = decide(facts(), plain(OutcomeKind.COMPLETED, result='{"a":1}'), no_jitter)
    assert moved.result == '{"a":1}'


def test_a_failed_attempt_waits_for_its_back_off():
    assert decide(facts(0), crashed(CrashKind.ERROR), no_jitter).delay == 2.0
    assert decide(facts(2), crashed(CrashKind.ERROR), no_jitter).delay == 8.0


def test_the_first_death_of_a_process_is_retried_at_once():
    assert decide(facts(0), crashed(CrashKind.SIGNALLED), no_jitter).delay == 0.0
    assert decide(facts(1), crashed(CrashKind.SIGNALLED), no_jitter).delay == 2.0
    assert decide(facts(0, 0), crashed(CrashKind.LOST_WORKER), no_jitter).delay == 0.0
    assert decide(facts(0, 1), crashed(CrashKind.LOST_WORKER), no_jitter).delay == 2.0


@each_case(
    ("wish", "delay"),
    [
        (30.0, 30.0),
        (0.0, 0.0),
        (-5.0, 0.0),
        (math.nan, 0.0),
        (math.inf, DELAY_SECONDS_MAX),
        (1e300, DELAY_SECONDS_MAX),
    ],
)
def test_a_delay_wanted_by_the_task_is_bounded(wish, delay):
    assert decide(facts(), plain(OutcomeKind.SNOOZED, delay=wish), no_jitter).delay == delay
    assert decide(facts(), plain(OutcomeKind.RELEASED, delay=wish), no_jitter).delay == delay
    assert decide(facts(), crashed(CrashKind.ERROR, wish), no_jitter).delay == delay


def test_a_cancelled_job_does_not_wait():
    snoozed = plain(OutcomeKind.SNOOZED, delay=60.0)
    assert decide(facts(cancel=True), snoozed, no_jitter).delay == 0.0


# ---------------------------------------------------------------------------- properties

budgets = st.integers(0, 20)
outcomes = st.builds(
    lambda kind, crash, delay: Outcome(
        kind=kind, crash=Crash(kind=crash) if kind is OutcomeKind.CRASHED else None, delay=delay
    ),
    st.sampled_from(OutcomeKind),
    st.sampled_from(CrashKind),
    st.none() | st.floats(),
)
policies = st.builds(Policy, retries=budgets, max_losses=budgets)
chances = st.floats(0, 1, exclude_max=True)


@st.composite
def running_jobs(draw):
    """Any job that can be running: its budgets are not used up."""
    policy = draw(policies)
    return JobFacts(
        job_id=1,
        token=2,
        failures=draw(st.integers(0, policy.retries)),
        losses=draw(st.integers(0, policy.max_losses)),
        policy=policy,
        cancel_requested=draw(st.booleans()),
    )


@given(running_jobs(), outcomes, chances)
def test_every_outcome_gives_a_legal_transition_that_names_the_attempt(job, outcome, chance):
    moved = decide(job, outcome, lambda: chance)
    assert moved.state in TRANSITIONS[State.RUNNING]
    assert (moved.job_id, moved.token) == (job.job_id, job.token)
    assert 0.0 <= moved.delay <= DELAY_SECONDS_MAX
    assert moved.state is State.QUEUED or moved.delay == 0.0


@given(running_jobs(), outcomes, chances)
def test_an_end_charges_one_budget_at_most_and_none_is_exceeded_in_the_queue(job, outcome, chance):
    moved = decide(job, outcome, lambda: chance)
    charged = (moved.failures - job.failures, moved.losses - job.losses)
    assert (
        charged
        == {
            Charge.NONE: (0, 0),
            Charge.FAILURE: (1, 0),
            Charge.LOSS: (0, 1),
        }[moved.charge]
    )
    if moved.state is State.QUEUED:
        assert moved.failures <= job.policy.retries
        assert moved.losses <= job.policy.max_losses


@given(running_jobs(), outcomes, chances)
def test_a_cancel_request_beats_every_way_back_and_a_completion_beats_the_request(
    job, outcome, chance
):
    moved = decide(job, outcome, lambda: chance)
    if outcome.kind is OutcomeKind.COMPLETED:
        assert moved.state is State.COMPLETED
    elif job.cancel_requested:
        assert moved.state in {State.CANCELLED, State.DEAD}


@given(st.lists(outcomes, max_size=60), policies, chances)
def test_no_history_runs_for_ever_on_charged_ends(history, policy, chance):
    job = JobFacts(job_id=1, token=1, policy=policy)
    charged = 0
    for outcome in history:
        moved = decide(job, outcome, lambda: chance)
        charged += moved.charge is not Charge.NONE
        if moved.state in ENDED:
            break
        job = JobFacts(
            job_id=1,
            token=job.token + 1,
            failures=moved.failures,
            losses=moved.losses,
            policy=policy,
        )
    assert charged <= policy.retries + policy.max_losses + 1
