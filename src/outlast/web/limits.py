"""``/limits``: show limits and their use.
Forms to set, hold and reset them: ``api/acts.py``."""

from __future__ import annotations

from starlette.responses import Response

from outlast.insight.limits import are_cut, counted, next_start, spec_text
from outlast.insight.queries import read_one_limit
from outlast.store.limits import WAITING_SHOWN
from outlast.web.endpoint import Endpoints
from outlast.web.visit import Visit

ENDPOINTS = Endpoints()


@ENDPOINTS.at("/limits")
async def show_limits(visit: Visit) -> Response:
    """Show limits by name."""
    rows = await visit.ask("limits", lambda store: store.inspector.limits())
    return visit.show(
        "limits.html", rows=rows, spec_text=spec_text, counted=counted, more=are_cut(rows)
    )


@ENDPOINTS.at("/limits/limit")
async def show_limit(visit: Visit) -> Response:
    """Show one limit with its busiest keys."""
    name = visit.require_name("name")
    row, permits = await visit.ask(("limit", name), lambda store: read_one_limit(store, name))
    return visit.show(
        "limit.html",
        row=row,
        permits=permits,
        spec_text=spec_text,
        next_start=next_start,
        counted=counted,
        waiting_max=WAITING_SHOWN,
    )
