"""``/dead``: show dead jobs grouped by cause; show one group, its jobs and the acts on them."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from outlast.insight.deaths import DeathGroups, read_dead_groups
from outlast.insight.documents import error_of
from outlast.insight.queries import find_jobs, read_dead
from outlast.model.job import State
from outlast.store.protocol import Store
from outlast.store.rows import CHOSEN, JobFilter, JobIds, StoredJob
from outlast.web.endpoint import Endpoints
from outlast.web.filters import fields_for, query_of, read_asked
from outlast.web.visit import Visit

ENDPOINTS = Endpoints()
ROWS = 20  # jobs of a group: each is read with its last crash report
TEXT_MAX = 200  # characters of arguments


@ENDPOINTS.at("/dead", by_tenant=True)
async def show_groups(visit: Visit) -> Response:
    """Show the groups of dead jobs."""
    which, query = read_asked(visit, CHOSEN).job_filter(), query_of(visit)
    found = keep_own_numbers(visit, await read_groups(visit, which))
    return visit.show("dead.html", found=found, fields=fields_for(visit, CHOSEN), query=query)


async def read_groups(visit: Visit, which: JobFilter) -> DeathGroups:
    """Return the groups of these dead jobs."""
    return await visit.ask(("dead", which), lambda store: read_dead_groups(store, which))


@ENDPOINTS.at("/dead/group", by_tenant=True)
async def show_group(visit: Visit) -> Response:
    """Show one group, and its jobs page by page."""
    name = visit.require_name("group")
    before = visit.read_number("before")
    tenant = visit.access.tenant
    which = JobFilter(
        state=State.DEAD, tenant=tenant, fingerprint=name, limit=ROWS, before_id=before
    )

    async def look(store: Store) -> tuple[JobIds, list[tuple[StoredJob, str | None]]]:
        ids = await find_jobs(store, which)
        rows = read_dead(store, ids.ids, TEXT_MAX)
        return ids, [(row, error_of(row, last)) async for row, last in rows]

    ids, rows = await visit.ask(("dead group", name, tenant, before), look)
    groups = await read_groups(visit, JobFilter(tenant=tenant))
    group = next((one for one in groups.groups if one.group == name), None)
    return visit.show(
        "dead_group.html",
        name=name,
        group=group,
        groups=groups,
        rows=rows,
        before=before,
        next_before=ids.before,
    )


def keep_own_numbers(visit: Visit, found: DeathGroups) -> DeathGroups:
    """Return groups as this visitor may see them: for users of one tenant, the number of examined
    jobs covers only that tenant's."""
    if visit.access.tenant is None:
        return found
    own = sum(one.number for one in found.groups)
    return msgspec.structs.replace(found, looked_at=own)
