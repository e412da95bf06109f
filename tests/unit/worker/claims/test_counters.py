"""What a worker counts."""

from __future__ import annotations

import pytest

from outlast.model.lease import DeathCause
from outlast.model.lifecycle import OutcomeKind
from outlast.runner.protocol import End
from outlast.store.minutes import BOUNDS, OTHER, Counted, CountKind
from outlast.store.values import Answer
from outlast.worker.base import Running
from outlast.worker.claims import counters as counters_module
from outlast.worker.claims.counters import Counters
from outlast.worker.claims.in_flight import InFlight
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import COMPLETED, RELEASED, claimed, crash, new_in_flight


def handed_in(in_flight: InFlight, answer: Answer = Answer.ACCEPTED) -> None:
    batch = in_flight.take(100)
    in_flight.take_answers(batch, [answer] * len(batch))


def named(counted: list[Counted]) -> dict[tuple[str, str, str], int]:
    return {(each.queue, each.task, each.outcome): each.jobs for each in counted}


def test_ends_are_counted_by_queue_task_and_outcome() -> None:
    in_flight = new_in_flight()
    in_flight.claim([claimed(1), claimed(2, "u", queue="mail"), claimed(3), claimed(4)])
    ends = [End(1, COMPLETED), End(2, COMPLETED), End(3, crash()), End(4, RELEASED)]
    in_flight.end_all(ends)
    assert in_flight.counters.take() == []  # the store has not answered yet
    handed_in(in_flight)
    assert named(in_flight.counters.take()) == {
        ("default", "t", "completed"): 1,
        ("mail", "u", "completed"): 1,
        ("default", "t", "error"): 1,
        ("default", "t", "released"): 1,
    }
    assert in_flight.counters.take() == []


def test_how_long_an_attempt_ran_ends_with_its_end_and_not_with_the_answer() -> None:
    clock = ManualClock()
    in_flight = new_in_flight(clock)
    in_flight.claim([claimed(1, waited=0.2), claimed(2, waited=-3.0, number=2)])
    clock.advance(4.0)
    in_flight.end_all([End(1, COMPLETED), End(2, COMPLETED)])
    clock.advance(1_000.0)
    handed_in(in_flight)
    (counted,) = in_flight.counters.take()
    assert (counted.jobs, counted.firsts, counted.seconds, counted.waited) == (2, 1, 8.0, 0.2)
    assert counted.durations[BOUNDS.index(5.0)] == 2
    assert [counted.waits[0], counted.waits[BOUNDS.index(0.25)]] == [1, 1]


def test_a_refused_end_is_no_end_and_one_already_written_is_counted_once() -> None:
    in_flight = new_in_flight()
    in_flight.claim([claimed(1), claimed(2)])
    in_flight.end(1, COMPLETED)
    handed_in(in_flight, Answer.REFUSED)
    in_flight.end(2, COMPLETED)
    batch = in_flight.take(1)
    in_flight.give_back(batch)  # the reply was lost
    handed_in(in_flight, Answer.ALREADY)
    kinds = {(each.kind, each.outcome): each.jobs for each in in_flight.counters.take()}
    assert kinds == {(CountKind.ATTEMPT, "completed"): 1, (CountKind.REFUSAL, "end"): 1}


def test_a_busy_end_is_counted_when_it_is_accepted() -> None:
    in_flight = new_in_flight()
    in_flight.claim([claimed(1)])
    in_flight.end(1, COMPLETED)
    handed_in(in_flight, Answer.BUSY)
    assert in_flight.counters.take() == []
    handed_in(in_flight)
    assert named(in_flight.counters.take()) == {("default", "t", "completed"): 1}


def test_a_completion_in_the_task_s_own_transaction_counts_as_what_it_was() -> None:
    in_flight = new_in_flight()
    in_flight.claim([claimed(1), claimed(2)])
    in_flight.end_all([End(token, COMPLETED, completed_in=True) for token in (1, 2)])
    batch = in_flight.take(2)
    in_flight.take_answers(batch, [Answer.ALREADY, Answer.ACCEPTED])
    assert named(in_flight.counters.take()) == {
        ("default", "t", "completed"): 1,
        ("default", "t", "completion_not_committed"): 1,
    }


def test_a_rejected_result_counts_as_that() -> None:
    in_flight = new_in_flight()
    in_flight.claim([claimed(1)])
    in_flight.end(1, COMPLETED)
    batch = in_flight.take(1)
    in_flight.reject(batch[0])
    in_flight.take_answers(batch, [Answer.ACCEPTED])
    assert named(in_flight.counters.take()) == {("default", "t", "rejected_result"): 1}


def test_what_others_left_behind_counts_without_a_duration() -> None:
    counters = Counters()
    counters.note_reclaimed("q", "t", "lost_worker")
    counters.note_death(DeathCause.SILENCE)
    counters.note_death(DeathCause.SILENCE)
    attempt, death = counters.take()
    assert (attempt.outcome, attempt.jobs, sum(attempt.durations)) == ("lost_worker", 1, 0)
    assert (death.kind, death.outcome, death.jobs) == (CountKind.DEATH, DeathCause.SILENCE.value, 2)


def test_too_many_lanes_are_counted_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters_module, "LANES_MAX", 2)
    counters = Counters()
    for number in (1, 2, 3, 4, 1):
        running = Running(claimed(number, f"t{number}"), number, 0.0, 0.0, losses=0)
        counters.note_ends([(running, str(OutcomeKind.COMPLETED))])
    counts = named(counters.take())
    assert counts == {
        ("default", "t1", "completed"): 2,
        ("default", "t2", "completed"): 1,
        (OTHER, OTHER, "completed"): 2,
    }


def test_a_clock_that_was_set_spoils_no_sum() -> None:
    counters = Counters()
    wild = [float("inf"), float("-inf"), float("nan"), 1e300]
    for value in wild:
        running = Running(claimed(1, waited=value), 1, 0.0, 0.0, losses=0)
        running.ended_at = value
        counters.note_ends([(running, "completed")])
    (counted,) = counters.take()
    assert (counted.jobs, counted.seconds, counted.waited) == (4, 0.0, 0.0)
    assert (sum(counted.durations), sum(counted.waits)) == (4, 4)
