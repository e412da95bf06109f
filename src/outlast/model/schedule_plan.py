"""Decides which ticks of a due schedule are fired and which are missed. Pure.

A plan accounts once for every tick after ``since`` and up to now: it fires the tick or counts it as
missed. The store skips a fired tick if an earlier job is unfinished. Now is read from the store's
clock. If that clock steps back there is no such tick, and nothing is fired until it has passed
``since`` again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from outlast.model.schedule import Spec

GRACE_SECONDS = 86_400.0  # a tick that is late by more is missed
ON_TIME_SECONDS = 60.0  # a tick that is late by no more is fired without catch-up, too
CAUGHT_UP_MAX = 100  # ticks of one schedule that are fired at once
LOOK_TICKS = 300  # that one plan accounts for; the next plan takes the rest


class Overlap(StrEnum):
    """Whether a tick gets a job while the job of an earlier tick is unfinished."""

    SKIP = "skip"
    ALLOW = "allow"


class CatchUp(StrEnum):
    """Which ticks are fired if several have passed since the last plan."""

    LAST = "last"
    ALL = "all"
    NONE = "none"


class TickPlan(msgspec.Struct, frozen=True):
    """The decision: fire ``ticks``, count ``missed`` others as missed. Afterwards all ticks up to
    ``since`` are accounted for, and ``then`` is the next one, which may be due already (None: there
    is no next tick)."""

    ticks: list[float]
    missed: int
    since: float
    then: float | None


def plan(spec: Spec, since: float, now: float, catch_up: CatchUp, grace: float) -> TickPlan:
    """Return the plan for the ticks later than ``since`` and up to ``now``. A tick that is late by
    more than ``grace`` seconds is missed."""
    start, missed = _pass_over(spec, since, now)
    found, then = _find_passed(spec, start, now)
    if len(found) > LOOK_TICKS:  # the first ones are missed in any case
        passed = found[:-CAUGHT_UP_MAX]
        return TickPlan([], missed + len(passed), passed[-1], found[-CAUGHT_UP_MAX])
    most = CAUGHT_UP_MAX if catch_up is CatchUp.ALL else 1
    late = min(grace, ON_TIME_SECONDS) if catch_up is CatchUp.NONE else grace
    ticks = [tick for tick in found[-most:] if now - tick <= late]
    last = found[-1] if found else start
    return TickPlan(ticks, missed + len(found) - len(ticks), last, then)


def count_passed(spec: Spec, since: float, until: float) -> tuple[int, float]:
    """Return the number of ticks later than ``since`` and up to an instant, and that instant:
    ``until``, or an earlier one if the ticks are too many to be counted at once."""
    start, passed = _pass_over(spec, since, until)
    found, _ = _find_passed(spec, start, until)
    return passed + len(found), found[-1] if len(found) > LOOK_TICKS else until


def _find_passed(spec: Spec, start: float, now: float) -> tuple[list[float], float | None]:
    """Return the ticks up to now, or one more than LOOK_TICKS of them, and the tick after them."""
    found: list[float] = []
    for tick in _after(spec, start):
        if tick > now or len(found) > LOOK_TICKS:
            return found, tick
        found.append(tick)
    return found, None


def _pass_over(spec: Spec, since: float, now: float) -> tuple[float, int]:
    """Return the instant from which ticks are examined one by one, and the number of ticks before
    it: the ticks of a period can be counted at once."""
    if spec.every is None:
        return since, 0
    first, last = math.floor(since) // spec.every, math.floor(now) // spec.every
    passed = max(0, last - first - LOOK_TICKS)
    return (float((first + passed) * spec.every), passed) if passed else (since, 0)


def _after(spec: Spec, instant: float) -> Iterator[float]:
    """Yield the ticks later than an instant. Stop at a tick that is no later than the one before:
    it is accounted for."""
    tick = spec.next_after(instant)
    while tick is not None and tick > instant:
        yield tick
        instant, tick = tick, spec.next_after(tick)
