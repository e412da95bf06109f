"""Show what the attempts of a job have printed, for its pages and the API."""

from __future__ import annotations

import msgspec

from outlast.base.text import cut, safe
from outlast.store.logs import LogLine, LogRow
from outlast.web.visit import Visit

LINES_SHOWN = 50  # on the page of the job; the page of its logs has all kept lines
LINE_MAX = 500  # characters of a line on that page


class ShownLog(msgspec.Struct, frozen=True):
    """The output of one attempt, as pages show it. ``missing``: how many lines came before the kept
    ones; ``hidden``: how many kept lines are not shown."""

    token: int
    number: int
    missing: int
    hidden: int
    lines: list[LogLine]


async def read_logs(visit: Visit, job_id: int) -> list[LogRow]:
    """Return the kept output of a job's attempts, the newest first."""
    kept = await visit.ask(("logs", job_id), lambda store: store.inspector.logs(job_id))
    return kept[::-1]


def show_log(log: LogRow, most: int | None = None, line_max: int = 10**6) -> ShownLog:
    """Return the last ``most`` lines of an attempt, each cut at ``line_max`` characters."""
    lines = log.lines
    shown = lines if most is None else lines[-most:]
    told = [LogLine(at, cut(safe(text), line_max)) for at, text in shown]
    return ShownLog(log.token, log.number, log.dropped, len(lines) - len(shown), told)
