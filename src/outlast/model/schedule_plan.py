"""Decides which ticks of a due schedule are fired and which are missed. Pure.

A plan accounts once for every tick after ``since`` and up to now, on the store's clock: it fires
the tick or counts it as missed. If that clock steps back, nothing is fired until it has passed
``since`` again. The store skips a fired tick if an earlier job is unfinished.

The store reads no specs. A schedule that it advances without a plan *owes* ticks: it notes a line
``SINCE UNTIL SPEC`` for each span passed over. The next worker that plans counts them as missed, in
the commit of its firing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from outlast.errors import ConfigError

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
    """Fire ``ticks``, count ``missed`` others. All ticks up to ``since`` are then accounted for;
    ``then`` is the next one, which may be due already, or None."""

    ticks: list[float]
    missed: int
    since: float
    then: float | None


def plan(spec: Spec, since: float, now: float, catch_up: CatchUp, grace: float) -> TickPlan:
    """Plan the ticks after ``since`` up to ``now``; one later than ``grace`` seconds is missed."""
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
    """Return the number of ticks after ``since`` up to an instant: ``until``, or an earlier one if
    the ticks are too many to be counted at once."""
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
    """Count the ticks of a period at once. Return the instant from which each is examined, and the
    number before it."""
    if spec.every is None:
        return since, 0
    first, last = math.floor(since) // spec.every, math.floor(now) // spec.every
    passed = max(0, last - first - LOOK_TICKS)
    return (float((first + passed) * spec.every), passed) if passed else (since, 0)


def _after(spec: Spec, instant: float) -> Iterator[float]:
    """Yield the ticks later than an instant, until one is not later than the one before."""
    tick = spec.next_after(instant)
    while tick is not None and tick > instant:
        yield tick
        instant, tick = tick, spec.next_after(tick)


_BAD = (ConfigError, ValueError, ArithmeticError, RecursionError)


def owe(owed: str, since: float, until: float, spec: str, most: int) -> str:
    """Return ``owed`` with the ticks of a spec after ``since`` up to ``until`` added; unchanged if
    it would be longer than ``most`` characters. Ticks are whole seconds, and so are the bounds."""
    first, last = int(since), int(until)
    if last <= first or len(owed) + len(spec) > most:
        return owed
    return f"{owed}{first} {last} {spec}\n"


def count_owed(owed: str, read: Callable[[str], Spec]) -> tuple[int, str]:
    """Return the number of owed ticks, and the text of those left to count later."""
    passed = 0
    while owed and passed < LOOK_TICKS:
        line, _, rest = owed.partition("\n")
        more, left = _count_line(line, read)
        passed, owed = passed + more, f"{left}\n{rest}" if left else rest
    return passed, owed


def _count_line(line: str, read: Callable[[str], Spec]) -> tuple[int, str]:
    """Count one line as ``count_owed`` does. A line that this host cannot read counts as nothing:
    waiting for a host that can would block the schedule."""
    try:
        since, until, spec = line.split(" ", 2)
        passed, reached = count_passed(read(spec), float(since), float(until))
    except _BAD:
        return 0, ""
    return passed, f"{reached:.0f} {until} {spec}" if reached < float(until) else ""
