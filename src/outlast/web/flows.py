"""``/flows``: show recent flows, and one of them: who waits for whom, cancel it, retry it."""

from __future__ import annotations

from starlette.responses import Response

from outlast.insight.acting import By, Verb
from outlast.insight.flows import (
    LOOK_MAX,
    FlowView,
    act_on_flow,
    describe_retry,
    describe_states,
    list_flows,
    read_flow,
)
from outlast.model.job import ENDED
from outlast.store.protocol import Store
from outlast.web.access import Right
from outlast.web.endpoint import Endpoints
from outlast.web.flow_drawing import draw_flow
from outlast.web.live import TOPICS_MAX
from outlast.web.visit import Visit

ENDPOINTS = Endpoints()
FLOWS_SHOWN = 50
JOBS_SHOWN = 100
DONE = {
    "cancel": "What waited is cancelled, and what runs was asked to stop.",
    "requeue": "Its dead jobs are queued again, with fresh budgets.",
}


@ENDPOINTS.at("/flows", by_tenant=True)
async def show_flows(visit: Visit) -> Response:
    """Show recent flows."""
    tenant = visit.access.tenant
    found = await visit.ask(("flows", tenant), lambda store: list_flows(store, FLOWS_SHOWN, tenant))
    return visit.show("flows.html", found=found, states=describe_states)


@ENDPOINTS.at("/flows/{job_id:int}", by_tenant=True)
async def show_flow(visit: Visit) -> Response:
    """Show the flow of one job."""
    flow = await find_flow(visit)
    jobs = flow.some(JOBS_SHOWN)
    left = [job.id for job in flow.jobs if job.state and job.state not in ENDED]
    return visit.show(
        "flow.html",
        flow=flow,
        jobs=jobs,
        drawing=draw_flow(flow),
        states=describe_states,
        retry=describe_retry(flow),
        left=left[: TOPICS_MAX - 1],
        layers=list(flow.groups.items())[:JOBS_SHOWN] if len(jobs) < len(flow.jobs) else [],
        asked=visit.query.get("ask"),
        done=DONE.get(visit.query.get("done", ""), ""),
    )


async def find_flow(visit: Visit) -> FlowView:
    """Return the flow of the job in the URL; JobNotFound, also for another tenant's job."""
    job_id, tenant = visit.job_id, visit.access.tenant
    return visit.have(
        await visit.ask(
            ("flow", job_id, tenant), lambda store: read_flow(store, job_id, LOOK_MAX, tenant)
        )
    )


async def act_on_found(visit: Visit, verb: Verb, by: By) -> dict[str, int]:
    """Act on the flow of the job in the URL, as ``act_on_flow`` does; JobNotFound also for another
    tenant's job, and no job of another tenant is changed."""

    async def work(store: Store) -> dict[str, int]:
        found = await read_flow(store, visit.job_id, tenant=visit.access.tenant)
        return await act_on_flow(store, visit.have(found), verb, by)

    return await visit.act(work)


async def _act(visit: Visit, verb: Verb) -> Response:
    by = By(visit.access.user, (await visit.form()).get("reason") or None)
    await act_on_found(visit, verb, by)
    return visit.go(f"/flows/{visit.job_id}", done=verb.value)


@ENDPOINTS.at("/flows/{job_id:int}/cancel", Right.CANCEL, "POST", by_tenant=True)
async def cancel_flow(visit: Visit) -> Response:
    """Cancel what has not ended of a flow."""
    return await _act(visit, Verb.CANCEL)


@ENDPOINTS.at("/flows/{job_id:int}/retry", Right.REQUEUE, "POST", by_tenant=True)
async def retry_flow(visit: Visit) -> Response:
    """Requeue the dead jobs of a flow."""
    return await _act(visit, Verb.REQUEUE)
