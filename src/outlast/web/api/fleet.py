"""Answer the API on the whole store: numbers, workers, schedules, refusals, actions, rights."""

from __future__ import annotations

from typing import Annotated

from outlast.insight.bulk import ACTION, actions_document, list_actions
from outlast.insight.doctor.facts import doctor_document
from outlast.insight.documents import LISTED_REFUSAL, WORKER, refusals_document, workers_document
from outlast.insight.limits import LIMIT, LIMITS, limit_document, limits_document
from outlast.insight.pauses import PAUSE, pauses_document, read_pauses
from outlast.insight.queries import list_workers, read_one_limit
from outlast.insight.resource import Document, iso
from outlast.insight.schedules import SCHEDULE, schedules_document
from outlast.insight.stats import STATS, read_overview
from outlast.insight.system import read_system
from outlast.model.kinds import Filter, Time
from outlast.store.finding import Finding
from outlast.web.action_log import read_named
from outlast.web.api.jobs import Before, Limit
from outlast.web.api.route import ApiRoutes
from outlast.web.visit import ROWS, Visit

DOCTOR_SECONDS = 30.0  # for which the doctor's findings are kept
ROUTES = ApiRoutes()


@ROUTES.at("/stats", answer=STATS)
async def show_stats(visit: Visit) -> Document:
    """Numbers by queue, counted up to 4,000; as `outlast stats --json`."""
    return (await visit.ask("overview", read_overview)).stats


@ROUTES.at("/workers", answer={"workers": [WORKER]})
async def show_workers(visit: Visit) -> Document:
    """Workers; as `outlast workers --json`."""
    found = await visit.ask("api workers", list_workers)
    return workers_document(found.rows, found.refused(visit.now))


@ROUTES.at("/pauses", answer={"pauses": [PAUSE]})
async def show_pauses(visit: Visit) -> Document:
    """What is paused; as `outlast pauses --json`."""
    return pauses_document(await visit.ask("api pauses", read_pauses))


@ROUTES.at("/schedules", answer={"schedules": [SCHEDULE], "next_after": str | None})
async def show_schedules(
    visit: Visit,
    *,
    limit: Limit = ROWS,
    after: Annotated[str, Filter("only names after this: next_after")] = "",
) -> Document:
    """Schedules by name; as `outlast schedules --json`."""
    rows = await visit.ask(
        ("api schedules", limit, after), lambda store: store.inspector.schedules(limit, after)
    )
    return {**schedules_document(rows), "next_after": rows[-1].name if len(rows) == limit else None}


@ROUTES.at("/limits", answer=LIMITS)
async def show_limits(visit: Visit) -> Document:
    """Limits by name; as `outlast limits --json`."""
    return limits_document(await visit.ask("limits", lambda store: store.inspector.limits()))


@ROUTES.at("/limits/{name:path}", answer=LIMIT)
async def show_limit(visit: Visit) -> Document:
    """One limit with its busiest keys; as `outlast limits show NAME --json`."""
    key = ("limit", visit.name)
    return limit_document(*await visit.ask(key, lambda store: read_one_limit(store, visit.name)))


@ROUTES.at("/refusals", answer={"refusals": [LISTED_REFUSAL], "next_before": int | None})
async def show_refusals(visit: Visit, *, limit: Limit = ROWS, before: Before = None) -> Document:
    """Writes that were refused, newest first: of attempts that had lost their job."""
    rows = await visit.ask(
        ("api refusals", limit, before),
        lambda store: store.inspector.refusals(limit=limit, before_id=before),
    )
    return {**refusals_document(rows), "next_before": rows[-1].id if len(rows) == limit else None}


@ROUTES.at("/actions", answer={"actions": [ACTION], "next_before": int | None})
async def show_actions(
    visit: Visit,
    *,
    limit: Limit = ROWS,
    before: Before = None,
    job: Annotated[int | None, Filter("only actions on this job", "N")] = None,
) -> Document:
    """What people did, newest first; as `outlast actions --json`."""
    await visit.site.bulk.go_on_with_left()
    found = await visit.ask(
        ("api actions", limit, before, job), lambda store: list_actions(store, limit, before, job)
    )
    return actions_document(found)


@ROUTES.at("/actions/{action_id:int}", by_tenant=True, answer=ACTION.types)
async def show_action(visit: Visit) -> Document:
    """One action, and how far it has come."""
    return ACTION.document(await read_named(visit))


@ROUTES.at("/doctor", answer={"store": str, "problems": int, "findings": list[Finding]})
async def show_doctor(visit: Visit) -> Document:
    """Findings of the doctor in the store; as `outlast doctor --json`."""
    clock = visit.site.clock
    seen = await visit.ask("system", lambda store: read_system(store, clock), DOCTOR_SECONDS)
    return doctor_document(seen.place, seen.findings)


@ROUTES.at(
    "/me",
    by_tenant=True,
    answer={
        "user": str,
        "rights": list[str],
        "tenant": str | None,
        "name": str,
        "read_only": bool,
        "now": Time,
    },
)
async def show_me(visit: Visit) -> Document:
    """Who asks, and with which rights."""
    access = visit.access
    return {
        "user": access.user,
        "rights": sorted(right.value for right in access.can),
        "tenant": access.tenant,
        "name": visit.site.name,
        "read_only": visit.site.read_only,
        "now": iso(visit.now),
    }
