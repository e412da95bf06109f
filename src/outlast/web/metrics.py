"""``/metrics``: serve metrics to Prometheus, for users who may see all tenants
(docs/metrics.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from outlast.web.endpoint import Endpoints
from outlast.web.site import Site
from outlast.web.visit import Visit

if TYPE_CHECKING:
    from outlast.metrics.exporter import Exporter

ENDPOINTS = Endpoints()


@ENDPOINTS.at("/metrics")
async def show_metrics(visit: Visit) -> Response:
    """Answer with the page; 200 even if the store is unreachable, which the page reports."""
    from outlast.metrics.exposition import CONTENT_TYPE

    page = await visit.site.on_this_loop(_make_exporter).page()
    return Response(page, headers={"content-type": CONTENT_TYPE})


def _make_exporter(site: Site) -> Exporter:
    from outlast.metrics.exporter import Exporter
    from outlast.metrics.look import read_look

    reader = site.reader
    return Exporter(lambda: reader.ask("metrics", read_look, keep=0.0), site.clock)
