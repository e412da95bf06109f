"""Ticks around all changes of the clocks of 2020-2040, held against a search minute by minute."""

from __future__ import annotations

import os
from bisect import bisect_right
from itertools import islice
from random import Random
from zoneinfo import ZoneInfo, available_timezones

import pytest

from outlast.model.schedule import Spec
from tests.cases import each_case
from tests.unit.model.cron_oracle import (
    COMMON,
    MINUTE,
    changes_of,
    random_expression,
    ticks_in,
    window_of,
)

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
