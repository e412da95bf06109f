"""Converts between instants and wall times of a zone, and finds the changes of its clocks.

An instant is in seconds since 1970. A wall time is a datetime without a zone, as a clock on the
wall shows it. At a change of the clocks some wall times are skipped, and others come twice.
"""

from __future__ import annotations

import difflib
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from outlast.errors import ConfigError

DAY = 86_400
ZONE_MAX = 100  # characters of a zone's name


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
    """Return the instants at which clocks in the zone show this time: one, none or two, in order.
    The time is a whole second."""
    both = (int(wall.replace(tzinfo=zone, fold=fold).timestamp()) for fold in (0, 1))
    return [at for at in dict.fromkeys(both) if wall_at(zone, at) == wall]


def end_of_gap(zone: ZoneInfo, wall: datetime) -> int:
    """Return the instant at which the clocks skip this time, which they never show."""
    later, earlier = (int(wall.replace(tzinfo=zone, fold=fold).timestamp()) for fold in (0, 1))
    return _change_between(zone, earlier, later)


def next_change(zone: ZoneInfo, after: int, until: int) -> int | None:
    """Return the first instant in ``after < instant <= until`` at which the clocks change.

    It checks one instant a day, since no zone changes its clocks twice in a day.
    """
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
