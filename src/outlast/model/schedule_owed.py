"""Counts the ticks that passed while a schedule was paused, or until it was changed.

The store reads no specs. When it advances a schedule without a plan, it notes the span and the spec
whose ticks it passes over, one line for each: ``SINCE UNTIL SPEC``. The next worker that plans
counts these *owed* ticks as missed, in the commit of its firing. Pure.
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
    """Return the text of what is owed, with the ticks of a spec that are later than ``since`` and
    up to ``until`` added. Ticks are whole seconds, and so are the bounds. A text that would be
    longer than ``most`` characters is returned unchanged."""
    first, last = int(since), int(until)
    if last <= first or len(owed) + len(spec) > most:
        return owed
    return f"{owed}{first} {last} {spec}\n"


def count_owed(owed: str, read: Callable[[str], Spec]) -> tuple[int, str]:
    """Return the number of owed ticks, and the rest to count later if they are too many to be
    counted at once."""
    passed = 0
    while owed and passed < LOOK_TICKS:
        line, _, rest = owed.partition("\n")
        more, left = _count_line(line, read)
        passed, owed = passed + more, f"{left}\n{rest}" if left else rest
    return passed, owed


def _count_line(line: str, read: Callable[[str], Spec]) -> tuple[int, str]:
    """A line that this host cannot read counts as nothing: waiting for a host that can read it
    would hold up the schedule."""
    try:
        since, until, spec = line.split(" ", 2)
        passed, reached = count_passed(read(spec), float(since), float(until))
    except _BAD:
        return 0, ""
    return passed, f"{reached:.0f} {until} {spec}" if reached < float(until) else ""
