"""``/dead``: show dead jobs grouped by cause; show one group, its jobs and the acts on them."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from outlast.insight.deaths import DeathGroups, read_dead_groups
from outlast.insight.documents import error_of
from outlast.insight.queries import find_jobs, read_dead
from outlast.model.job import State
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter, JobIds, StoredJob
from outlast.web.endpoint import Endpoint
from outlast.web.listing import read_name, read_number
from outlast.web.problem import WebRefusal
from outlast.web.visit import Visit

ROWS = 20  # jobs of a group: each is read with its last crash report
TEXT_MAX = 200  # characters of arguments


async def show_groups(visit: Visit) -> Response:
    """Show the groups of dead jobs."""
    which = JobFilter(
        queue=read_name(visit.query, "queue"),
        task=read_name(visit.query, "task"),
        tenant=tenant_of(visit),
    )

    async def look(store: Store) -> DeathGroups:
        return await read_dead_groups(store, which)

    found = keep_own_numbers(visit, await visit.ask(("dead", which), look))
    return visit.show("dead.html", found=found, which=which)


async def show_group(visit: Visit) -> Response:
    """Show one group, and its jobs page by page."""
    name = name_of_group(visit)
    before = read_number(visit.query, "before")
    tenant = visit.access.tenant
    which = JobFilter(
        state=State.DEAD, tenant=tenant, fingerprint=name, limit=ROWS, before_id=before
    )

    async def look(store: Store) -> tuple[JobIds, list[tuple[StoredJob, str | None]]]:
        ids = await find_jobs(store, which)
        rows = read_dead(store, ids.ids, TEXT_MAX)
        return ids, [(row, error_of(row, last)) async for row, last in rows]

    async def look_at_group(store: Store) -> DeathGroups:
        return await read_dead_groups(store, JobFilter(tenant=tenant))

    ids, rows = await visit.ask(("dead group", name, tenant, before), look)
    groups = await visit.ask(("dead", JobFilter(tenant=tenant)), look_at_group)
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


def name_of_group(visit: Visit) -> str:
    """Return the group in the URL."""
    name = read_name(visit.query, "group")
    if name is None:
        raise WebRefusal(400, "Which group?", "group= names one, as /dead links to it.")
    return name


def tenant_of(visit: Visit) -> str | None:
    """Return the tenant whose jobs are shown: the user's own or, without one, the URL's."""
    return visit.access.tenant or read_name(visit.query, "tenant")


ENDPOINTS = [
    Endpoint("/dead", show_groups, by_tenant=True),
    Endpoint("/dead/group", show_group, by_tenant=True),
]
