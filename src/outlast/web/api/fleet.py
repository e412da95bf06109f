"""Answer the API on the whole store: numbers, workers, schedules, refusals, actions, rights."""

from __future__ import annotations

from starlette.responses import Response

from outlast.insight.doctor import doctor_document
from outlast.insight.documents import (
    SCHEMA,
    iso,
    refusals_document,
    refused_since,
    workers_document,
)
from outlast.insight.overview import read_overview
from outlast.insight.pauses import pauses_document, read_pauses
from outlast.insight.queries import list_workers
from outlast.insight.records import action_document, actions_document, list_actions
from outlast.insight.schedules import schedules_document
from outlast.insight.system import SystemReport, read_system
from outlast.store.protocol import Store
from outlast.store.rows import RefusalRow
from outlast.store.schedules import ScheduleRow
from outlast.web.action_log import read_named
from outlast.web.api.jobs import LIMIT_MAX, read_limit
from outlast.web.api.route import ApiRoute, answer_json
from outlast.web.listing import read_name, read_number
from outlast.web.problem import WebRefusal
from outlast.web.visit import Visit

DAY = 86_400.0
DOCTOR_SECONDS = 30.0  # for which the doctor's findings are kept
_PAGE = {
    "limit": f"at most this many, {LIMIT_MAX} at most",
    "before": "only those with smaller ids: next_before of the page before",
}


async def show_stats(visit: Visit) -> Response:
    """Return the numbers of the queues, counted up to 4,000."""
    seen = await visit.ask("overview", read_overview)
    return answer_json(seen.stats)


async def show_workers(visit: Visit) -> Response:
    """Return workers."""
    found = await visit.ask("api workers", list_workers)
    refused = refused_since(found.refusals, visit.now - DAY)
    return answer_json(workers_document(found.rows, visit.now, refused))


async def show_pauses(visit: Visit) -> Response:
    """Return the pauses."""
    return answer_json(pauses_document(await visit.ask("api pauses", read_pauses)))


async def show_schedules(visit: Visit) -> Response:
    """Return a page of schedules, by name."""
    limit = read_limit(visit)
    after = read_name(visit.query, "after") or ""

    async def look(store: Store) -> list[ScheduleRow]:
        return await store.inspector.schedules(limit, after)

    rows = await visit.ask(("api schedules", limit, after), look)
    more = rows[-1].name if len(rows) == limit else None
    return answer_json({**schedules_document(rows), "next_after": more})


async def show_refusals(visit: Visit) -> Response:
    """Return a page of refused writes, newest first."""
    limit = read_limit(visit)
    before = read_number(visit.query, "before")

    async def look(store: Store) -> list[RefusalRow]:
        return await store.inspector.refusals(limit=limit, before_id=before)

    rows = await visit.ask(("api refusals", limit, before), look)
    more = rows[-1].id if len(rows) == limit else None
    return answer_json({**refusals_document(rows), "next_before": more})


async def show_actions(visit: Visit) -> Response:
    """Return the actions of people, newest first."""
    limit = read_limit(visit)
    before, job = read_number(visit.query, "before"), read_number(visit.query, "job")
    await visit.site.bulk.go_on_with_left()
    found = await visit.ask(
        ("api actions", limit, before, job), lambda store: list_actions(store, limit, before, job)
    )
    return answer_json(actions_document(found))


async def show_action(visit: Visit) -> Response:
    """Return one action, and how far it has come."""
    row = await read_named(visit)
    return answer_json({"schema": SCHEMA, **action_document(row)})


async def show_doctor(visit: Visit) -> Response:
    """Return the doctor's findings in the store."""

    async def look(store: Store) -> SystemReport:
        return await read_system(store, visit.site.clock)

    seen = await visit.ask("system", look, DOCTOR_SECONDS)
    return answer_json(doctor_document(seen.place, seen.findings))


async def show_me(visit: Visit) -> Response:
    """Return the caller's user, and what that user may do."""
    access = visit.access
    return answer_json(
        {
            "schema": SCHEMA,
            "user": access.user,
            "rights": sorted(right.value for right in access.can),
            "tenant": access.tenant,
            "name": visit.site.name,
            "read_only": visit.site.read_only,
            "now": iso(visit.now),
        }
    )


async def miss(visit: Visit) -> Response:
    """Refuse an address that does not exist."""
    raise WebRefusal(404, "No such address", f"There is nothing at {visit.path}: see openapi.json.")


ROUTES = [
    ApiRoute("/stats", show_stats, "Numbers by queue; as `outlast stats --json`."),
    ApiRoute("/workers", show_workers, "Workers; as `outlast workers --json`."),
    ApiRoute("/pauses", show_pauses, "What is paused; as `outlast pauses --json`."),
    ApiRoute(
        "/schedules",
        show_schedules,
        "Schedules by name; as `outlast schedules --json`.",
        query={"limit": _PAGE["limit"], "after": "only names after this: next_after"},
    ),
    ApiRoute(
        "/refusals",
        show_refusals,
        "Writes that were refused, newest first: of attempts that had lost their job.",
        query=_PAGE,
    ),
    ApiRoute(
        "/actions",
        show_actions,
        "What people did, newest first; as `outlast actions --json`.",
        query={**_PAGE, "job": "only what was done to this job"},
    ),
    ApiRoute(
        "/actions/{action_id:int}",
        show_action,
        "One action, and how far it has come.",
        by_tenant=True,
    ),
    ApiRoute("/doctor", show_doctor, "What the doctor finds in the store; as `outlast doctor`."),
    ApiRoute("/me", show_me, "Who asks, and with which rights.", by_tenant=True),
]
