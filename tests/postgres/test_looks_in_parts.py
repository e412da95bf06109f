"""Looks below the floors that are taken in parts."""

from __future__ import annotations

from outlast.store.postgres.exchange import FULL_SECONDS, FULL_SECONDS_MAX, ClaimFloors
from outlast.store.postgres.store import PostgresStore
from tests.conformance.kit import TASK, Hands
from tests.manual_clock import ManualClock


def test_a_look_that_is_taken_in_parts_is_known_by_each_of_them() -> None:
    """None of them shows that nothing is below the floors: a job may come to stand in another."""
    clock = ManualClock()
    lanes = ClaimFloors()
    key = ("q", "t", 0)
    lanes.note_lanes(1, [key], clock.boot())
    lanes.note_claimed([(key, 250_000)], clock.boot())

    def next_look() -> tuple[int, int]:
        clock.advance(FULL_SECONDS_MAX)
        look = lanes.ask(clock.boot())[1]
        assert look is not None
        return look

    whole = next_look()
    assert (whole, lanes.is_part(whole)) == ((0, 250_000), False)
    lanes.note_failure(whole, clock.boot())
    first = next_look()
    assert (first, lanes.is_part(first)) == ((150_000, 250_000), True)
    lanes.note_look(first, 0.0, 0, clock.boot())
    last = next_look()
    assert (last, lanes.is_part(last)) == ((0, 150_000), True)


async def test_a_worker_is_told_of_the_next_part_of_a_look(pg_url: str) -> None:
    """It rests for long where nothing was found, and a look may have a hundred parts."""
    clock = ManualClock(boot=0.0)
    store = PostgresStore(pg_url, clock=clock)
    await store.open()
    hands = await Hands.on(store)
    key, lanes = ("default", TASK, 0), store._lanes
    await hands.exchange(limit=1)
    lanes.note_lanes(0, [key], clock.boot())
    lanes.note_claimed([(key, 250_000)], clock.boot())
    clock.advance(FULL_SECONDS)
    lanes.ask(clock.boot())
    lanes.note_failure((0, 250_000), clock.boot())
    clock.advance(FULL_SECONDS)
    assert (await hands.exchange(limit=1)).next_look == FULL_SECONDS
    clock.advance(FULL_SECONDS)
    assert (await hands.exchange(limit=1)).next_look is None, "the last part"
    await store.close()
