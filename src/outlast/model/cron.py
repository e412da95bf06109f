"""Reads cron expressions: the wall times that they match, and their instants in a zone.

cronsim reads an expression and walks the calendar on wall times without a zone. The changes of the
clocks are handled here, because cronsim's answers about them depend on where it begins. The rules
are those of Debian's cron:

- An expression whose minute and hour both name times (``30 2 * * *``) fires once for each match: at
  the first instant of a time that comes twice, and as soon as the clocks have changed for a time
  that they skip.
- An expression whose minute or hour begins with ``*`` follows the clock: times that the clock skips
  do not fire, and times that come twice fire twice.

An instant is in seconds since 1970. A wall time is a datetime without a zone.
"""

from __future__ import annotations

import copy
import difflib
import math
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from outlast.errors import ConfigError

CRON_MAX = 200  # characters of an expression
ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = (  # name, the values it takes, the largest step that means anything
    ("minute", "0-59", 59),
    ("hour", "0-23", 23),
    ("day of the month", "1-31 or L for the last", 31),
    ("month", "1-12 or JAN-DEC", 12),
    (
        "day of the week",
        "0-7 or SUN-SAT, where 0 and 7 are Sunday (ranges rise: 1-7, not MON-SUN)",
        7,
    ),
)
_ANY_START = datetime(2000, 1, 1)  # noqa: DTZ001
DAY = 86_400
ZONE_MAX = 100  # characters of a zone's name


class Cron:
    """A cron expression of five fields, checked.

    Attributes:
        text: the expression as it was written.
        follows_clock: whether the minute or hour begins with ``*``, so that ticks are lost or
            repeated where the clocks change.
        is_hourly: whether it fires in every hour of a day that it matches.
    """

    text: str
    follows_clock: bool
    is_hourly: bool

    def __init__(self, text: str) -> None:
        """Read the expression. ConfigError names the field that is wrong."""
        self.text = text
        fields = _fields_of(text)
        self._parsed = _parse(text, fields)
        minute, hour = fields[:2]
        self.follows_clock = minute.startswith("*") or hour.startswith("*")
        self.is_hourly = len(self._parsed.hours) == 24  # noqa: PLR2004
        if next(self.walls_after(_ANY_START), None) is None:
            raise _never(text)

    def walls_after(self, wall: datetime) -> Iterator[datetime]:
        """Yield later matching wall times, until the calendar ends or 50 years have no match."""
        walk = copy.copy(self._parsed)
        walk.dt = wall.replace(microsecond=0)
        try:
            yield from walk
        except OverflowError:  # the year 10000
            return

    def next_after(self, instant: float, zone: ZoneInfo) -> float | None:
        """Return the first tick later than an instant, or None if the calendar has none."""
        begin = math.floor(instant)
        try:
            wall = wall_at(zone, begin)
            find = self._by_clock if self.follows_clock else self._by_time
            found = find(begin, wall, zone)
        except (OverflowError, ValueError, OSError):  # before the year 1, or after the year 9999
            return None
        return None if found is None else float(found)

    def _by_time(self, begin: int, wall: datetime, zone: ZoneInfo) -> int | None:
        for match in self.walls_after(wall):
            at = next(iter(instants_of(zone, match)), None)
            fires = end_of_gap(zone, match) if at is None else at
            if fires > begin:  # not so in the second run of a repeated hour
                return fires
        return None

    def _by_clock(self, begin: int, wall: datetime, zone: ZoneInfo) -> int | None:
        """Continue from a change of the clocks within a day: it may repeat earlier wall times."""
        change = next_change(zone, begin, begin + DAY)
        if change is None:
            return self._first_shown(begin, wall, zone)
        found = self._first_shown(begin, wall, zone)
        if found is not None and found < change:
            return found
        return self._first_shown(change - 1, wall_at(zone, change) - timedelta(seconds=1), zone)

    def _first_shown(self, begin: int, wall: datetime, zone: ZoneInfo) -> int | None:
        for match in self.walls_after(wall):
            for at in instants_of(zone, match):
                if at > begin:
                    return at
        return None


@lru_cache(maxsize=4096)
def cron_of(text: str) -> Cron:
    """Return the expression, parsed once and cached. ConfigError names the field that is wrong."""
    return Cron(text)


def check_text(text: object) -> str:
    """Return the text of an expression; ConfigError if it is not a short ASCII text."""
    if not isinstance(text, str) or len(text) > CRON_MAX or not text.isascii():
        raise ConfigError(f"cron must be a text such as '30 2 * * *', not {ascii(text)[:80]}")
    return text


def _fields_of(text: str) -> list[str]:
    if text.strip().startswith("@"):
        if text.strip().lower() not in ALIASES:
            raise ConfigError(f"cron has no {text.strip()!r}; choose from: {', '.join(ALIASES)}")
        text = ALIASES[text.strip().lower()]
    fields = text.split()
    if found := re.match(r"(?:CRON_)?TZ=(\S+)", text.strip()):
        raise ConfigError(f"cron {text!r} cannot contain a zone: give zone={found[1]!r}")
    if len(fields) == 6:  # noqa: PLR2004
        raise ConfigError(
            f"cron {text!r} has six fields; it takes five, from the minute to the day of the week."
            " For ticks that are seconds apart use every=…"
        )
    if len(fields) != len(_FIELDS):
        raise ConfigError(
            f"cron {text!r} has {len(fields)} fields; it takes five: minute, hour, day of the"
            " month, month, day of the week, such as '30 2 * * *'"
        )
    return fields


def _parse(text: str, fields: list[str]) -> CronSim:
    """Return cronsim's form of it. Each field is tried alone first, so that errors can name it."""
    for position, (name, takes, most) in enumerate(_FIELDS):
        alone = ["*"] * len(_FIELDS)
        alone[position] = field = fields[position]
        too_far = any(int(step) > most for step in re.findall(r"/(\d{1,9})", field))
        if _read(" ".join(alone)) is None or too_far:
            raise ConfigError(
                f"cron {text!r}: {field!r} is not valid for the {name}, which takes {takes},"
                f" lists, ranges and steps up to /{most}"
            )
    parsed = _read(" ".join(fields))
    if parsed is None:  # the only error that fields can have together
        raise _never(text)
    return parsed


def _read(expression: str) -> CronSim | None:
    try:
        return CronSim(expression, _ANY_START)
    except (CronSimError, ValueError, AssertionError):
        return None


def _never(text: str) -> ConfigError:
    return ConfigError(f"cron {text!r} never matches: the calendar has no such date")


def check_zone(name: object) -> str:
    """Return the name of a zone, not looked up yet; ConfigError if it is not a text."""
    if not isinstance(name, str):
        raise ConfigError(f"zone must be a name such as 'Europe/Berlin', not {ascii(name)[:80]}")
    return name


@lru_cache(maxsize=1024)
def zone_of(name: str) -> ZoneInfo:
    """Return the zone of that name; ConfigError, with similar names, if there is none."""
    try:
        if not 0 < len(name) <= ZONE_MAX:
            raise ValueError(name)
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ConfigError(_unknown(name)) from None


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name[:ZONE_MAX], available_timezones(), n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "names are such as Europe/Berlin"
    return f"zone {ascii(name)[:80]} is not known on this host; {hint}"


def wall_at(zone: ZoneInfo, instant: float) -> datetime:
    """Return the wall time in the zone at an instant."""
    return datetime.fromtimestamp(instant, zone).replace(tzinfo=None, fold=0)


def instants_of(zone: ZoneInfo, wall: datetime) -> list[int]:
    """Return the instants at which clocks in the zone show this whole second: one, none or two."""
    both = (int(wall.replace(tzinfo=zone, fold=fold).timestamp()) for fold in (0, 1))
    return [at for at in dict.fromkeys(both) if wall_at(zone, at) == wall]


def end_of_gap(zone: ZoneInfo, wall: datetime) -> int:
    """Return the instant at which the clocks skip this time, which they never show."""
    later, earlier = (int(wall.replace(tzinfo=zone, fold=fold).timestamp()) for fold in (0, 1))
    return _change_between(zone, earlier, later)


def next_change(zone: ZoneInfo, after: int, until: int) -> int | None:
    """Return the first change of the clocks in ``after < instant <= until``. One instant a day is
    checked: no zone changes its clocks twice in a day."""
    at = after
    while at < until:
        step = min(at + DAY, until)
        if _offset(zone, at) != _offset(zone, step):
            return _change_between(zone, at, step)
        at = step
    return None


@lru_cache(maxsize=64)
def changes_between(zone: ZoneInfo, after: int, until: int) -> tuple[int, ...]:
    """Return all instants in ``after < instant <= until`` at which the clocks change."""
    found: list[int] = []
    at: int | None = after
    while at is not None and (at := next_change(zone, at, until)) is not None:
        found.append(at)
    return tuple(found)


def _change_between(zone: ZoneInfo, before: int, after: int) -> int:
    """Return the first second whose offset differs from that of ``before``, as ``after``'s does."""
    old = _offset(zone, before)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(zone, middle) == old:
            before = middle
        else:
            after = middle
    return after


def _offset(zone: ZoneInfo, instant: int) -> float:
    offset = datetime.fromtimestamp(instant, zone).utcoffset()
    assert offset is not None
    return offset.total_seconds()
