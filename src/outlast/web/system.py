"""``/system``: show the store, its schema, its surroundings, and the doctor's findings;
``/metrics``: serve metrics to Prometheus, for users who may see all tenants (docs/metrics.md)."""

from __future__ import annotations

import asyncio
from functools import partial

from starlette.responses import Response

from outlast import __version__
from outlast.base.text import size, span
from outlast.insight.system import read_system
from outlast.store.finding import Level
from outlast.web.endpoint import Endpoints
from outlast.web.overview import group_findings
from outlast.web.visit import Visit

ENDPOINTS = Endpoints()
KEEP_SECONDS = 10.0
EXTRA = 3  # of SQLite's synchronous
SHOWN: dict[str, str] = {
    "version": "Version",
    "journal_mode": "Journal",
    "synchronous": "Synchronous",
    "free_bytes": "Free on the disk",
    "wal_bytes": "Write-ahead log",
    "fsync": "fsync",
    "synchronous_commit": "synchronous_commit",
    "connections": "Connections",
    "connections_max": "Connections allowed",
    "oldest_transaction": "Oldest transaction",
    "notify_queue": "Notifications queued",
    "role": "Role",
    "pooled": "Through a pooler",
    "standby": "Standby",
}
"""Facts of either store that are worth a line -> what they are called."""


@ENDPOINTS.at("/system")
async def show_system(visit: Visit) -> Response:
    """Show the facts of the store, and the doctor's findings."""
    clock = visit.site.clock
    report = await visit.ask("system", lambda store: read_system(store, clock), KEEP_SECONDS)
    fine = [one for one in report.findings if one.level is Level.OK]
    kinds = group_findings(one for one in report.findings if one.level is not Level.OK)
    facts = [
        (title, _shown(name, report.facts[name]))
        for name, title in SHOWN.items()
        if report.facts.get(name) is not None
    ]
    return visit.show(
        "system.html", report=report, kinds=kinds, fine=fine, facts=facts, version=__version__
    )


def _shown(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_bytes") and isinstance(value, int):
        return size(value)
    if name == "oldest_transaction" and isinstance(value, float):
        return span(value)
    if name == "notify_queue" and isinstance(value, float):
        return f"{value:.1%}"
    if name == "version" and isinstance(value, int):
        return f"{value // 10_000}.{value % 10_000}"
    if name == "synchronous" and isinstance(value, int):
        return ("off", "normal", "full", "extra")[value] if 0 <= value <= EXTRA else str(value)
    return str(value)


@ENDPOINTS.at("/metrics")
async def show_metrics(visit: Visit) -> Response:
    """Answer with the page; 200 even if the store is unreachable, which the page reports."""
    from outlast.metrics.collector import read_look
    from outlast.metrics.exporter import CONTENT_TYPE, Exporter

    site, loop = visit.site, asyncio.get_running_loop()
    if loop not in site.exporters:
        read = partial(site.reader.ask, "metrics", read_look, keep=0.0)
        site.exporters[loop] = Exporter(read, site.clock)
    page = await site.exporters[loop].page()
    return Response(page, headers={"content-type": CONTENT_TYPE})
