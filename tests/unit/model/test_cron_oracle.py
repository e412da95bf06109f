"""Ticks around all changes of the clocks of 2020-2040, held against a search minute by minute."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import pytest

from outlast.model.schedule import Spec
from tests.cases import each_case

MINUTE, HOUR, DAY = 60, 3600, 86_400
FIRST, LAST = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2020, 2041))
LARGEST = (59, 23, 31, 12, 7)
LEAST = (0, 0, 1, 1, 0)
SPREAD = 6 * HOUR  # before and after a change

COMMON = [
    "* * * * *",
    "0 * * * *",
    "*/30 * * * *",
    "*/30 2 * * *",
    "*/15 0 * * *",
    "*/20 1-3 * * *",
    "30 2 * * *",
    "30,45 2 * * *",
    "0 0 * * *",
    "5 0 * * *",
    "15 1 * * *",
    "59 23 * * *",
    "0 3 * * 0",
    "0 */2 * * *",
    "30 */3 * * 6,0",
    "45 1-3 * * 1-6",
]


class Change(NamedTuple):
    """The first second with new clocks, and what the clocks show in each minute around it."""

    at: int
    minutes: list[int]
    walls: list[datetime]


def changes_of(zone: ZoneInfo) -> Iterator[int]:
    """Yield the minutes from 2020 to 2040 at which the zone's clocks change."""
    old = _offset(zone, FIRST)
    for day in range(FIRST, LAST, DAY):
        if _offset(zone, day) != old:
            minutes = range(day - DAY, day + MINUTE, MINUTE)
            yield next(at for at in minutes if _offset(zone, at) != old)
            old = _offset(zone, day)


def window_of(zone: ZoneInfo, change: int) -> Change:
    minutes = list(range(change - SPREAD, change + SPREAD, MINUTE))
    return Change(change, minutes, [_wall(zone, at) for at in minutes])


def ticks_in(window: Change, expression: str) -> list[int]:
    """Return the ticks in the window."""
    minute, hour = expression.split()[:2]
    matches = _matcher(expression)
    if minute.startswith("*") or hour.startswith("*"):
        return [at for at, wall in zip(window.minutes, window.walls, strict=True) if matches(wall)]
    return sorted(_once_each(window, matches))


def _once_each(window: Change, matches) -> set[int]:
    """Return the first minute of each wall time that matches; for those that are passed over, the
    minute at which they are."""
    ticks: set[int] = set()
    seen: set[datetime] = set()
    before = window.walls[0] - timedelta(minutes=1)
    for at, wall in zip(window.minutes, window.walls, strict=True):
        shown = [before + timedelta(minutes=m) for m in range(1, (wall - before) // _MINUTE + 1)]
        ticks.update(at for each in shown or [wall] if matches(each) and each not in seen)
        seen.update(shown)
        before = wall
    return ticks


_MINUTE = timedelta(minutes=1)


def _matcher(expression: str):
    fields = expression.split()
    read = [_read(*field) for field in zip(fields, LEAST, LARGEST, strict=True)]
    minutes, hours, days, months, weekdays = read
    both = fields[2].startswith("*") or fields[4].startswith("*")

    def matches(wall: datetime) -> bool:
        if wall.minute not in minutes or wall.hour not in hours or wall.month not in months:
            return False
        date, weekday = (
            wall.day in days,
            bool({wall.isoweekday(), wall.isoweekday() % 7} & weekdays),
        )
        return (date and weekday) if both else (date or weekday)

    return matches


def _read(field: str, least: int, largest: int) -> set[int]:
    values: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = span.partition("-")
        begin, end = (least, largest) if span == "*" else (int(first), int(last or first))
        values.update(range(begin, end + 1, int(step or 1)))
    return values


def random_expression(chance: Random) -> str:
    """Return an expression that has ticks in the hours in which clocks change."""
    minute = chance.choice(["*", "*/7", "*/45", "0", "30", "0,30", "10-20", "1,59", "0-59/9"])
    hour = chance.choice(["*", "*/3", "0", "1", "2", "3", "4", "0-4", "23", "0,2", "1-3", "22-23"])
    day = chance.choice(["*", "*", "*", "*/2", "1-15", "20-31"])
    weekday = chance.choice(["*", "*", "*", "0", "6", "1-5", "5,7", "*/2"])
    return f"{minute} {hour} {day} * {weekday}"


def _offset(zone: ZoneInfo, at: int) -> timedelta | None:
    return datetime.fromtimestamp(at, zone).utcoffset()


def _wall(zone: ZoneInfo, at: int) -> datetime:
    return datetime.fromtimestamp(at, zone).replace(tzinfo=None, fold=0)


SEED = int(os.environ.get("CRON_SEED", "7"))
ODD = [  # half an hour, midnight, two hours, Ramadan, a new rule, the other side of the year
    "Australia/Lord_Howe",
    "America/Havana",
    "Antarctica/Troll",
    "Africa/Casablanca",
    "Africa/Cairo",
    "Asia/Beirut",
    "America/Scoresbysund",
    "Antarctica/Casey",
    "Europe/Berlin",
    "America/New_York",
]


def check(zone_name: str, changes: list[int], expressions: list[str], chance: Random) -> int:
    """Hold every expression against the oracle at every change; return how many ticks it had."""
    ticks = 0
    for change in changes:
        window = window_of(ZoneInfo(zone_name), change)
        for expression in expressions:
            expected = ticks_in(window, expression)
            ticks += len(expected)
            check_window(zone_name, expression, window.minutes, expected, chance)
    return ticks


def check_window(zone_name, expression, minutes, expected, chance) -> None:
    spec = Spec(cron=expression, zone=zone_name)
    where = f"{expression!r} in {zone_name}, CRON_SEED={SEED}"
    found = spec.ticks_between(minutes[0], minutes[-1] + MINUTE)
    assert list(islice(found, len(expected) + 1)) == expected, where
    if expected:
        for begin in chance.choices(range(minutes[0], expected[-1]), k=4):
            after = expected[bisect_right(expected, begin)]
            assert spec.next_after(begin) == after, f"{where}, from {begin}"


def unlike_zones() -> dict[tuple[tuple[int, str], ...], str]:
    """Return one zone for each set of changes that there is."""
    unlike: dict[tuple[tuple[int, str], ...], str] = {}
    for name in sorted(available_timezones()):
        zone = ZoneInfo(name)
        changes = tuple((at, str(window_of(zone, at).walls[-1])) for at in changes_of(zone))
        if changes:
            unlike.setdefault(changes, name)
    return unlike


@pytest.mark.slow
@each_case("zone_name", ODD)
def test_ticks_around_changes_are_those_of_a_search_minute_by_minute(zone_name: str) -> None:
    chance = Random(f"{SEED} {zone_name}")
    changes = list(changes_of(ZoneInfo(zone_name)))
    some = sorted(chance.sample(changes, min(4, len(changes))))
    expressions = COMMON + [random_expression(chance) for _ in range(6)]
    assert check(zone_name, some, expressions, chance) > len(some) * len(COMMON)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_ticks_around_all_changes_of_all_zones_are_those_of_a_search() -> None:
    chance = Random(SEED)
    zones = unlike_zones()
    assert len(zones) > 40
    for changes, zone_name in zones.items():
        expressions = chance.sample(COMMON, 8) + [random_expression(chance) for _ in range(4)]
        assert check(zone_name, [at for at, _ in changes], expressions, chance) > 0
