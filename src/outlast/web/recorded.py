"""``/actions``: who did what, when and why, and how far actions on many jobs have come."""

from __future__ import annotations

from starlette.responses import Response

from outlast.insight.records import ActionList, list_actions
from outlast.store.protocol import Store
from outlast.web.endpoint import Endpoint
from outlast.web.listing import ROWS, read_number
from outlast.web.visit import Visit


async def show_actions(visit: Visit) -> Response:
    """Show what people did, newest first."""
    before, job_id = read_number(visit.query, "before"), read_number(visit.query, "job")

    async def look(store: Store) -> ActionList:
        return await list_actions(store, ROWS, before, job_id)

    await visit.site.bulk.go_on_with_left()
    found = await visit.ask(("actions", before, job_id), look)
    return visit.show("actions.html", found=found, before=before, job_id=job_id, full=ROWS)


ENDPOINTS = [Endpoint("/actions", show_actions)]
