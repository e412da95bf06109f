"""Check any store: whether it answers, its schema, and its schedules."""

from __future__ import annotations

from collections.abc import Iterator

from outlast.base.text import line
from outlast.insight.availability import list_alive
from outlast.insight.doctor.facts import Facts
from outlast.insight.schedules import falling_into_changes, find_malformed
from outlast.store.finding import CheckContext, Finding, hint, ok, problem, warning

SAID_MAX = 600  # characters of an error
SCHEDULES_SHOWN = 5
NO_MIGRATION = "Do what is said there; `outlast migrate` does not help."
GRANT = "Run `outlast migrate --grant ROLE` as the owner of the tables."


def reachable(facts: Facts) -> Iterator[Finding]:
    """Whether the store answers."""
    if facts.error is None:
        yield ok("store", f"{facts.place} answers.")
        return
    first = line(facts.error.partition("\n")[0], SAID_MAX)  # the advice follows below
    end = "" if first.endswith("?") else "."
    mend = (
        "Check --url or $OUTLAST_URL, and that the store is up; `outlast migrate` makes a new one."
    )
    yield problem("store", f"{first}{end}", mend)


def schema(facts: Facts) -> Iterator[Finding]:
    """Whether this program can work with the schema."""
    if facts.mismatch is not None:
        helps = "outlast migrate" in facts.mismatch
        mend = "Run `outlast migrate`." if helps else NO_MIGRATION
        yield problem("schema", f"{line(facts.mismatch, SAID_MAX)}.", mend)
    elif facts.denied is not None and facts.environment and facts.environment.limited_to:
        yield hint(
            "unread",
            "What this role may not read was not looked at.",
            "To have it checked, run this as the role of a worker, or as one that was granted"
            " `--only view`.",
        )
    elif facts.denied is not None:
        yield problem("privileges", f"{line(facts.denied, SAID_MAX)}.", GRANT)
    elif facts.error is None:
        yield ok("schema", "The schema is one that this program works on.")


def environment(facts: Facts) -> Iterator[Finding]:
    """What the store finds wrong with its own server, or its file and disk."""
    if facts.environment is not None:
        live = len(list_alive(facts.workers, facts.now))
        context = CheckContext(now=facts.now, asked_at=facts.asked_at, workers=live)
        yield from facts.environment.check(context)


STORE = (reachable, schema, environment)


def clock_changes(facts: Facts) -> Iterator[Finding]:
    """Whether a change of the clocks within a year skips, merges or repeats ticks."""
    found = list(falling_into_changes(facts.schedules, facts.now))
    for name, sentence in found[:SCHEDULES_SHOWN]:
        yield warning(
            "clock_changes",
            f"Schedule {line(name)}, {line(sentence, SAID_MAX)}.",
            "Take an hour in which no clock of the zone changes, or zone='UTC'.",
        )
    if len(found) > SCHEDULES_SHOWN:
        yield warning(
            "clock_changes",
            f"{len(found) - SCHEDULES_SHOWN} more schedules fall into a change of the clocks.",
            "`outlast schedules show NAME --next 1000` shows when each of them fires.",
        )


def unreadable(facts: Facts) -> Iterator[Finding]:
    """Whether this host can read all schedules."""
    told = ((row.name, find_malformed(row)) for row in facts.schedules)
    found = [(name, why) for name, why in told if why is not None]
    if found:
        name, why = found[0]
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        yield warning(
            "schedules",
            f"This host cannot fire schedule {line(name)}: {line(why, SAID_MAX)}{more}.",
            "Update tzdata on the hosts that lack the zone, or put the schedule again.",
        )


SCHEDULES = (clock_changes, unreadable)
