"""The rules of limits: counts, rates, turns and ids. They are pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.errors import ConfigError
from outlast.model.limits import (
    UNLIMITED,
    Budget,
    Need,
    Room,
    needs_of,
    needs_text,
    parse_rate,
    permit_id,
    seconds_ahead,
    share_out,
    stream_id,
)
from tests.cases import each_case


def budget(running: int | None, **given: object) -> Budget:
    values: dict[str, object] = {"spacing": None, "burst": 1.0, "used": 0, "ahead": 0.0}
    return Budget(running=running, **(values | given))  # type: ignore[arg-type]


def room(running: int | None = None, cost: float = 1.0, **given: object) -> Room:
    return budget(running, **given).room(cost)


def test_a_count_leaves_what_is_not_used() -> None:
    assert room(running=3, used=1) == Room(2)
    assert room(running=3, used=3) == Room(0)
    assert room(running=3, used=7) == Room(0)  # it was lowered
    assert room() == Room(UNLIMITED)


def test_a_rate_lets_a_burst_start_and_says_when_the_next_may() -> None:
    assert room(spacing=0.5, burst=4.0) == Room(4)
    assert room(spacing=0.5, burst=4.0, ahead=2.0) == Room(0, 0.5)
    assert room(spacing=0.5, burst=4.0, ahead=1.0) == Room(2)
    assert room(spacing=0.5, burst=4.0, cost=3.0) == Room(1)
    assert room(spacing=0.5, burst=4.0, cost=5.0) == Room(0)  # no wait would help


def test_a_hold_lets_nothing_start() -> None:
    assert room(held_for=30.0) == Room(0, 30.0)


def test_a_clock_set_back_does_not_hold_up_a_rate() -> None:
    assert seconds_ahead(tat=1_002.0, touched_at=1_000.0, now=1_001.0) == 1.0
    assert seconds_ahead(tat=1_002.0, touched_at=1_000.0, now=1_005.0) == 0.0
    assert seconds_ahead(tat=1_002.0, touched_at=1_000.0, now=10.0) == 2.0


@given(
    st.lists(st.tuples(st.floats(0.0, 5.0), st.integers(1, 4)), max_size=40),
    st.floats(0.01, 2.0),
    st.integers(1, 8),
)
def test_costs_in_any_span_stay_below_the_burst_and_the_rate(
    moments: list[tuple[float, int]], spacing: float, burst: int
) -> None:
    now, tat, touched_at = 1_000.0, 0.0, 0.0
    starts: list[tuple[float, int]] = []
    for pause, cost in moments:
        now += pause
        ahead = seconds_ahead(tat=tat, touched_at=touched_at, now=now)
        left = room(spacing=spacing, burst=float(burst), ahead=ahead, cost=float(cost))
        count = min(left.starts, 3)
        tat, touched_at = now + ahead + count * cost * spacing, now
        starts.append((now, count * cost))
    for first, (began, _) in enumerate(starts):
        total = 0
        for ended, cost in starts[first:]:
            total += cost
            assert total <= burst + (ended - began) / spacing + 1e-6


def test_places_are_shared_in_turn_and_each_permit_is_counted_once_for_all_streams() -> None:
    both, one = [Need(1, "a"), Need(2, "b")], [Need(2, "b")]
    budgets = {1: budget(5), 2: budget(3)}
    assert share_out([both, one, []], budgets, 9) == [(3, None), (0, 2), (3, None)]
    assert budgets == {1: budget(5), 2: budget(3)}
    assert share_out([one, one], {2: budget(1)}, 8) == [(1, None), (0, 2)]
    assert share_out([[], [], []], {}, 2) == [(1, None), (1, None), (0, None)]


def test_jobs_of_a_low_cost_do_not_pass_one_of_a_high_cost_that_waits_for_the_rate() -> None:
    dear, cheap = [Need(1, "a", cost=4.0)], [Need(1, "a")]
    budgets = {1: budget(None, spacing=1.0, burst=4.0, ahead=2.0)}
    assert share_out([dear, cheap], budgets, 9) == [(0, 1), (0, 1)]
    assert share_out([cheap, dear], budgets, 9) == [(2, None), (0, 1)]
    never = [Need(1, "a", cost=5.0)]
    budgets = {1: budget(None, spacing=1.0, burst=4.0)}
    assert share_out([never, cheap], budgets, 9) == [(0, 1), (4, None)]


def test_ids_depend_on_all_that_makes_a_stream_and_not_on_the_order_of_its_limits() -> None:
    needs = [Need(permit_id("a", ""), "a"), Need(permit_id("b", "acme"), "b", "acme", 2.0)]
    own = stream_id("t", "q", 0, needs, None)
    assert own == stream_id("t", "q", 0, needs[::-1], None)
    others = {
        stream_id("t", "q", 1, needs, None),
        stream_id("t", "r", 0, needs, None),
        stream_id("u", "q", 0, needs, None),
        stream_id("t", "q", 0, needs[:1], None),
        stream_id("t", "q", 0, needs, "acme"),
        stream_id("t", "q", 0, [needs[0], Need(needs[1].permit, "b", "acme")], None),
    }
    assert own not in others
    assert len(others) == 6
    assert all(0 <= each < 2**63 for each in others)
    assert needs_of(needs_text(needs)) == sorted(needs, key=lambda need: need.permit)
    assert needs_of("{") == needs_of(None) == []


@each_case(
    ("text", "spacing"),
    [("600/min", 0.1), ("5/s", 0.2), ("100/15min", 9.0), ("1 / h", 3600.0), ("0.5/sec", 2.0)],
)
def test_a_rate_is_read(text: str, spacing: float) -> None:
    assert parse_rate(text) == pytest.approx(spacing)


@each_case(
    ("text", "spacing"),
    [
        (f"10/{unit}", seconds / 10)
        for seconds, units in {
            1.0: "s sec secs second seconds",
            60.0: "m min mins minute minutes",
            3600.0: "h hr hrs hour hours",
            86_400.0: "d day days",
            604_800.0: "w week weeks",
        }.items()
        for unit in units.split()
    ],
)
def test_a_rate_is_read_in_each_common_unit(text: str, spacing: float) -> None:
    assert parse_rate(text) == pytest.approx(spacing)


@each_case("text", ["10/ms", "10/hs", "10/ds", "10/us", "10/month"])
def test_a_unit_that_is_none_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(ConfigError, match="second, minute, hour, day or week"):
        parse_rate(text)


@each_case("text", ["", "600", "0/s", "5/fortnight", "-1/s", "5/0s", 600])
def test_a_rate_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="600/min"):
        parse_rate(text)
