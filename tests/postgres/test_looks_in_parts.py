"""Looks below the floors that are taken in parts."""

from __future__ import annotations

from outlast.store.postgres.claim_floors import FULL_SECONDS_MAX, ClaimFloors
from tests.manual_clock import ManualClock


def test_a_look_that_is_taken_in_parts_is_known_by_each_of_them() -> None:
    """None of them shows that nothing is below the floors: a job may come to stand in another."""
    clock = ManualClock()
    lanes = ClaimFloors(clock)
    key = ("q", "t", 0)
    lanes.remember([(*key, 1)], [(key, 250_000)])

    def next_look() -> tuple[int, int]:
        clock.advance(FULL_SECONDS_MAX)
        look = lanes.ask()[1]
        assert look is not None
        return look

    whole = next_look()
    assert (whole, lanes.is_part(whole)) == ((0, 250_000), False)
    lanes.note_failure(whole)
    first = next_look()
    assert (first, lanes.is_part(first)) == ((150_000, 250_000), True)
    lanes.note_look(first, 0.0, 0)
    last = next_look()
    assert (last, lanes.is_part(last)) == ((0, 150_000), True)
