"""A worker empties itself for an exclusive job, and starves no other job for it."""

from __future__ import annotations

import pytest

from outlast.model.job import ALONE_IN_RUNNER, ALONE_IN_WORKER
from outlast.store.values import ClaimRequest
from outlast.worker.claims.exchange import (
    CLEARING_EVERY_SECONDS,
    CLEARING_SECONDS,
    VAIN_SECONDS,
    ExclusiveClaim,
)
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import COMPLETED, accepted, claimed, new_in_flight

USUAL = [ClaimRequest(["t"], 5)]
ALONE = ClaimRequest(["t"], 1, solo=2)
WAITS = accepted(0, solo_waiting=2)


class Bench:
    def __init__(self, least: int = ALONE_IN_WORKER) -> None:
        self.clock = ManualClock(boot=1000.0)
        self.in_flight = new_in_flight(self.clock)
        self.alone = ExclusiveClaim(self.in_flight, self.clock, least)

    def requests(self) -> list[ClaimRequest]:
        return self.alone.choose(lambda: USUAL, lambda solo: ClaimRequest(["t"], 1, solo=solo))

    def trip(self, reply) -> bool:
        """Ask for what fits, and take the reply."""
        return self.alone.take_reply(self.requests(), reply)

    def runs(self, token: int, **fields) -> None:
        self.in_flight.claim([claimed(token, **fields)])

    def ends(self, token: int) -> None:
        self.in_flight.end(token, COMPLETED)
        for end in self.in_flight.take(1):
            self.in_flight.take_answers([end], ["accepted"])  # type: ignore[list-item]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_without_waiting_exclusive_jobs_requests_are_ordinary(bench):
    assert bench.requests() == USUAL
    assert bench.trip(accepted(0)) is False
    assert bench.requests() == USUAL


def test_an_empty_worker_takes_the_job_at_once_and_nothing_beside_it(bench):
    assert bench.trip(WAITS) is True, "without waiting for the next poll"
    assert bench.requests() == [ALONE]
    bench.alone.take_reply([ALONE], accepted(0, claimed=[claimed(1, solo=2)]))
    bench.runs(1, solo=2)
    assert bench.requests() == []
    bench.ends(1)
    assert bench.requests() == USUAL


def test_an_exclusive_job_taken_elsewhere_lets_ordinary_claims_go_on(bench):
    bench.trip(WAITS)
    assert bench.requests() == [ALONE]
    assert bench.alone.take_reply([ALONE], accepted(0)) is True
    assert bench.requests() == USUAL
    assert bench.trip(WAITS) is False, "not in a tight loop"
    assert bench.requests() == USUAL
    bench.clock.advance(VAIN_SECONDS)
    assert bench.requests() == [ALONE]


def test_a_busy_worker_claims_nothing_for_a_moment_to_become_empty(bench):
    bench.runs(1)
    bench.trip(WAITS)
    assert bench.requests() == []
    bench.clock.advance(CLEARING_SECONDS / 2)
    assert bench.requests() == []
    bench.ends(1)
    assert bench.requests() == [ALONE]


def test_emptying_is_bounded_in_time_and_not_repeated_soon(bench):
    bench.runs(1)
    bench.trip(WAITS)
    bench.clock.advance(CLEARING_SECONDS)
    assert bench.requests() == USUAL
    bench.runs(2)
    bench.ends(1)
    bench.trip(WAITS)
    assert bench.requests() == USUAL, "it had its turn"
    bench.clock.advance(CLEARING_EVERY_SECONDS)
    bench.runs(3)
    bench.ends(2)
    bench.trip(WAITS)
    assert bench.requests() == []


def test_a_worker_with_long_jobs_does_not_empty_itself_in_vain(bench):
    bench.runs(1)
    bench.clock.advance(CLEARING_SECONDS)
    bench.trip(WAITS)
    assert bench.requests() == USUAL
    bench.ends(1)
    assert bench.requests() == [ALONE], "and it takes the first quiet moment"


def test_emptying_ends_when_the_exclusive_job_is_gone(bench):
    bench.runs(1)
    bench.trip(WAITS)
    bench.alone.take_reply(USUAL, accepted(0))
    assert bench.requests() == USUAL


def test_a_trip_without_requests_changes_nothing(bench):
    bench.runs(1)
    bench.trip(WAITS)
    bench.alone.take_reply([], accepted(1))
    assert bench.requests() == []


def test_suspects_of_runners_do_not_empty_the_worker_unless_in_process():
    assert Bench().trip(accepted(0, solo_waiting=1)) is False
    local = Bench(ALONE_IN_RUNNER)
    assert local.trip(accepted(0, solo_waiting=1)) is True
    assert local.requests() == [ClaimRequest(["t"], 1, solo=1)]
    local.runs(1, solo=1)
    assert local.requests() == []
