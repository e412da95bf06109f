"""Attempts in flight: a token is held from its claim to the store's answer about its end."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.model.crash import CrashKind, Progress
from outlast.model.job import Policy, State
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.store.protocol import OUTCOMES_MAX
from outlast.store.values import Answer, ClaimRequest, Save
from outlast.worker.claims.pacing import GATHER_SECONDS
from tests.unit.worker import worker_kit
from tests.unit.worker.worker_kit import (
    COMPLETED,
    RELEASED,
    accepted,
    claimed,
    crash,
    heard,
    heard_fields,
    new_in_flight,
    new_plan,
)

clock, in_flight = worker_kit.clock, worker_kit.in_flight


# ------------------------------------------------------------------------- held, to the end


def test_a_token_is_held_from_its_claim_to_the_answer_about_its_end(in_flight):
    assert in_flight.is_empty()
    in_flight.claim([claimed(7)])
    assert (in_flight.held(), in_flight.is_empty()) == ({7}, False)
    in_flight.end(7, COMPLETED)
    assert (in_flight.held(), in_flight.is_empty()) == ({7}, False)
    (end,) = in_flight.take(10)
    assert (in_flight.held(), in_flight.is_empty()) == ({7}, False)
    in_flight.take_answers([end], [Answer.ACCEPTED])
    assert (in_flight.held(), in_flight.is_empty()) == (set(), True)


def test_a_start_is_reported_once_and_before_the_end(in_flight):
    with heard() as names:
        in_flight.claim([claimed(7), claimed(8)])
        assert names == [], "they have to begin first"
        in_flight.end(7, COMPLETED)
        in_flight.tell_begun()
    assert names == ["attempt_started", "attempt_started", "attempt_ended"]


@pytest.mark.parametrize("answer", [Answer.ACCEPTED, Answer.ALREADY, Answer.REFUSED])
def test_any_answer_but_busy_releases_the_token(in_flight, answer):
    in_flight.claim([claimed(7)])
    in_flight.end(7, COMPLETED)
    (end,) = in_flight.take(10)
    with heard() as names:
        in_flight.take_answers([end], [answer])
    assert in_flight.is_empty()
    assert ("attempt_refused" in names) is (answer is Answer.REFUSED)


def test_a_busy_end_is_held_and_handed_in_again_behind_the_others(in_flight):
    for token in (1, 2):
        in_flight.claim([claimed(token)])
        in_flight.end(token, COMPLETED)
    (first,) = in_flight.take(1)
    in_flight.take_answers([first], [Answer.BUSY])
    assert in_flight.held() == {1, 2}
    assert [end.token for end in in_flight.take(10)] == [2, 1]


def test_an_end_that_was_answered_is_not_given_back(in_flight):
    for token in range(2):
        in_flight.claim([claimed(token)])
        in_flight.end(token, COMPLETED)
    batch = in_flight.take(2)
    in_flight.take_answers([batch[0]], [Answer.ACCEPTED])
    in_flight.give_back(batch)
    in_flight.give_back(batch)
    assert [end.token for end in in_flight.take(10)] == [1]


async def test_a_second_end_of_an_attempt_is_dropped(clock):
    plan = new_plan(clock)
    in_flight, nudge = new_in_flight(clock, plan), plan.nudge
    in_flight.claim([claimed(7)])
    rest = nudge.wait(None)
    in_flight.end(7, COMPLETED)
    assert rest.done()
    rest = nudge.wait(None)
    in_flight.end(7, crash())
    in_flight.end(8, COMPLETED)
    assert not rest.done()
    assert [end.state for end in in_flight.take(10)] == [State.COMPLETED]


async def test_ends_that_gather_ask_for_a_trip_when_they_fill_one(clock):
    plan = new_plan(clock)
    in_flight, nudge = new_in_flight(clock, plan), plan.nudge
    in_flight.claim([claimed(token) for token in range(OUTCOMES_MAX)])
    requests, filled = [ClaimRequest(["t"], 1)], accepted(0, claimed=[claimed(OUTCOMES_MAX)])
    more: dict[str, Any] = {"tasks": ["t"], "is_running": True, "ahead": 2 * OUTCOMES_MAX}
    assert plan.take_reply(requests, filled, 0, **more) == GATHER_SECONDS
    rest = nudge.wait(None)
    for token in range(OUTCOMES_MAX):
        assert not rest.done()
        in_flight.end(token, COMPLETED)
    assert rest.done()


def test_the_highest_token_ever_seen_is_remembered(in_flight):
    for token in (5, 9, 7):
        in_flight.claim([claimed(token)])
        in_flight.end(token, COMPLETED)
    assert in_flight.token_seen == 9


# -------------------------------------------------------------------------- what is decided


def test_a_cancelled_attempt_does_not_go_back_to_the_queue(in_flight):
    in_flight.claim([claimed(7)])[0].stop_reason = "cancel"
    in_flight.end(7, RELEASED)
    assert in_flight.take(1)[0].state is State.CANCELLED


@pytest.mark.parametrize("reason", [None, "drain", "timeout", "lease_lost"])
def test_other_reasons_to_stop_cancel_nothing(in_flight, reason):
    in_flight.claim([claimed(7)])[0].stop_reason = reason
    in_flight.end(7, RELEASED)
    assert in_flight.take(1)[0].state is State.QUEUED


@pytest.mark.parametrize(
    ("path", "losses"), [([True], 10), ([False], 1), ([False, True], 10), ([True, False], 1)]
)
def test_what_counts_is_where_an_attempt_leaves_its_job(in_flight, path, losses):
    in_flight.claim([claimed(1, losses=9, checkpoint='{"n":1}')])
    for number, again in enumerate(path, 1):
        in_flight.note_save(Save(1, 1, number, "…", in_flight.losses_with_save(1, again=again)))
    in_flight.end(1, crash(CrashKind.LOST_LEASE))
    assert in_flight.take(1)[0].losses == losses


def test_a_save_of_an_unknown_attempt_is_fine(in_flight):
    in_flight.note_save(Save(3, 3, 1, "1", in_flight.losses_with_save(3, again=True)))
    assert not in_flight.held()


def test_saves_and_reports_are_signs_of_life(in_flight, clock):
    (running,) = in_flight.claim([claimed(7)])
    clock.advance(5.0)
    in_flight.note_progress(7, Progress(0.5))
    assert running.last_sign_at == 5.0
    clock.advance(5.0)
    in_flight.note_save(Save(7, 7, 1, "1"))
    assert running.last_sign_at == 10.0
    in_flight.note_progress(8, Progress(0.5))


# ---------------------------------------------------------------------------------- rejects


def test_a_result_that_does_not_fit_is_reported_without_secrets():
    in_flight = new_in_flight(redact=["s3cret"])
    in_flight.claim([claimed(1)])
    with heard_fields() as told:
        in_flight.end(1, Outcome(kind=OutcomeKind.COMPLETED, result="1", message="no s3cret"))
    fields = dict(told)["result_mismatched"]
    assert (fields["job_id"], fields["token"], fields["task"]) == (1, 1, "t")
    assert fields["error"] == "no [redacted]"
    assert in_flight.take(1)[0].state is State.COMPLETED


def test_a_rejected_result_is_decided_by_the_job_s_own_policy(in_flight):
    in_flight.claim([claimed(1, failures=5, policy=Policy(retries=5))])
    in_flight.claim([claimed(2, failures=5, policy=Policy(retries=6))])
    for token in (1, 2):
        in_flight.end(token, COMPLETED)
    ends = [in_flight.reject(end) for end in in_flight.take(2)]
    assert [end.state for end in ends] == [State.DEAD, State.QUEUED]
    assert [end.outcome for end in ends] == ["rejected_result"] * 2
    assert [end.failures for end in ends] == [6, 6]


def test_a_rejected_result_of_a_cancelled_job_ends_as_cancelled(in_flight):
    in_flight.claim([claimed(1)])[0].stop_reason = "cancel"
    in_flight.end(1, COMPLETED)
    assert in_flight.reject(in_flight.take(1)[0]).state is State.CANCELLED


def test_an_end_can_be_rejected_again_after_it_was_busy(in_flight):
    in_flight.claim([claimed(1)])
    in_flight.end(1, COMPLETED)
    for _ in range(2):
        (end,) = in_flight.take(1)
        assert in_flight.reject(end).outcome == "rejected_result"
        in_flight.take_answers([end], [Answer.BUSY])


# ------------------------------------------------------------------------------ complete_in


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer.ALREADY, ("completed", "completed")),
        (Answer.ACCEPTED, ("completion_not_committed", "queued")),
        (Answer.REFUSED, ("completion_not_committed", "queued")),
    ],
)
def test_the_end_of_a_complete_in_is_reported_after_the_stores_answer(
    in_flight, clock, answer, told
):
    with heard_fields() as events:
        in_flight.claim([claimed(1)])
        clock.advance(2.0)
        in_flight.end(1, COMPLETED, completed_in=True)
        clock.advance(3.0)
        in_flight.take_answers(in_flight.take(1), [Answer.BUSY])
        assert [name for name, _ in events] == ["attempt_started"]
        in_flight.take_answers(in_flight.take(1), [answer])
    ends = [fields for name, fields in events if name == "attempt_ended"]
    assert [(each["outcome"], each["state"]) for each in ends] == [told]
    assert ends[0]["seconds"] == 2.0, "not those that its transaction took to commit"


@pytest.mark.parametrize(
    "outcome",
    [
        RELEASED,
        crash(message="its own words"),
        Outcome(kind=OutcomeKind.SNOOZED, delay=5.0),
        Outcome(kind=OutcomeKind.CANCELLED),
    ],
    ids=lambda outcome: outcome.kind.value,
)
def test_an_exception_after_complete_in_counts_since_the_transaction_rolled_back(
    in_flight, outcome
):
    """A drain, for example, must not charge it, and an error must keep its traceback."""
    in_flight.claim([claimed(1)])
    in_flight.end(1, outcome, completed_in=True)
    in_flight.claim([claimed(2)])
    in_flight.end(2, outcome)
    checked, plain = in_flight.take(2)
    assert (checked.outcome, checked.state, checked.failures, checked.message) == (
        plain.outcome,
        plain.state,
        plain.failures,
        plain.message,
    )
