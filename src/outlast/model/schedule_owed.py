"""Ticks that are owed: those that passed while a schedule was paused, or until it was changed.

The store reads no specs. Where it moves a schedule on without a plan, it notes from which instant
to which one it passes over the ticks of which spec, a line for each: ``SINCE UNTIL SPEC``. The next
worker that plans counts them as missed, in the commit of its firing. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from outlast.errors import ConfigError
from outlast.model.schedule_plan import LOOK_TICKS, count_passed

if TYPE_CHECKING:
    from outlast.model.schedule import Spec

_BAD = (ConfigError, ValueError, ArithmeticError, RecursionError)


def owe(owed: str, since: float, until: float, spec: str, most: int) -> str:
    """Return what is owed with the ticks of a spec that are later than ``since`` and up to
    ``until``. Ticks are whole seconds, and so are the bounds. What would be longer than ``most``
    characters stays as it is."""
    first, last = int(since), int(until)
    if last <= first or len(owed) + len(spec) > most:
        return owed
    return f"{owed}{first} {last} {spec}\n"


def count_owed(owed: str, read: Callable[[str], Spec]) -> tuple[int, str]:
    """Return how many ticks that are owed have passed, and what is left to count, if they are too
    many to be counted at once."""
    passed = 0
    while owed and passed < LOOK_TICKS:
        line, _, rest = owed.partition("\n")
        more, left = _count_line(line, read)
        passed, owed = passed + more, f"{left}\n{rest}" if left else rest
    return passed, owed


def _count_line(line: str, read: Callable[[str], Spec]) -> tuple[int, str]:
    """A line that cannot be read here counts nothing: to wait for a host that can would hold the
    schedule up."""
    try:
        since, until, spec = line.split(" ", 2)
        passed, reached = count_passed(read(spec), float(since), float(until))
    except _BAD:
        return 0, ""
    return passed, f"{reached:.0f} {until} {spec}" if reached < float(until) else ""
