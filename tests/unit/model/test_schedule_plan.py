"""The plan of a due schedule accounts for each tick once, under steps of the clock as well."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from outlast.model.schedule import Spec
from outlast.model.schedule_plan import (
    CAUGHT_UP_MAX,
    LOOK_TICKS,
    ON_TIME_SECONDS,
    CatchUp,
    TickPlan,
    plan,
)
from tests.cases import each_case

HOUR, DAY = 3_600.0, 86_400.0
NOON = 1_795_348_800.0  # 2026-11-22 12:00 UTC, a multiple of an hour
HOURLY = Spec(every=3_600)
SPECS = [HOURLY, Spec(every=1), Spec(every=7), Spec(cron="*/5 * * * *"), Spec(cron="0 3 * * *")]


def made(
    since: float,
    now: float,
    catch_up: CatchUp = CatchUp.LAST,
    grace: float = DAY,
    spec: Spec = HOURLY,
) -> TickPlan:
    return plan(spec, since, now, catch_up, grace)


def test_nothing_is_due_right_after_a_put() -> None:
    assert made(NOON + 1, NOON + 1) == TickPlan([], 0, NOON + 1, NOON + HOUR)


def test_a_tick_is_strictly_later_than_what_is_accounted_for() -> None:
    assert made(NOON, NOON) == TickPlan([], 0, NOON, NOON + HOUR)
    assert made(NOON - 1, NOON) == TickPlan([NOON], 0, NOON, NOON + HOUR)


@each_case(
    ("catch_up", "ticks"),
    [
        (CatchUp.LAST, [3.0]),
        (CatchUp.ALL, [1.0, 2.0, 3.0]),
        (CatchUp.NONE, []),
    ],
)
def test_what_was_missed_is_caught_up_as_asked(catch_up: CatchUp, ticks: list[float]) -> None:
    done = made(NOON, NOON + 3.5 * HOUR, catch_up)
    assert done.ticks == [NOON + tick * HOUR for tick in ticks]
    assert done.missed == 3 - len(ticks)
    assert (done.since, done.then) == (NOON + 3 * HOUR, NOON + 4 * HOUR)


def test_without_catching_up_a_tick_is_fired_while_it_is_on_time() -> None:
    last = NOON + 2 * HOUR
    assert made(NOON, last + ON_TIME_SECONDS, CatchUp.NONE).ticks == [last]
    assert made(NOON, last + ON_TIME_SECONDS + 1, CatchUp.NONE).ticks == []


@each_case("catch_up", CatchUp)
def test_a_tick_that_is_late_by_more_than_the_grace_is_missed(catch_up: CatchUp) -> None:
    tick = NOON + HOUR
    assert made(NOON, tick + 30, catch_up, grace=30).ticks == [tick]
    late = made(NOON, tick + 31, catch_up, grace=30)
    assert (late.ticks, late.missed, late.since) == ([], 1, tick)


def test_all_are_at_most_the_last_hundred() -> None:
    done = made(NOON, NOON + 250, CatchUp.ALL, spec=Spec(every=1))
    assert done.ticks == [NOON + 151 + n for n in range(CAUGHT_UP_MAX)]
    assert done.missed == 150


def test_a_clock_that_stepped_back_fires_nothing_and_looks_again_after_what_is_done() -> None:
    assert made(NOON, NOON - 5 * HOUR) == TickPlan([], 0, NOON, NOON + HOUR)


def test_a_clock_that_stepped_forward_is_an_outage() -> None:
    done = made(NOON, NOON + 400 * DAY)
    assert len(done.ticks) == 1
    assert done.missed == 400 * 24 - 1


def test_ticks_that_come_back_or_stand_still_end_the_plan() -> None:
    class Stuck:
        every = None

        def next_after(self, instant: float) -> float | None:
            return max(NOON, instant)

    stuck: Any = Stuck()
    assert plan(stuck, NOON - 9, NOON + HOUR, CatchUp.ALL, DAY) == TickPlan([NOON], 0, NOON, None)


def test_a_schedule_that_has_ended_is_never_due_again() -> None:
    class Once:
        every = None

        def next_after(self, instant: float) -> float | None:
            return NOON if instant < NOON else None

    once: Any = Once()
    assert plan(once, 0.0, NOON, CatchUp.LAST, DAY) == TickPlan([NOON], 0, NOON, None)


@given(
    spec=st.sampled_from(SPECS),
    catch_up=st.sampled_from(CatchUp),
    grace=st.sampled_from([0.0, 60.0, 3_600.0, 86_400.0]),
    looks=st.lists(st.floats(-2 * HOUR, 12 * HOUR), min_size=1, max_size=8),
)
def test_each_tick_is_fired_or_missed_once_and_in_order(
    spec: Spec, catch_up: CatchUp, grace: float, looks: list[float]
) -> None:
    since = now = highest = NOON
    fired: list[float] = []
    missed = 0
    for step in looks:
        now += step
        highest = max(highest, now)
        then: float | None = now
        while then is not None and then <= now:
            done = plan(spec, since, now, catch_up, grace)
            assert done.since >= since
            assert all(since < tick <= now and now - tick <= grace for tick in done.ticks)
            fired += done.ticks
            missed += done.missed
            since, then = done.since, done.then
            assert then is None or then > since
    assert fired == sorted(set(fired))
    assert len(fired) + missed == _count(spec, NOON, highest)


def _count(spec: Spec, start: float, end: float) -> int:
    if spec.every is not None:
        return int(end // spec.every - start // spec.every)
    return sum(1 for _ in spec.ticks_between(start + 1, end + 1e-6))


def test_a_long_outage_is_accounted_for_in_bounded_steps() -> None:
    spec, since, now = Spec(cron="* * * * *"), NOON, NOON + 3 * DAY
    steps = missed = 0
    while True:
        done = plan(spec, since, now, CatchUp.ALL, DAY)
        steps, missed, since = steps + 1, missed + done.missed, done.since
        if done.ticks:
            break
        assert done.missed <= LOOK_TICKS
        assert done.then is not None
        assert done.then <= now
    assert len(done.ticks) == CAUGHT_UP_MAX
    assert missed == 3 * 1_440 - CAUGHT_UP_MAX
    assert steps > 10
