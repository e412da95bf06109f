"""The size of one trip to the store: as many bytes as its link carries in time."""

from __future__ import annotations

import pytest

from outlast.errors import StoreUnavailable
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.store.values import TRIP_BYTES, Exchanged
from outlast.worker.claims.in_flight import ALONE_TRIES, TRIP_BYTES_MAX, TRIP_BYTES_MIN
from tests.unit.worker.claims.exchange_kit import Bench
from tests.unit.worker.worker_kit import COMPLETED, accepted, claimed, heard

LARGE = TRIP_BYTES // 4


@pytest.fixture
def bench():
    return Bench()


def large_ends(bench: Bench, *tokens: int, size: int = LARGE) -> None:
    for token in tokens:
        bench.in_flight.claim([claimed(token)])
        bench.in_flight.end(token, Outcome(kind=OutcomeKind.COMPLETED, result="x" * size))


def bytes_asked(bench: Bench) -> list[int]:
    return [request.bytes_max for requests in bench.requests() for request in requests]


async def breaks_off(bench: Bench, error: type[BaseException] = StoreUnavailable) -> None:
    bench.store.script = [error()]
    with pytest.raises(StoreUnavailable):
        await bench.exchange.run_once()


async def test_ends_go_in_trips_that_are_bounded_in_bytes(bench):
    large_ends(bench, *range(1, 10))
    bench.exchange._bytes.note_answer = lambda *_: None
    while bench.in_flight.ended:
        await bench.exchange.run_once()
    assert bench.handed_in() == [[1, 2, 3, 4], [5, 6, 7, 8], [9]]


async def test_a_trip_that_breaks_off_halves_the_next_ones_down_to_a_bound(bench):
    large_ends(bench, *range(1, 10))
    for _ in range(20):
        await breaks_off(bench)
    assert bench.handed_in()[:4] == [[1, 2, 3, 4], [1, 2], [1], [1]]
    assert bench.exchange._bytes.limit == TRIP_BYTES_MIN


async def test_full_and_quick_trips_make_the_next_ones_larger_up_to_a_bound(bench):
    args = "x" * TRIP_BYTES_MAX
    for n in range(10):
        bench.store.script = [accepted(min(n, 1), claimed=[claimed(n, args=args)])]
        await bench.exchange.run_once()
        bench.in_flight.end(n, COMPLETED)
    asked = bytes_asked(bench)
    assert asked[:5] == [TRIP_BYTES, *[TRIP_BYTES * 2**n for n in (1, 2, 3, 4)]]
    assert asked[-1] == TRIP_BYTES_MAX


@pytest.mark.parametrize(("part", "grows"), [(0.24, True), (0.26, False)])
async def test_a_slow_trip_makes_none_larger(bench, part, grows):
    def slow() -> Exchanged:
        bench.clock.advance(20.0 * part)
        return accepted(0, claimed=[claimed(1, args="x" * TRIP_BYTES)])

    bench.store.script = [slow]
    await bench.exchange.run_once()
    assert (bench.exchange._bytes.limit > TRIP_BYTES) is grows


async def test_a_reply_that_was_cut_is_followed_at_once(bench):
    bench.store.script = [accepted(0, claimed=[claimed(1)], cut=True)]
    assert await bench.exchange.run_once() == 0.0


async def test_a_result_that_is_too_large_for_the_link_is_given_up_with_an_event(bench):
    large_ends(bench, 1, size=2 * TRIP_BYTES)
    bench.ends(2)
    for _ in range(ALONE_TRIES):
        await breaks_off(bench, TimeoutError)
        await bench.exchange.run_once()  # without ends: whether the store answers at all
    with heard() as names:
        await bench.exchange.run_once()
    assert bench.handed_in() == [[1]] * ALONE_TRIES + [[1, 2]]
    assert "result_rejected" not in names, "it was reported when it was given up"
    assert bench.in_flight.is_empty()


async def test_an_outage_gives_up_no_result(bench):
    large_ends(bench, 1, size=2 * TRIP_BYTES)
    with heard() as names:
        for _ in range(10 * ALONE_TRIES):
            await breaks_off(bench, TimeoutError)
    assert "result_rejected" not in names
    await bench.exchange.run_once()
    await bench.exchange.run_once()
    assert bench.handed_in() == [[1], [1]]
    assert bench.in_flight.is_empty()
