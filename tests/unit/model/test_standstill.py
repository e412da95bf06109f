"""Time in which neither of two processes ran is found, and never more than that."""

from __future__ import annotations

from itertools import accumulate, pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from outlast.model.standstill import LATE_SECONDS, TICK_SECONDS, Standstill, find_shared

# how long a process runs and stands still in turns
lives = st.lists(st.floats(0.0, 30.0), max_size=12).map(
    lambda lengths: list(pairwise(accumulate([0.1, *lengths])))[1::2]
)


def live(stops, used=0.0):
    """Return what a process has found that ticks whenever it runs."""
    still, now = Standstill(), 0.0
    while now < 400:
        still.tick(now, now * used)
        now += TICK_SECONDS
        now = next((end for begin, end in stops if begin <= now < end), now)
    return list(still.spans)


def seconds(spans):
    return sum(end - begin for begin, end in spans)


@given(ours=lives, theirs=lives)
@example(ours=[(10.0, 20.0)], theirs=[])  # a worker that is stopped alone
@example(ours=[], theirs=[(10.0, 20.0)])
@example(ours=[(10.0, 20.0)], theirs=[(10.0, 15.0), (15.0, 20.0)])
def test_shared_time_is_found_but_for_a_tick_and_nothing_else(ours, theirs):
    common = list(find_shared(ours, theirs))
    found = list(find_shared(live(ours), live(theirs)))
    assert seconds(found) <= seconds(common) + 1e-6
    noticed = LATE_SECONDS + TICK_SECONDS
    long = [
        [(begin, end) for begin, end in stops if end - begin >= noticed] for stops in (ours, theirs)
    ]
    sure = [end - begin - TICK_SECONDS for begin, end in find_shared(*long)]
    assert seconds(found) >= sum(each for each in sure if each > 0) - 1e-6


def test_late_ticks_of_a_process_that_has_used_a_processor_are_no_standstill():
    """C code has held the interpreter's lock, while the worker was stopped."""
    assert live([(10.0, 20.0)], used=0.9) == []
    assert live([(10.0, 20.0)], used=0.1) == [(10.0, 20.0)]


def test_no_answer_of_a_runner_gives_more_than_its_worker_has_stood_still():
    """A runner can send anything."""
    nan, inf = float("nan"), float("inf")
    for sent in [(nan, nan), (5.0, nan), (nan, 5.0), (-inf, inf), (9.0, 1.0), (0.0, 1e300)]:
        assert all(1 <= a < b <= 9 for a, b in find_shared([(1.0, 9.0)], [sent]))
