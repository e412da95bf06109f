"""Ticks that are owed are counted once, however many, and in bounded steps."""

from __future__ import annotations

import msgspec

from outlast.model.schedule import Spec
from outlast.model.schedule_plan import LOOK_TICKS, count_owed, owe
from tests.cases import each_case

MOST = 1_000
NOON, DAY = 1_795_348_800, 86_400
MINUTELY = '{"cron":"* * * * *"}'


def read(text: str) -> Spec:
    return msgspec.json.decode(text, type=Spec)


def counted(owed: str) -> tuple[int, int]:
    """Count to the end; return how many ticks, and in how many steps."""
    total = steps = 0
    while owed:
        passed, owed = count_owed(owed, read)
        total, steps = total + passed, steps + 1
    return total, steps


@each_case(
    ("since", "until", "ticks"),
    [(0.0, 60.0, 1), (0.0, 59.9, 0), (59.9, 60.1, 1), (60.0, 119.9, 0), (60.5, 180.5, 2)],
)
def test_bounds_are_after_the_first_instant_and_up_to_the_last(
    since: float, until: float, ticks: int
) -> None:
    assert counted(owe("", since, until, '{"every":60}', MOST))[0] == ticks


def test_nothing_is_owed_within_a_second_or_beyond_the_room() -> None:
    assert owe("1 2 x\n", 60.1, 60.9, "{}", MOST) == "1 2 x\n"
    assert owe("1 2 x\n", 60.0, 0.0, "{}", MOST) == "1 2 x\n"
    assert owe("1 2 x\n", 0.0, 60.0, "y" * MOST, MOST) == "1 2 x\n"


def test_lines_of_several_specs_are_counted_together() -> None:
    owed = owe("", 0, 100, '{"every":10}', MOST)
    owed = owe(owed, 100, 200, '{"every":50}', MOST)
    assert counted(owed) == (10 + 2, 1)


def test_a_long_pause_is_counted_in_steps_of_a_bounded_size() -> None:
    owed = owe("", NOON, NOON + 3 * DAY, MINUTELY, MOST)
    owed = owe(owed, NOON + 3 * DAY, NOON + 4 * DAY, '{"every":1}', MOST)
    passed, left = count_owed(owed, read)
    assert 0 < passed <= LOOK_TICKS + 1
    assert left != owed
    assert counted(owed)[0] == 3 * 1_440 + DAY
    assert counted(owe("", 0, 100 * DAY, '{"every":1}', MOST)) == (100 * DAY, 1)


@each_case(
    "line", ["", "x", "1 2", "1 x {}", "1 99 {", "nan 9 {}", '1 99 {"cron":"* * * * *","zone":"X"}']
)
def test_a_line_that_cannot_be_read_counts_nothing_and_holds_up_no_other(line: str) -> None:
    assert counted(f'{line}\n0 99 {{"every":10}}\n')[0] == 9
