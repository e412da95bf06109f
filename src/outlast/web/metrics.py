"""``/metrics``: serve metrics to Prometheus, for users who may see all tenants
(docs/metrics.md)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from starlette.responses import Response

from outlast.web.endpoint import Endpoint
from outlast.web.site import Site
from outlast.web.visit import Visit

if TYPE_CHECKING:
    from outlast.metrics.exporter import Exporter
    from outlast.metrics.look import Look

_exporters: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[Site, Exporter]]
_exporters = WeakKeyDictionary()


async def show_metrics(visit: Visit) -> Response:
    """Answer with the page; 200 even if the store is unreachable, which the page reports."""
    from outlast.metrics.exposition import CONTENT_TYPE

    page = await _exporter_of(visit.site).page()
    return Response(page, headers={"content-type": CONTENT_TYPE})


def _exporter_of(site: Site) -> Exporter:
    from outlast.metrics.exporter import Exporter
    from outlast.metrics.look import read_look

    mine = _exporters.setdefault(asyncio.get_running_loop(), WeakKeyDictionary())
    if site not in mine:
        reader = site.reader

        async def look() -> Look:
            return await reader.ask("metrics", read_look, keep=0.0)

        mine[site] = Exporter(look, site.clock)
    return mine[site]


ENDPOINTS = [Endpoint("/metrics", show_metrics)]
