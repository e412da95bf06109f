"""Prefetch: attempts claimed before there is a slot, as many as will start in a moment."""

from __future__ import annotations

import pytest

from outlast.model.job import Policy, State
from outlast.runner.protocol import AttemptsEnded, End, Stop
from outlast.store.values import ClaimRequest
from outlast.worker.claims.prefetch import (
    BEGIN_SECONDS,
    HORIZON_SECONDS,
    RATE_SECONDS,
    WAIT_SECONDS_MAX,
    Ahead,
)
from outlast.worker.runners import assignment
from outlast.worker.runners.assignment import CROWDED_EVERY_SECONDS
from tests.cases import each_case
from tests.manual_clock import ManualClock
from tests.unit.worker.runners.pool_kit import CONCURRENCY, OWN, SHARED, SIZE, Bench, own, shared
from tests.unit.worker.worker_kit import COMPLETED, claimed, new_in_flight

SLOTS = SIZE * CONCURRENCY
RATE = 100 / RATE_SECONDS  # ends per second of a pool that has been busy
AHEAD = int(RATE * HORIZON_SECONDS)


@pytest.fixture(autouse=True)
def _without_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits here would wait in its runner: tests/unit/worker/runners/test_stock.py."""
    monkeypatch.setattr(assignment, "STOCK_SECONDS", 0.0)


async def busy(**tasks: bool) -> Bench:
    """A pool whose attempts have lately ended at ``RATE``, with every slot taken."""
    bench = await Bench().ready(**tasks)
    bench.end_many(100)
    return bench


async def full_of_shared() -> Bench:
    bench = await busy(shared=False)
    half = (SLOTS + AHEAD) // 2
    assert bench.requests(0) == [ClaimRequest([SHARED], half, [])], "the other half runs meanwhile"
    bench.place(*(shared(n) for n in range(SLOTS + AHEAD)))
    assert bench.pool.starter.count_waiting() == AHEAD
    assert bench.ends() == []
    return bench


def ended(bench: Bench, *tokens: int) -> None:
    for token in tokens:
        runner = bench.pool.control.runner_of(token)
        assert runner is not None
        runner.says(AttemptsEnded([End(token, COMPLETED)]))  # type: ignore[attr-defined]


async def test_a_prefetched_attempt_with_a_timeout_does_not_begin_too_late() -> None:
    """As when its worker was stopped: the deadline on the row counts from the claim."""
    clock = ManualClock(boot=0.0)
    in_flight = new_in_flight(clock)
    limited = Policy(timeout=3.0)
    ahead = Ahead(in_flight, clock).shared
    ahead.line_up(in_flight.claim([claimed(1, policy=limited), claimed(2)]))
    clock.advance(BEGIN_SECONDS)
    ahead.line_up(in_flight.claim([claimed(3, policy=limited)]))
    assert [running.token for running in ahead.take(0)] == []
    assert len(ahead) == 3
    clock.advance(0.1)
    assert [running.token for running in ahead.take(2)] == [2, 3]
    (end,) = in_flight.ended
    assert (end.token, end.outcome, end.charge) == (1, "released", "none")


async def test_only_begun_attempts_are_noted_as_begun() -> None:
    bench = await full_of_shared()
    assert max(bench.owner.begun) == SLOTS - 1
    ended(bench, 0)
    assert bench.owner.begun[-1] == SLOTS


async def test_an_idle_pool_asks_for_no_more_than_its_slots() -> None:
    bench = await Bench().ready(shared=False)
    assert [request.limit for request in bench.requests(0)] == [SLOTS]
    bench.place(*(shared(n) for n in range(SLOTS + 1)))
    assert bench.outcomes() == ["released"], "what was not asked for does not wait"


async def test_prefetched_attempts_start_in_order_as_slots_become_free() -> None:
    bench = await full_of_shared()
    assert bench.requests(0) == [], "no more than the rate allows"
    bench.clock.advance(0.01)
    ended(bench, 0, 1)
    started = [token for runner in bench.runners for token in runner.runs()]
    assert sorted(started) == list(range(SLOTS + 2))
    assert bench.pool.starter.count_waiting() == AHEAD - 2
    assert bench.in_flight.running[SLOTS].started_at == bench.clock.boot(), "it begins now"


async def test_plain_functions_wait_for_an_idle_runner() -> None:
    bench = await busy(own=True)
    assert [request.limit for request in bench.requests(0)] == [SIZE, AHEAD]
    bench.place(*(own(n) for n in range(SIZE + AHEAD)))
    assert bench.pool.starter.count_waiting() == AHEAD
    ended(bench, 0)
    assert sum(len(runner.tokens) for runner in bench.runners) == SIZE
    assert bench.pool.control.has(SIZE)
    assert bench.pool.starter.count_waiting() == AHEAD - 1


async def test_prefetched_async_attempts_take_a_runner_that_became_idle() -> None:
    bench = await busy(own=True, shared=False)
    bench.requests(0)
    bench.place(*(shared(n) for n in range(SLOTS + AHEAD)))
    runner = bench.runners[0]
    runner.says(AttemptsEnded([End(token, COMPLETED) for token in sorted(runner.tokens)]))
    assert len(runner.tokens) == CONCURRENCY, "though nothing ran in it any more"
    assert bench.pool.starter.count_waiting() == AHEAD - CONCURRENCY


async def test_prefetched_attempts_take_the_slots_of_a_dead_runner() -> None:
    bench = await full_of_shared()
    bench.runners[0].dies(signal="SIGKILL")
    bench.pool.starter.give_back_late()
    assert bench.pool.starter.count_waiting() == AHEAD - CONCURRENCY


async def test_prefetched_attempts_survive_the_death_of_a_runner() -> None:
    bench = await full_of_shared()
    for runner in list(bench.runners):
        runner.dies(signal="SIGKILL")
    assert len(bench.ends()) == SLOTS
    assert bench.pool.starter.count_waiting() == AHEAD
    assert all(bench.pool.control.has(token) for token in bench.in_flight.running)


async def test_stopping_a_prefetched_attempt_ends_it_at_once_uncharged() -> None:
    bench = await full_of_shared()
    bench.pool.control.stop(SLOTS, "cancel")
    bench.pool.control.stop(SLOTS + 1, "lease_lost")
    bench.pool.control.kill(SLOTS + 2)
    first, second = bench.ends()
    assert (first.token, first.state) == (SLOTS, State.CANCELLED)
    assert (second.token, second.state, second.failures) == (SLOTS + 1, State.QUEUED, 0)
    assert not any(isinstance(frame, Stop) for each in bench.runners for frame in each.sent)


@each_case("why", ["draining", "not trusted", "closing"])
async def test_no_prefetched_attempt_begins_after_the_worker_stops_claiming(why: str) -> None:
    bench = await full_of_shared()
    if why == "draining":
        bench.owner.draining = True
    elif why == "closing":
        bench.pool._supervisor.closing = True
    else:
        bench.owner.trusted = False
    ended(bench, 0)
    outcomes = bench.outcomes()
    assert outcomes.count("released") == AHEAD
    assert outcomes.count("completed") == 1
    assert sum(len(runner.tokens) for runner in bench.runners) == SLOTS - 1


async def test_prefetched_attempts_are_released_when_everything_is_killed() -> None:
    bench = await full_of_shared()
    bench.pool.control.end_all("drain")
    assert bench.outcomes() == ["released"] * AHEAD


async def test_prefetched_attempts_are_released_when_slots_become_slow() -> None:
    bench = await full_of_shared()
    bench.clock.advance(WAIT_SECONDS_MAX / 2)
    bench.pool.starter.give_back_late()
    assert bench.ends() == []
    bench.clock.advance(WAIT_SECONDS_MAX)
    bench.pool.starter.give_back_late()
    ends = bench.ends()
    assert [end.outcome for end in ends] == ["released"] * AHEAD
    assert all(end.delay > 0 for end in ends), "not to be claimed again in a tight loop"
    assert bench.requests(0) == [], "the former rate no longer counts"


async def test_prefetched_attempts_are_kept_while_slots_become_free() -> None:
    bench = await full_of_shared()
    bench.clock.advance(WAIT_SECONDS_MAX)
    bench.end_many(1000)
    bench.clock.advance(RATE_SECONDS / 2)
    bench.pool.starter.give_back_late()
    assert bench.ends() == []


def test_what_waits_for_a_slot_is_counted_while_attempts_end() -> None:
    clock = ManualClock(boot=0.0)
    in_flight = new_in_flight(clock)
    ahead = Ahead(in_flight, clock)
    assert ahead.count_ahead() == 0, "an idle pool hands in at once"
    ahead.shared.note_freed(100)
    clock.advance(RATE_SECONDS)
    assert ahead.count_ahead() == 0, "its slots would become empty"
    assert ahead.shared.room() == AHEAD
    ahead.shared.line_up(in_flight.claim([claimed(token) for token in range(10)]))
    assert ahead.shared.room() == AHEAD - 10
    assert ahead.count_ahead() == 10, "the other kind is idle"
    ahead.alone.note_freed(1)
    clock.advance(RATE_SECONDS)
    assert ahead.count_ahead() == 0, "the other kind has none ahead"


# ------------------------------------------------- plain functions beside a stream of async tasks


async def crowded() -> Bench:
    bench = await Bench().ready()
    bench.place(*(shared(n) for n in range(CONCURRENCY)))
    bench.place(*(shared(n) for n in range(CONCURRENCY, SLOTS)))
    assert bench.requests(0) == [], "async tasks fill all runners"
    return bench


async def test_a_plain_function_takes_the_spare_where_async_tasks_fill_all_runners() -> None:
    """However long each of them runs, and whenever it ends."""
    bench = await crowded()
    bench.clock.advance(60.0)
    assert bench.requests(0) == [ClaimRequest([OWN], 1, [])]
    assert bench.requests(0) == [], "not at each look"
    bench.clock.advance(CROWDED_EVERY_SECONDS)
    bench.place(own(100))
    (beyond,) = [each for each in bench.runners if 100 in each.tokens]
    assert beyond.exclusive
    bench.clock.advance(CROWDED_EVERY_SECONDS)
    assert bench.requests(0) == [], "one at a time"
    ended(bench, 0)
    assert [request.limit for request in bench.requests(0) if request.tasks == [SHARED]] == [1], (
        "no other attempt waits for it"
    )
    bench.place(shared(200))
    await bench.ready()
    assert len(bench.runners) == SIZE + 2, "suspects still have a spare"
    suspects = [each for each in bench.pool.starter.make_requests(0) if each.solo]
    assert len(suspects) == 1
    ended(bench, 100)
    bench.clock.advance(CROWDED_EVERY_SECONDS)
    assert ClaimRequest([OWN], 1, []) in bench.requests(0)


async def test_a_plain_function_in_the_spare_is_one_of_the_pool_once_a_runner_is_idle() -> None:
    bench = await crowded()
    bench.clock.advance(CROWDED_EVERY_SECONDS)
    bench.requests(0)
    bench.place(own(100))
    for token in range(CONCURRENCY):
        ended(bench, token)
    assert all(OWN not in request.tasks for request in bench.requests(0)), "no more than its size"
