"""``/api/v1/flows``: recent flows, one of them, and acts on it."""

from __future__ import annotations

from outlast.insight.acting import Verb
from outlast.insight.flows import FLOW, WHOLE_FLOW, flow_document, flows_document, list_flows
from outlast.insight.resource import Document
from outlast.web.access import Right
from outlast.web.api.acts import Act
from outlast.web.api.jobs import Limit
from outlast.web.api.route import ApiRoutes
from outlast.web.flows import act_on_found, find_flow
from outlast.web.visit import ROWS, Visit

ROUTES = ApiRoutes()
CHANGED = {"id": int, "jobs": dict[str, int]}


@ROUTES.at("/flows", by_tenant=True, answer={"flows": [FLOW], "more": bool})
async def show_flows(visit: Visit, *, limit: Limit = ROWS) -> Document:
    """Recent flows, unfinished ones first; as `outlast flows --json`."""
    tenant = visit.access.tenant
    found = await visit.ask(
        ("api flows", limit, tenant), lambda store: list_flows(store, limit, tenant)
    )
    return flows_document(found)


@ROUTES.at("/flows/{job_id:int}", by_tenant=True, answer=WHOLE_FLOW)
async def show_flow(visit: Visit, *, limit: Limit = ROWS) -> Document:
    """The flow of a job, any of its jobs; as `outlast flow show ID --json`, of 5,000 jobs at most:
    ``more`` says whether there are others. ``limit`` is for ``members``."""
    return flow_document(await find_flow(visit), limit)


@ROUTES.at("/flows/{job_id:int}/cancel", Right.CANCEL, body=Act, by_tenant=True, answer=CHANGED)
async def cancel(visit: Visit, sent: Act) -> Document:
    """Cancel a flow's waiting jobs, ask its running ones to stop. The answer says how many each."""
    return {"id": visit.job_id, "jobs": await act_on_found(visit, Verb.CANCEL, sent.by(visit))}


@ROUTES.at("/flows/{job_id:int}/retry", Right.REQUEUE, body=Act, by_tenant=True, answer=CHANGED)
async def retry(visit: Visit, sent: Act) -> Document:
    """Requeue the dead jobs of a flow; jobs that were cancelled because of them wait again."""
    return {"id": visit.job_id, "jobs": await act_on_found(visit, Verb.REQUEUE, sent.by(visit))}


ROUTES.add_form(cancel, lambda visit, _: visit.go(f"/flows/{visit.job_id}", done="cancel"))
ROUTES.add_form(retry, lambda visit, _: visit.go(f"/flows/{visit.job_id}", done="requeue"))
