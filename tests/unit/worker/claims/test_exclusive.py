"""A worker becomes empty for a job that must have it to itself, and starves nobody for it."""

from __future__ import annotations

import pytest

from outlast.model.job import ALONE_IN_RUNNER, ALONE_IN_WORKER
from outlast.store.values import ClaimRequest
from outlast.testing import ManualClock
from outlast.worker.claims.exclusive import (
    TURN_EVERY_SECONDS,
    TURN_SECONDS,
    VAIN_SECONDS,
    ExclusiveClaim,
)
from tests.unit.worker.worker_kit import COMPLETED, accepted, claimed, new_ledger

USUAL = [ClaimRequest(["t"], 5)]
ALONE = ClaimRequest(["t"], 1, solo=2)
WAITS = accepted(0, solo_waiting=2)


class Bench:
    def __init__(self, least: int = ALONE_IN_WORKER) -> None:
        self.clock = ManualClock(boot=1000.0)
        self.ledger = new_ledger(self.clock)
        self.alone = ExclusiveClaim(self.ledger, self.clock, least)

    def requests(self) -> list[ClaimRequest]:
        return self.alone.choose(lambda: USUAL, lambda solo: ClaimRequest(["t"], 1, solo=solo))

    def trip(self, reply) -> bool:
        """Ask for what there is room for, and take the reply."""
        return self.alone.take_reply(self.requests(), reply)

    def runs(self, token: int, **fields) -> None:
        self.ledger.claim([claimed(token, **fields)])

    def ends(self, token: int) -> None:
        self.ledger.end(token, COMPLETED)
        for end in self.ledger.take(1):
            self.ledger.answered([end], ["accepted"])  # type: ignore[list-item]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_while_nothing_waits_the_usual_is_asked_for(bench):
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


def test_a_job_that_another_worker_took_keeps_nobody_from_the_usual(bench):
    bench.trip(WAITS)
    assert bench.requests() == [ALONE]
    assert bench.alone.take_reply([ALONE], accepted(0)) is True
    assert bench.requests() == USUAL
    assert bench.trip(WAITS) is False, "not in a tight loop"
    assert bench.requests() == USUAL
    bench.clock.advance(VAIN_SECONDS)
    assert bench.requests() == [ALONE]


def test_a_busy_worker_takes_nothing_for_a_moment_to_become_empty(bench):
    bench.runs(1)
    bench.trip(WAITS)
    assert bench.requests() == []
    bench.clock.advance(TURN_SECONDS / 2)
    assert bench.requests() == []
    bench.ends(1)
    assert bench.requests() == [ALONE]


def test_the_moment_ends_and_does_not_come_again_for_a_while(bench):
    bench.runs(1)
    bench.trip(WAITS)
    bench.clock.advance(TURN_SECONDS)
    assert bench.requests() == USUAL
    bench.runs(2)
    bench.ends(1)
    bench.trip(WAITS)
    assert bench.requests() == USUAL, "it had its turn"
    bench.clock.advance(TURN_EVERY_SECONDS)
    bench.runs(3)
    bench.ends(2)
    bench.trip(WAITS)
    assert bench.requests() == []


def test_where_something_has_run_for_long_the_worker_is_not_idle_for_nothing(bench):
    bench.runs(1)
    bench.clock.advance(TURN_SECONDS)
    bench.trip(WAITS)
    assert bench.requests() == USUAL
    bench.ends(1)
    assert bench.requests() == [ALONE], "and it takes the first quiet moment"


def test_a_job_that_does_not_wait_any_more_ends_the_turn(bench):
    bench.runs(1)
    bench.trip(WAITS)
    bench.alone.take_reply(USUAL, accepted(0))
    assert bench.requests() == USUAL


def test_a_trip_without_rooms_has_nothing_to_tell(bench):
    bench.runs(1)
    bench.trip(WAITS)
    bench.alone.take_reply([], accepted(1))
    assert bench.requests() == []


def test_a_suspect_of_a_runner_is_no_business_of_the_whole_worker_unless_it_is_in_process():
    assert Bench().trip(accepted(0, solo_waiting=1)) is False
    local = Bench(ALONE_IN_RUNNER)
    assert local.trip(accepted(0, solo_waiting=1)) is True
    assert local.requests() == [ClaimRequest(["t"], 1, solo=1)]
    local.runs(1, solo=1)
    assert local.requests() == []
