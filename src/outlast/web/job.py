"""``/jobs/17``: show why a job is where it is, what would move it, its attempts and payloads."""

from __future__ import annotations

import msgspec
from starlette.responses import PlainTextResponse, Response

from outlast.base.text import lines
from outlast.insight.explanation import Explanation, JobDetails
from outlast.insight.queries import read_details
from outlast.insight.stacks import AskedStack, find_unanswered
from outlast.insight.why import why
from outlast.model.crash import find_line, own_stack
from outlast.model.job import State
from outlast.payload.payloads import is_encrypted
from outlast.store.actions import ActionRow
from outlast.store.protocol import Store
from outlast.store.rows import StoredJob
from outlast.web.access import Right
from outlast.web.endpoint import Endpoints
from outlast.web.job_logs import LINE_MAX, LINES_SHOWN, read_logs, show_log
from outlast.web.listing import read_number
from outlast.web.problem import WebRefusal
from outlast.web.timeline import draw_timeline, list_attempts
from outlast.web.visit import Visit

ENDPOINTS = Endpoints()
PAYLOADS = ("args", "checkpoint", "result")
SHOWN_MAX = 4_000  # characters of a payload on the page
ATTEMPTS_SHOWN = 100
ACTIONS_SHOWN = 20
TRACE_LINES = 80
DONE = {
    "cancelled": "It is cancelled.",
    "requested": "It was asked to stop.",
    "asked": "Its worker was asked where it is.",
    "requeued": "It is queued again, with fresh budgets.",
}


class JobPage(msgspec.Struct, frozen=True):
    """The content of a job's page. Payloads are cut after SHOWN_MAX characters."""

    row: StoredJob
    details: JobDetails
    actions: list[ActionRow] = []
    in_flow: bool = False


async def find_page(visit: Visit) -> JobPage:
    """Return the page of the job in the URL; JobNotFound, also for another tenant's job."""
    return await visit.ask_job("job", lambda store, job_id: read_page(store, job_id, visit.now))


async def read_page(store: Store, job_id: int, now: float) -> JobPage | None:
    """Return the content of a job's page; None: there is no such job."""
    details = await read_details(store, job_id, now, text_max=SHOWN_MAX + 1)
    if details is None:
        return None
    actions = await store.inspector.actions(ACTIONS_SHOWN, job_id=job_id)
    in_flow = bool(await store.inspector.flow_links([job_id], 1))
    return JobPage(details.row, details, actions, in_flow)


@ENDPOINTS.at("/jobs/{job_id:int}", by_tenant=True)
async def show_job(visit: Visit) -> Response:
    """Show one job."""
    found = await find_page(visit)
    details, row = found.details, found.row
    attempts = list_attempts(details)
    kept = attempts[-ATTEMPTS_SHOWN:]
    logs = await read_logs(visit, row.id) if visit.may(Right.PAYLOAD) else []
    return visit.show(
        "job.html",
        row=row,
        phase=details.phase,
        answer=explain(visit, details),
        attempts=list(reversed(kept)),
        attempts_hidden=len(attempts) - len(kept),
        dropped=details.attempts[-1].dropped if details.attempts else 0,
        log=show_log(logs[0], LINES_SHOWN, LINE_MAX) if logs else None,
        logs_more=len(logs) - 1,
        progress=details.progress[0],
        progress_of=details.progress[1],
        refusals=details.refusals,
        actions=found.actions,
        in_flow=found.in_flow,
        timeline=draw_timeline(details),
        stack=row.stack if visit.may(Right.PAYLOAD) else None,
        asked=find_asked(details),
        payloads=[
            (name, text, is_encrypted(text)) for name in PAYLOADS if (text := getattr(row, name))
        ],
        encryption=visit.site.encryption_of(row.task),
        payload_max=SHOWN_MAX,
        done=DONE.get(visit.query.get("done", ""), ""),
        find_line=find_line,
        own_stack=own_stack,
        trace=lambda text: "\n".join(lines(text.rstrip(), TRACE_LINES)),
    )


def explain(visit: Visit, about: JobDetails) -> Explanation:
    """Return why a job is where it is; for users of one tenant, without facts about others."""
    alone = visit.access.tenant is not None
    return why(msgspec.structs.replace(about, may_tell_others=not alone))


def find_asked(details: JobDetails) -> AskedStack | None:
    """Return the last unanswered request for this job's stack, if the job runs."""
    row = details.row
    mine = next((one for one in details.workers if one.id == row.worker_id), None)
    if row.state is not State.RUNNING or mine is None:
        return None
    ask = find_unanswered(row, mine)
    return None if ask is None else AskedStack(row.id, ask, mine)


@ENDPOINTS.at("/jobs/{job_id:int}/logs", Right.PAYLOAD, by_tenant=True)
async def show_logs(visit: Visit) -> Response:
    """Show all kept output of one attempt, by default the newest."""
    details = (await find_page(visit)).details
    kept = await read_logs(visit, details.row.id)
    token = read_number(visit.query, "attempt")
    chosen = next((one for one in kept if token in {None, one.token}), None)
    return visit.show(
        "job_logs.html",
        row=details.row,
        phase=details.phase,
        kept=kept,
        token=token,
        log=None if chosen is None else show_log(chosen),
    )


async def read_payload(visit: Visit) -> str | None:
    """Return the payload in the URL as it is stored, all of it; None: the job has none."""
    row = await visit.ask_job("payload", lambda store, job_id: store.inspector.job(job_id))
    name = visit.request.path_params["name"]
    if name not in PAYLOADS:
        raise WebRefusal(404, "No such page", f"There is nothing at {visit.path}.")
    found: str | None = getattr(row, name)
    return found


@ENDPOINTS.at("/jobs/{job_id:int}/payload/{name}", Right.PAYLOAD, by_tenant=True)
async def show_payload(visit: Visit) -> Response:
    """Show a whole payload as it is stored."""
    return PlainTextResponse(await read_payload(visit) or "")
