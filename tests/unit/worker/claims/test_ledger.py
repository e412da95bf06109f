"""The ledger: a token is held from its claim to the store's answer about its end."""

from __future__ import annotations

import pytest

from outlast.model.crash import CrashKind, Progress
from outlast.model.job import Policy, State
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.store.protocol import OUTCOMES_MAX
from outlast.store.values import Answer, Save
from outlast.worker.service import Nudge
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import (
    COMPLETED,
    RELEASED,
    claimed,
    crash,
    heard,
    heard_fields,
    new_ledger,
)


@pytest.fixture
def clock():
    return ManualClock(boot=0.0)


@pytest.fixture
def ledger(clock):
    return new_ledger(clock)


# ------------------------------------------------------------------------- held, to the end


def test_a_token_is_held_from_its_claim_to_the_answer_about_its_end(ledger):
    assert ledger.is_empty()
    ledger.claim([claimed(7)])
    assert (ledger.held(), ledger.is_empty()) == ({7}, False)
    ledger.end(7, COMPLETED)
    assert (ledger.held(), ledger.is_empty()) == ({7}, False)
    (end,) = ledger.take(10)
    assert (ledger.held(), ledger.is_empty()) == ({7}, False)
    ledger.take_answers([end], [Answer.ACCEPTED])
    assert (ledger.held(), ledger.is_empty()) == (set(), True)


def test_a_start_is_reported_once_and_before_the_end(ledger):
    with heard() as names:
        ledger.claim([claimed(7), claimed(8)])
        assert names == [], "they have to begin first"
        ledger.end(7, COMPLETED)
        ledger.tell_begun()
    assert names == ["attempt_started", "attempt_started", "attempt_ended"]


@pytest.mark.parametrize("answer", [Answer.ACCEPTED, Answer.ALREADY, Answer.REFUSED])
def test_any_answer_but_busy_releases_the_token(ledger, answer):
    ledger.claim([claimed(7)])
    ledger.end(7, COMPLETED)
    (end,) = ledger.take(10)
    with heard() as names:
        ledger.take_answers([end], [answer])
    assert ledger.is_empty()
    assert ("attempt_refused" in names) is (answer is Answer.REFUSED)


def test_a_busy_end_is_held_and_handed_in_again_behind_the_others(ledger):
    for token in (1, 2):
        ledger.claim([claimed(token)])
        ledger.end(token, COMPLETED)
    (first,) = ledger.take(1)
    ledger.take_answers([first], [Answer.BUSY])
    assert ledger.held() == {1, 2}
    assert [end.token for end in ledger.take(10)] == [2, 1]


def test_ends_are_handed_in_in_their_order_and_no_more_than_asked(ledger):
    for token in range(5):
        ledger.claim([claimed(token)])
    for token in (3, 0, 4, 1, 2):
        ledger.end(token, COMPLETED)
    assert [end.token for end in ledger.take(2)] == [3, 0]
    assert [end.token for end in ledger.take(10)] == [4, 1, 2]
    assert ledger.take(10) == []


def test_ends_that_are_given_back_go_first_and_in_their_order(ledger):
    for token in range(4):
        ledger.claim([claimed(token)])
        ledger.end(token, COMPLETED)
    batch = ledger.take(3)
    ledger.give_back(batch)
    assert ledger.held() == {0, 1, 2, 3}
    assert [end.token for end in ledger.take(10)] == [0, 1, 2, 3]


def test_an_end_that_was_answered_is_not_given_back(ledger):
    for token in range(2):
        ledger.claim([claimed(token)])
        ledger.end(token, COMPLETED)
    batch = ledger.take(2)
    ledger.take_answers([batch[0]], [Answer.ACCEPTED])
    ledger.give_back(batch)
    ledger.give_back(batch)
    assert [end.token for end in ledger.take(10)] == [1]


def test_a_second_end_of_an_attempt_is_dropped(clock):
    nudge = Nudge()
    ledger = new_ledger(clock, nudge)
    ledger.claim([claimed(7)])
    ledger.end(7, COMPLETED)
    assert nudge.is_given
    nudge.take()
    ledger.end(7, crash())
    ledger.end(8, COMPLETED)
    assert not nudge.is_given
    assert [end.state for end in ledger.take(10)] == [State.COMPLETED]


def test_ends_that_gather_ask_for_a_trip_when_they_fill_one(clock):
    nudge = Nudge()
    ledger = new_ledger(clock, nudge)
    ledger.claim([claimed(token) for token in range(OUTCOMES_MAX)])
    ledger.gather(wanted=True)
    for token in range(OUTCOMES_MAX):
        assert not nudge.is_given
        ledger.end(token, COMPLETED)
    assert nudge.is_given


def test_the_highest_token_ever_seen_is_remembered(ledger):
    for token in (5, 9, 7):
        ledger.claim([claimed(token)])
        ledger.end(token, COMPLETED)
    assert ledger.token_seen == 9


# -------------------------------------------------------------------------- what is decided


def test_a_cancelled_attempt_does_not_go_back_to_the_queue(ledger):
    ledger.claim([claimed(7)])[0].stop_reason = "cancel"
    ledger.end(7, RELEASED)
    assert ledger.take(1)[0].state is State.CANCELLED


@pytest.mark.parametrize("reason", [None, "drain", "timeout", "lease_lost"])
def test_other_reasons_to_stop_cancel_nothing(ledger, reason):
    ledger.claim([claimed(7)])[0].stop_reason = reason
    ledger.end(7, RELEASED)
    assert ledger.take(1)[0].state is State.QUEUED


@pytest.mark.parametrize(
    ("path", "losses"), [([True], 10), ([False], 1), ([False, True], 10), ([True, False], 1)]
)
def test_what_counts_is_where_an_attempt_leaves_its_job(ledger, path, losses):
    ledger.claim([claimed(1, losses=9, checkpoint='{"n":1}')])
    for number, again in enumerate(path, 1):
        ledger.note_save(Save(1, 1, number, "…", ledger.losses_with_save(1, again=again)))
    ledger.end(1, crash(CrashKind.LOST_LEASE))
    assert ledger.take(1)[0].losses == losses


def test_a_save_of_an_unknown_attempt_is_fine(ledger):
    ledger.note_save(Save(3, 3, 1, "1", ledger.losses_with_save(3, again=True)))


def test_saves_and_reports_are_signs_of_life(ledger, clock):
    (running,) = ledger.claim([claimed(7)])
    clock.advance(5.0)
    ledger.note_progress(7, Progress(0.5))
    assert running.last_sign_at == 5.0
    clock.advance(5.0)
    ledger.note_save(Save(7, 7, 1, "1"))
    assert running.last_sign_at == 10.0
    ledger.note_progress(8, Progress(0.5))


# ---------------------------------------------------------------------------------- rejects


def test_a_result_that_does_not_fit_is_reported_without_secrets():
    ledger = new_ledger(redact=["s3cret"])
    ledger.claim([claimed(1)])
    with heard_fields() as told:
        ledger.end(1, Outcome(kind=OutcomeKind.COMPLETED, result="1", message="no s3cret"))
    fields = dict(told)["result_mismatched"]
    assert (fields["job_id"], fields["token"], fields["task"]) == (1, 1, "t")
    assert fields["error"] == "no [redacted]"
    assert ledger.take(1)[0].state is State.COMPLETED


def test_a_rejected_result_is_decided_by_the_job_s_own_policy(ledger):
    ledger.claim([claimed(1, failures=5, policy=Policy(retries=5))])
    ledger.claim([claimed(2, failures=5, policy=Policy(retries=6))])
    for token in (1, 2):
        ledger.end(token, COMPLETED)
    ends = [ledger.reject(end) for end in ledger.take(2)]
    assert [end.state for end in ends] == [State.DEAD, State.QUEUED]
    assert [end.outcome for end in ends] == ["rejected_result"] * 2
    assert [end.failures for end in ends] == [6, 6]


def test_a_rejected_result_of_a_cancelled_job_ends_as_cancelled(ledger):
    ledger.claim([claimed(1)])[0].stop_reason = "cancel"
    ledger.end(1, COMPLETED)
    assert ledger.reject(ledger.take(1)[0]).state is State.CANCELLED


def test_an_end_can_be_rejected_again_after_it_was_busy(ledger):
    ledger.claim([claimed(1)])
    ledger.end(1, COMPLETED)
    for _ in range(2):
        (end,) = ledger.take(1)
        assert ledger.reject(end).outcome == "rejected_result"
        ledger.take_answers([end], [Answer.BUSY])


# ------------------------------------------------------------------------------ complete_in


def test_a_return_after_complete_in_becomes_a_check(ledger):
    ledger.claim([claimed(1)])
    ledger.end(1, COMPLETED, completed_in=True)
    (end,) = ledger.take(1)
    assert end.outcome == "completion_not_committed"
    assert (end.state, end.failures, end.result) == (State.QUEUED, 1, None)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer.ALREADY, ("completed", "completed")),
        (Answer.ACCEPTED, ("completion_not_committed", "queued")),
        (Answer.REFUSED, ("completion_not_committed", "queued")),
    ],
)
def test_the_end_of_a_complete_in_is_reported_after_the_stores_answer(ledger, clock, answer, told):
    with heard_fields() as events:
        ledger.claim([claimed(1)])
        clock.advance(2.0)
        ledger.end(1, COMPLETED, completed_in=True)
        clock.advance(3.0)
        ledger.take_answers(ledger.take(1), [Answer.BUSY])
        assert [name for name, _ in events] == ["attempt_started"]
        ledger.take_answers(ledger.take(1), [answer])
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
def test_an_exception_after_complete_in_counts_since_the_transaction_rolled_back(ledger, outcome):
    """A drain, for example, must not charge it, and an error must keep its traceback."""
    ledger.claim([claimed(1)])
    ledger.end(1, outcome, completed_in=True)
    ledger.claim([claimed(2)])
    ledger.end(2, outcome)
    checked, plain = ledger.take(2)
    assert (checked.outcome, checked.state, checked.failures, checked.message) == (
        plain.outcome,
        plain.state,
        plain.failures,
        plain.message,
    )
