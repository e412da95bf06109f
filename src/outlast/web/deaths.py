"""``/deaths``: show attempts that ended badly, by cause, and shared deaths with their suspects."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from outlast.insight.deaths import DEATHS, SharedDeath, shared_deaths
from outlast.store.protocol import Store
from outlast.store.rows import ROWS_LOOKED_AT, AttemptFilter, Cause, EndedAttempts
from outlast.web.endpoint import Endpoints
from outlast.web.visit import ROWS, Visit

ENDPOINTS = Endpoints()
SHARED_SHOWN = 10


class DeathsPage(msgspec.Struct, frozen=True):
    """The content of the page."""

    found: EndedAttempts
    causes: list[Cause]
    shared: list[SharedDeath]


@ENDPOINTS.at("/deaths", by_tenant=True)
async def show_deaths(visit: Visit) -> Response:
    """Show ended attempts, newest first."""
    cause = visit.read_name("cause")
    which = AttemptFilter(
        outcomes=DEATHS if cause is None else None if cause == "any" else (cause,),
        worker_id=visit.read_number("worker"),
        tenant=visit.access.tenant,
        before=visit.read_number("before"),
        limit=ROWS,
    )

    page = await read_deaths(visit, which)
    open_cases = [one for one in page.shared if one.waiting]
    return visit.show(
        "deaths.html",
        found=page.found,
        causes=page.causes,
        shared=open_cases[:SHARED_SHOWN],
        shared_hidden=max(0, len(open_cases) - SHARED_SHOWN),
        settled=len(page.shared) - len(open_cases),
        which=which,
        cause=cause,
        looked_at=ROWS_LOOKED_AT,
    )


async def read_deaths(visit: Visit, which: AttemptFilter) -> DeathsPage:
    """Return ended attempts, their causes, and shared deaths of the visitor's tenant."""

    async def look(store: Store) -> DeathsPage:
        suspects = await store.inspector.suspects()
        own = [one for one in suspects if which.tenant in {None, one.tenant}]
        found = await store.inspector.ended_attempts(which)
        return DeathsPage(found, await store.inspector.causes(which.tenant), shared_deaths(own))

    return await visit.ask(("deaths", which), look)
