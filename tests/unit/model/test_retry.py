"""Back-off: doubling, bounded, spread; and the first death of a process costs no time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outlast.model.crash import PROCESS_DEATHS, CrashKind
from outlast.model.job import Policy
from outlast.model.lifecycle import delay_seconds
from tests.cases import each_case

DEFAULT = Policy()


@each_case(
    ("charged", "seconds"), [(1, 2.0), (2, 4.0), (3, 8.0), (9, 512.0), (10, 600.0), (5000, 600.0)]
)
def test_errors_double_from_two_seconds_up_to_ten_minutes(charged, seconds):
    assert delay_seconds(DEFAULT, CrashKind.ERROR, charged, lambda: 1.0) == seconds


@each_case("kind", sorted(PROCESS_DEATHS))
def test_the_first_death_is_run_again_at_once_and_the_second_like_a_first_error(kind):
    assert delay_seconds(DEFAULT, kind, 1, lambda: 1.0) == 0.0
    assert delay_seconds(DEFAULT, kind, 2, lambda: 1.0) == 2.0
    assert delay_seconds(DEFAULT, kind, 3, lambda: 1.0) == 4.0


def test_half_of_the_delay_is_jitter():
    assert delay_seconds(DEFAULT, CrashKind.ERROR, 2, lambda: 0.0) == 2.0
    assert delay_seconds(DEFAULT, CrashKind.ERROR, 2, lambda: 0.5) == 3.0


def test_a_task_s_own_back_off_is_used():
    policy = Policy(backoff_first=0.5, backoff_max=1.5)
    delays = [delay_seconds(policy, CrashKind.ERROR, n, lambda: 1.0) for n in (1, 2, 3)]
    assert delays == [0.5, 1.0, 1.5]


@given(
    st.floats(0, 1e9),
    st.floats(0, 1e9),
    st.sampled_from(CrashKind),
    st.integers(0, 10_000),
    st.floats(0, 1, exclude_max=True),
)
def test_a_delay_is_never_negative_nor_above_its_limit(first, most, kind, charged, chance):
    policy = Policy(backoff_first=first, backoff_max=most)
    assert 0.0 <= delay_seconds(policy, kind, charged, lambda: chance) <= most


@given(st.sampled_from(CrashKind), st.integers(1, 100))
def test_more_failures_never_shorten_the_wait(kind, charged):
    def full(count: int) -> float:
        return delay_seconds(DEFAULT, kind, count, lambda: 1.0)

    assert full(charged) <= full(charged + 1)
