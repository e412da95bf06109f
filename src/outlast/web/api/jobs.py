"""``/api/v1/jobs``: list jobs, and show all about one job."""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.responses import Response

from outlast.insight.documents import (
    JOB,
    LOG,
    WHOLE_JOB,
    WHY,
    job_document,
    logs_document,
    why_document,
)
from outlast.insight.explanation import JobDetails
from outlast.insight.filters import AskedJobs
from outlast.insight.queries import list_jobs, read_details
from outlast.insight.resource import Document, document_type
from outlast.model.kinds import Filter
from outlast.store.rows import StoredJob
from outlast.web.access import Right
from outlast.web.api.route import ApiRoutes
from outlast.web.job import PAYLOADS, explain, read_logs, read_payload
from outlast.web.jobs import BOUNDS
from outlast.web.visit import ROWS, ROWS_MAX, Visit

HEAD_MAX = 200  # characters of arguments in a list
HEADS = msgspec.structs.replace(BOUNDS, text_max=HEAD_MAX + 1)
TEXT_MAX = 10_000_000  # characters of payloads in one document; longer ones have addresses
Limit = Annotated[int, Filter(f"at most this many, {ROWS} unless told", "N", most=ROWS_MAX)]
Before = Annotated[int | None, Filter("only smaller ids: next_before of the previous page", "N")]
HIDDEN = {"hidden": list[str]}
ROUTES = ApiRoutes()


@ROUTES.at(
    "/jobs",
    by_tenant=True,
    answer={
        "jobs": [document_type("JobInList", {**JOB.types, "args_head": str | None, **HIDDEN})],
        "next_before": int | None,
    },
)
async def show_jobs(
    visit: Visit, *, asked: AskedJobs, limit: Limit = ROWS, before: Before = None
) -> Document:
    """Jobs, newest first; as `outlast jobs --json`, without checkpoints and results. A long
    ``args`` is null, with its beginning in ``args_head``."""
    which = asked.job_filter(limit=limit, before_id=before)
    found = await visit.ask(
        ("api jobs", which, asked),
        lambda store: list_jobs(store, which, asked.state, HEADS, asked.texts),
    )
    jobs = []
    for whole in found.rows:
        row, head = _listed(visit, whole)
        shown = JOB.document(row, phase=found.phase_of(row))
        jobs.append(mark_hidden(visit, {**shown, "args_head": head}))
    return {"jobs": jobs, "next_before": found.before}


def _listed(visit: Visit, row: StoredJob) -> tuple[StoredJob, str | None]:
    if len(row.args) < HEAD_MAX or not visit.may(Right.PAYLOAD):
        return row, None
    return msgspec.structs.replace(row, args="null"), row.args[:HEAD_MAX]


def mark_hidden(visit: Visit, document: Document) -> Document:
    """Mark in a document about a job the payloads that this visitor may not see."""
    return document | {"hidden": [] if visit.may(Right.PAYLOAD) else [*PAYLOADS, "stack"]}


@ROUTES.at("/jobs/{job_id:int}", by_tenant=True, answer={**WHOLE_JOB.types, **HIDDEN})
async def show_job(visit: Visit) -> Document:
    """All about one job; as `outlast job ID --json`."""
    found = await find_details(visit)
    document = job_document(found.row, found.attempts, found.refusals, phase=found.phase)
    return mark_hidden(visit, document)


ATTEMPTS = ("id", "attempts", "attempts_dropped")


@ROUTES.at(
    "/jobs/{job_id:int}/attempts",
    by_tenant=True,
    answer={name: WHOLE_JOB.types[name] for name in ATTEMPTS},
)
async def show_attempts(visit: Visit) -> Document:
    """The attempts of one job."""
    found = await find_details(visit)
    document = job_document(found.row, found.attempts)
    return {name: document[name] for name in ATTEMPTS}


async def find_details(visit: Visit) -> JobDetails:
    """Return all facts about the job in the URL; JobNotFound, also for another tenant's job."""
    return await visit.ask_job(
        "api job", lambda store, job_id: read_details(store, job_id, visit.now, TEXT_MAX)
    )


@ROUTES.at("/jobs/{job_id:int}/why", by_tenant=True, answer=WHY.types)
async def show_why(visit: Visit) -> Document:
    """Why it is there, and what would move it; as `outlast why ID --json`."""
    about = await find_details(visit)
    return why_document(about.row, explain(visit, about))


@ROUTES.at(
    "/jobs/{job_id:int}/logs",
    Right.PAYLOAD,
    by_tenant=True,
    answer={"id": int, "attempts": [LOG]},
)
async def show_logs(visit: Visit) -> Document:
    """What its attempts have printed; as `outlast logs ID --json`."""
    await visit.ask_job("row", lambda store, job_id: store.inspector.job(job_id, HEAD_MAX))
    return logs_document(visit.job_id, (await read_logs(visit, visit.job_id))[::-1])


@ROUTES.at("/jobs/{job_id:int}/{name:str}", Right.PAYLOAD, by_tenant=True)
async def show_payload(visit: Visit) -> Response:
    """A whole payload of one job (args, checkpoint or result) as stored: numbers keep all their
    digits."""
    return Response(await read_payload(visit) or "null", media_type="application/json")
