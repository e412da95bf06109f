"""A schedule's ticks, its spread, its JSON form, and what is wrong with one that cannot work."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.errors import ConfigError
from outlast.model import cron
from outlast.model.schedule import Spec
from tests.cases import each_case

BERLIN = "Europe/Berlin"


def utc(year: int, month: int, day: int, hour: int = 0) -> float:
    return datetime(year, month, day, hour, tzinfo=UTC).timestamp()


def shown(spec: Spec, start: float, count: int) -> list[str]:
    return [f"{spec.local(tick):%d %H:%M %z}" for tick in islice(spec.ticks_after(start), count)]


def test_half_past_two_comes_once_each_night_also_when_the_clocks_change() -> None:
    spec = Spec(cron="30 2 * * *", zone=BERLIN)
    assert shown(spec, utc(2026, 3, 27, 12), 3) == ["28 02:30 +0100", "29 03:00 +0200",
                                                    "30 02:30 +0200"]  # fmt: skip
    assert shown(spec, utc(2026, 10, 24, 12), 2) == ["25 02:30 +0200", "26 02:30 +0100"]


def test_two_times_of_a_gap_are_one_tick_at_its_end() -> None:
    spec = Spec(cron="30,45 2 * * *", zone=BERLIN)
    assert shown(spec, utc(2026, 3, 28, 12), 2) == ["29 03:00 +0200", "30 02:30 +0200"]


def test_what_follows_the_clock_skips_a_gap_and_repeats_a_repeated_hour() -> None:
    spec = Spec(cron="*/30 2 * * *", zone=BERLIN)
    assert shown(spec, utc(2026, 3, 28, 12), 1) == ["30 02:00 +0200"]
    assert shown(spec, utc(2026, 10, 24, 12), 5) == [
        "25 02:00 +0200",
        "25 02:30 +0200",
        "25 02:00 +0100",
        "25 02:30 +0100",
        "26 02:00 +0100",
    ]


def test_a_change_by_half_an_hour_loses_no_quarter_of_an_hour() -> None:
    spec = Spec(cron="*/15 2 * * *", zone="Australia/Lord_Howe")
    back = datetime(2026, 4, 5, tzinfo=ZoneInfo("Australia/Lord_Howe")).timestamp()
    assert len(list(spec.ticks_between(back, back + 12 * 3600))) == 4


@each_case(
    ("alias", "cron"),
    [("@hourly", "0 * * * *"), ("@weekly", "0 0 * * 0"), ("@YEARLY", "0 0 1 1 *")],
)
def test_an_alias_is_its_expression(alias: str, cron: str) -> None:
    start = utc(2026, 5, 5)
    assert Spec(cron=alias).next_after(start) == Spec(cron=cron).next_after(start)


@given(st.floats(0, 4e9), st.integers(1, 10**7))
def test_a_period_is_counted_from_1970(instant: float, every: int) -> None:
    tick = Spec(every=every).next_after(instant)
    assert tick is not None
    assert tick % every == 0
    assert instant < tick <= instant + every


def test_ticks_between_hold_the_first_instant_and_not_the_last() -> None:
    assert list(Spec(every=60).ticks_between(60, 240)) == [60, 120, 180]
    assert list(Spec(every=60).ticks_between(60.5, 120.5)) == [120]


def test_the_spread_is_the_same_on_every_host_and_differs_by_name_and_tick() -> None:
    spec = Spec(every=600, jitter=60)
    due = {spec.due(name, tick) - tick for name in ("a", "b") for tick in (600.0, 1200.0)}
    assert len(due) == 4
    assert all(0 <= late < 60 for late in due)
    assert spec.due("poll", 600.0) == 655.8487344402396  # of all releases
    assert Spec(every=600).due("poll", 600.0) == 600.0


@each_case(
    "spec",
    [Spec(cron="30 2 * * 1-5", zone=BERLIN), Spec(every=600, jitter=60.5), Spec(cron="@daily")],
)
def test_a_spec_is_read_back_from_its_json(spec: Spec) -> None:
    assert msgspec.json.decode(msgspec.json.encode(spec), type=Spec) == spec


def test_a_spec_of_a_zone_that_this_host_lacks_says_so_when_it_is_read() -> None:
    with pytest.raises(ConfigError, match="zone 'Mars/Olympus' is not known on this host"):
        msgspec.json.decode(b'{"cron":"0 0 * * *","zone":"Mars/Olympus"}', type=Spec)


@pytest.mark.parametrize(
    ("cron", "message"),
    [
        ("0 0 * * MON-SUN", "ranges rise: 1-7, not MON-SUN"),
        ("CRON_TZ=Europe/Berlin 0 0 * * *", "cannot contain a zone: give zone='Europe/Berlin'"),
        ("TZ=UTC 0 0 * * *", "cannot contain a zone: give zone='UTC'"),
    ],
)
def test_what_other_crons_take_is_refused_with_the_way_to_say_it(cron: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Spec(cron=cron)


def test_two_names_of_the_same_span_are_one() -> None:
    for name, other in (("@midnight", "@daily"), ("@annually", "@yearly")):
        assert Spec(cron=name).next_after(0.0) == Spec(cron=other).next_after(0.0)


@each_case(
    ("cron", "message"),
    [
        ("61 * * * *", "'61' is not valid for the minute, which takes 0-59"),
        ("0 25 * * *", "'25' is not valid for the hour"),
        ("0 0 0 * *", "'0' is not valid for the day of the month"),
        ("0 0 1 JANUARY *", "'JANUARY' is not valid for the month, which takes 1-12 or JAN-DEC"),
        ("0 0 * * FRI-SUN", "'FRI-SUN' is not valid for the day of the week"),
        ("0 0 * * MON#1/2", "is not valid for the day of the week"),
        ("*/90 * * * *", "'\\*/90' is not valid for the minute, .* steps up to /59"),
        ("0 0 30 2 *", "never matches"),
        ("0 0 */31 * MON#2", "never matches"),
        ("*/10 * * * * *", "has six fields; it takes five.*use every="),
        ("0 0 * *", "has 4 fields; it takes five: minute, hour"),
        ("", "has 0 fields"),
        ("@reboot", "cron has no '@reboot'; choose from: @hourly, @daily"),
        (["0 0 * * *"], "cron must be a text"),
        ("1" * 5000, "cron must be a text"),
    ],
)
def test_a_wrong_expression_is_refused_by_the_name_of_its_field(cron, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Spec(cron=cron)


@each_case(
    ("fields", "message"),
    [
        ({}, "give cron=.* or every=.*: neither is given"),
        ({"cron": "0 0 * * *", "every": 60}, "both are given"),
        ({"every": 0}, "every must be at least 1 second"),
        ({"every": 0.5}, "every must be at least 1 second"),
        ({"every": 1.5}, "every must be whole seconds"),
        ({"every": "60"}, "every must be seconds, such as 600"),
        ({"every": True}, "every must be seconds"),
        ({"every": float("nan")}, "every must be at least 1 second"),
        ({"every": 60, "jitter": 61}, "jitter must be seconds from 0 to 60"),
        ({"cron": "@daily", "jitter": -1}, "jitter must be seconds from 0 to 86400"),
        ({"every": 60, "jitter": "1"}, "jitter must be seconds, such as 60"),
        ({"every": 60, "zone": "Europe/Berln"}, "did you mean Europe/Berlin"),
        ({"every": 60, "zone": "/etc/localtime"}, "zone '/etc/localtime' is not known"),
        ({"every": 60, "zone": "Europe"}, "zone 'Europe' is not known"),
        ({"every": 60, "zone": ""}, "zone '' is not known"),
        ({"every": 60, "zone": ["UTC"]}, "zone must be a name such as 'Europe/Berlin'"),
    ],
)
def test_a_wrong_field_is_named(fields, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Spec(**fields)


def test_a_field_of_a_later_release_is_not_passed_over() -> None:
    with pytest.raises(msgspec.ValidationError, match="holidays"):
        msgspec.json.decode(b'{"cron":"0 0 * * *","holidays":"DE"}', type=Spec)


def test_where_the_calendar_ends_there_is_no_tick() -> None:
    assert Spec(every=60).next_after(math.inf) is None
    assert Spec(cron="@daily").next_after(math.nan) is None
    assert Spec(cron="@yearly").next_after(253_402_300_000) is None
    assert Spec(cron="* * * * *", zone=BERLIN).next_after(1e18) is None


@each_case(
    ("cron", "kinds"),
    [
        ("*/30 2 * * *", ["29 Mar skipped 02:00 02:30", "25 Oct repeated 02:00 02:30"]),
        ("0 */2 * * *", ["29 Mar skipped 02:00", "25 Oct repeated 02:00"]),
        ("30,45 2 * * *", ["29 Mar merged 02:30 02:45"]),
        ("30 2 * * *", []),  # late once, and that is all
        ("*/5 * * * *", []),  # as far apart as always
        ("*/30 4 * * *", []),
    ],
)
def test_what_a_change_of_the_clocks_does_to_ticks_is_told(cron: str, kinds: list[str]) -> None:
    spec = Spec(cron=cron, zone=BERLIN)
    found = [
        f"{spec.local(one.change):%d %b} {one.kind} " + " ".join(f"{w:%H:%M}" for w in one.walls)
        for one in spec.disturbances(utc(2026, 1, 1), days=365)
    ]
    assert found == kinds


@each_case(
    ("seconds", "days", "number"),
    [(-1, 300, 2), (0, 300, 1), (0, 210, 1), (-1, 210, 1), (0, 209, 0)],
)
def test_changes_count_from_one_second_to_another(seconds: int, days: int, number: int) -> None:
    change = utc(2026, 3, 29, 1)  # the next one is 210 days later
    found = Spec(cron="0 */2 * * *", zone=BERLIN).disturbances(change + seconds, days)
    assert len(list(found)) == number


def test_schedules_of_a_zone_look_for_its_changes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    real = cron.next_change

    def look(*asked: Any) -> int | None:
        looks.append(1)
        return real(*asked)

    monkeypatch.setattr(cron, "next_change", look)
    for hour in range(24):
        start = utc(2031, 1, 1, hour)
        assert list(Spec(cron=f"{hour} 4 * * *", zone="America/Lima").disturbances(start)) == []
    assert len(looks) == 1
