"""Computes a schedule's *ticks*, the planned instants, from a cron expression or a period.

A tick is a whole second, without the ``jitter``: the same instant on every host, so that a store
can hold two hosts to one job for each tick.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import takewhile

import msgspec

from outlast.errors import ConfigError
from outlast.model.cron import (
    DAY,
    Cron,
    changes_between,
    check_text,
    check_zone,
    cron_of,
    end_of_gap,
    instants_of,
    wall_at,
    zone_of,
)

SECONDS_MAX = 100 * 365 * DAY  # of a period
JITTER_MAX = float(DAY)


class Spec(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """When a schedule fires. Raises ConfigError, naming the field, for invalid values.

    Reading it back from JSON raises ConfigError where this host lacks something, such as the zone,
    and DecodeError for a field of a later release, which may change when the schedule fires.

    Attributes:
        cron: five fields, or ``@hourly``, ``@daily``, ``@weekly``, ``@monthly``, ``@yearly``.
        every: whole seconds between two ticks, counted from 1970; instead of ``cron``.
        zone: the zone of ``cron``'s wall times, such as ``Europe/Berlin``.
        jitter: the most seconds by which a job is due later than its tick; each job has its own
            share.
    """

    cron: str | None = None
    every: int | None = None
    zone: str = "UTC"
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if (self.cron is None) == (self.every is None):
            given = "neither is" if self.cron is None else "both are"
            raise ConfigError(f"give cron='30 2 * * *' or every=600 (seconds): {given} given")
        if self.cron is not None:
            cron_of(check_text(self.cron))
        else:
            _check_every(self.every)
        zone_of(check_zone(self.zone))
        _check_jitter(self.jitter, self.every)

    def next_after(self, instant: float) -> float | None:
        """Return the first tick later than an instant (seconds since 1970), or None if the calendar
        ends or 50 years have no match."""
        if not math.isfinite(instant):
            return None
        if self.every is not None:
            return float((math.floor(instant) // self.every + 1) * self.every)
        return self._cron.next_after(instant, zone_of(self.zone))

    def ticks_after(self, instant: float) -> Iterator[float]:
        """Yield the ticks later than an instant, in order."""
        tick = self.next_after(instant)
        while tick is not None:
            yield tick
            tick = self.next_after(tick)

    def ticks_between(self, start: float, end: float) -> Iterator[float]:
        """Yield the ticks with ``start <= tick < end``, in order."""
        return takewhile(lambda tick: tick < end, self.ticks_after(math.ceil(start) - 1))

    def due(self, name: str, tick: float) -> float:
        """Return when the job of this tick is due: the tick plus its share of the jitter, which is
        the same on every host."""
        seed = blake2b(f"{name}\0{tick:.0f}".encode("utf-8", "replace"), digest_size=8).digest()
        return tick + self.jitter * (int.from_bytes(seed) / 2**64)

    def local(self, instant: float) -> datetime:
        """Return an instant as the clocks of the schedule's zone show it (aware)."""
        return datetime.fromtimestamp(instant, zone_of(self.zone))

    def disturbances(self, start: float, days: int = 366) -> Iterator[Disturbance]:
        """Yield the changes of the clocks in the next days that skip, merge or repeat ticks. Late
        ticks (02:30 on a night without it) do not count, nor do those of an hourly expression."""
        if self.cron is None or self._cron.is_hourly:
            return
        at = math.floor(start)
        day = at - at % DAY  # all schedules of a zone ask for the same, cached changes all day
        for change in changes_between(zone_of(self.zone), day, day + (days + 1) * DAY):
            if at < change <= at + days * DAY:
                yield from _disturbances_at(self, self._cron, change)

    @property
    def _cron(self) -> Cron:
        assert self.cron is not None
        return cron_of(self.cron)


class Disturbance(msgspec.Struct, frozen=True):
    """A clock change that has ``skipped``, ``merged`` or ``repeated`` these wall times of a day."""

    change: float
    kind: str
    walls: list[datetime]


def _disturbances_at(spec: Spec, cron: Cron, change: int) -> Iterator[Disturbance]:
    zone = zone_of(spec.zone)
    before, after = wall_at(zone, change - 1), wall_at(zone, change)
    first, last = min(before, after), max(before, after)
    walls = list(
        takewhile(lambda wall: wall <= last, cron.walls_after(first - timedelta(seconds=1)))
    )
    if after > before:
        walls = [wall for wall in walls if not instants_of(zone, wall)]
        late = [wall for wall in walls if end_of_gap(zone, wall) == change]
        if cron.follows_clock and walls:
            yield Disturbance(float(change), "skipped", walls)
        elif len(late) > 1:
            yield Disturbance(float(change), "merged", late)
    elif cron.follows_clock and (twice := [w for w in walls if len(instants_of(zone, w)) > 1]):
        yield Disturbance(float(change), "repeated", twice)


def _check_every(every: object) -> None:
    if isinstance(every, bool) or not isinstance(every, int | float):
        raise ConfigError(f"every must be seconds, such as 600, not {ascii(every)[:80]}")
    if not 1 <= every <= SECONDS_MAX:
        raise ConfigError(f"every must be at least 1 second, and at most 100 years, not {every:g}")
    if not isinstance(every, int):
        raise ConfigError(f"every must be whole seconds, such as 600, not {every:g}")


def _check_jitter(jitter: object, every: int | None) -> None:
    if isinstance(jitter, bool) or not isinstance(jitter, int | float):
        raise ConfigError(f"jitter must be seconds, such as 60, not {ascii(jitter)[:80]}")
    most = min(JITTER_MAX, every or JITTER_MAX)
    if not 0 <= jitter <= most:
        raise ConfigError(
            f"jitter must be seconds from 0 to {most:.0f} (a day, or every if that is shorter), not"
            f" {jitter:g}"
        )
