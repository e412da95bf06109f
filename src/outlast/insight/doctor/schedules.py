"""Check schedules: ticks in a change of the clocks, and schedules that this host cannot read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from outlast.base.text import line
from outlast.insight.doctor.finding import Facts
from outlast.insight.schedules import falling_into_changes, find_malformed
from outlast.store.finding import Finding, Level

SHOWN = 5
SAID_MAX = 400


def clock_changes(facts: Facts) -> Iterator[Finding]:
    """Whether a change of the clocks within a year skips, merges or repeats ticks."""
    found = list(falling_into_changes(facts.schedules, facts.now))
    for name, sentence in found[:SHOWN]:
        yield Finding(
            level=Level.WARNING,
            name="clock_changes",
            sentence=f"Schedule {line(name)}, {line(sentence, SAID_MAX)}.",
            mend="Take an hour in which no clock of the zone changes, or zone='UTC'.",
        )
    if len(found) > SHOWN:
        yield Finding(
            level=Level.WARNING,
            name="clock_changes",
            sentence=f"{len(found) - SHOWN} more schedules fall into a change of the clocks.",
            mend="`outlast schedules show NAME --next 1000` shows when each of them fires.",
        )


def unreadable(facts: Facts) -> Iterator[Finding]:
    """Whether this host can read all schedules."""
    told = ((row.name, find_malformed(row)) for row in facts.schedules)
    found = [(name, why) for name, why in told if why is not None]
    if found:
        name, why = found[0]
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        yield Finding(
            level=Level.WARNING,
            name="schedules",
            sentence=f"This host cannot fire schedule {line(name)}: {line(why, SAID_MAX)}{more}.",
            mend="Update tzdata on the hosts that lack the zone, or put the schedule again.",
        )


SCHEDULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (clock_changes, unreadable)
