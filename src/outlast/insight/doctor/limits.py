"""Check limits under which nothing starts while jobs wait for them."""

from __future__ import annotations

from collections.abc import Iterator

from outlast.base.text import line, span
from outlast.insight.doctor.facts import Facts
from outlast.insight.limits import counted
from outlast.insight.sentences import NAME_MAX, quote
from outlast.store.finding import Finding, warning
from outlast.store.limits import LimitRow


def closed(facts: Facts) -> Iterator[Finding]:
    """Whether jobs wait for a limit that is not declared, set to 0, or held."""
    for row in [] if facts.statistics is None else facts.statistics.limits:
        if row.waiting:
            yield from _judge(row, facts.now)


def _judge(row: LimitRow, now: float) -> Iterator[Finding]:
    name = line(row.name, NAME_MAX)
    due = f"{counted(row, 'waiting')} due jobs wait for the limit {quote(row.name)}"
    if row.declared is None:
        yield warning(
            "limit_unknown",
            f"{due}, which no worker's code has declared.",
            "Start a worker whose code declares it with app.limit(…).",
        )
    elif row.running == 0:
        yield warning(
            "limit_closed",
            f"{due}, which lets none run: its count is 0.",
            f"`outlast limits set {name} --running N` opens it, `outlast limits reset {name}` goes"
            " back to what the code says.",
        )
    elif row.held_until is not None and row.held_until > now:
        yield warning(
            "limit_held",
            f"{due}, under which nothing starts for {span(row.held_until - now)}.",
            f"`outlast limits hold {name} 0` ends that.",
        )


LIMITS = (closed,)
