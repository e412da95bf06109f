"""Check any store: whether it answers, and its schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from outlast.base.text import line
from outlast.insight.doctor.finding import Facts
from outlast.store.finding import Finding, Level, ok

SAID_MAX = 600  # characters of an error
NO_MIGRATION = "Do what is said there; `outlast migrate` does not help."
GRANT = "Run `outlast migrate --grant ROLE` as the owner of the tables."


def reachable(facts: Facts) -> Iterator[Finding]:
    """Whether the store answers."""
    if facts.error is None:
        yield ok("store", f"{facts.place} answers.")
        return
    first = facts.error.partition("\n")[0]  # the advice follows below
    mend = (
        "Check --url or $OUTLAST_URL, and that the store is up; `outlast migrate` makes a new one."
    )
    yield Finding(
        level=Level.PROBLEM, name="store", sentence=f"{line(first, SAID_MAX)}.", mend=mend
    )


def schema(facts: Facts) -> Iterator[Finding]:
    """Whether this program can work with the schema."""
    if facts.mismatch is not None:
        helps = "outlast migrate" in facts.mismatch
        mend = "Run `outlast migrate`." if helps else NO_MIGRATION
        yield Finding(
            level=Level.PROBLEM,
            name="schema",
            sentence=f"{line(facts.mismatch, SAID_MAX)}.",
            mend=mend,
        )
    elif facts.denied is not None and facts.environment and facts.environment.limited_to:
        yield Finding(
            level=Level.HINT,
            name="unread",
            sentence="What this role may not read was not looked at.",
            mend="To have it checked, run this as the role of a worker, or as one that was granted"
            " `--only view`.",
        )
    elif facts.denied is not None:
        yield Finding(
            level=Level.PROBLEM,
            name="privileges",
            sentence=f"{line(facts.denied, SAID_MAX)}.",
            mend=GRANT,
        )
    elif facts.error is None:
        yield ok("schema", "The schema is one that this program works on.")


STORE: tuple[Callable[[Facts], Iterator[Finding]], ...] = (reachable, schema)
