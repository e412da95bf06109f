"""Check limits under which nothing starts while jobs wait for them, or whose counts were wrong."""

from __future__ import annotations

from collections.abc import Iterator

from outlast.base.text import line, span
from outlast.insight.doctor.facts import Facts
from outlast.insight.limits import counted
from outlast.insight.sentences import NAME_MAX, at_time, quote
from outlast.store.finding import Finding, warning
from outlast.store.limits import LimitRow

_RECOUNTED_FOR = 86_400.0  # seconds for which a recount is told


def limits(facts: Facts) -> Iterator[Finding]:
    """Whether jobs wait for a limit that is not declared, set to 0, or held; and whether a limit
    counted other attempts than those that ran, which is never so by itself."""
    for row in [] if facts.statistics is None else facts.statistics.limits:
        if row.waiting:
            yield from _judge(row, facts.now)
        if row.recounted_at is not None and facts.now - row.recounted_at < _RECOUNTED_FOR:
            yield warning(
                "limit_recounted",
                f"The limit {quote(row.name)} counted other attempts than those that ran under it,"
                f" and was set right {at_time(row.recounted_at, facts.now)}.",
                "Rows were changed by other means: a restore of some tables, a statement by hand."
                " `outlast verify` looks for what else is wrong. If there was none of these, please"
                " report it: this is never to happen.",
            )


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


LIMITS = (limits,)
