"""``/api/v1/jobs``: list jobs, and show all about one job."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from outlast.insight.documents import SCHEMA, Document, job_document, listed_document, logs_document
from outlast.insight.explanation import JobDetails
from outlast.insight.queries import list_jobs, read_details, state_of
from outlast.insight.why import why_document
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter, StoredJob
from outlast.web.access import Right
from outlast.web.api.route import ApiRoute, answer_json
from outlast.web.job import PAYLOADS, explain, not_found
from outlast.web.job_logs import read_logs
from outlast.web.jobs import BOUNDS
from outlast.web.listing import read_name, read_number
from outlast.web.visit import Visit

LIMIT, LIMIT_MAX = 50, 200
HEAD_MAX = 200  # characters of arguments in a list
HEADS = BOUNDS._replace(text_max=HEAD_MAX + 1)
TEXT_MAX = 10_000_000  # characters of payloads in one document; longer ones have addresses


async def show_jobs(visit: Visit) -> Response:
    """Return a page of jobs: a long ``args`` is null, with its beginning in another field."""
    phase = read_name(visit.query, "state")
    which = JobFilter(
        state=state_of(phase, "state"),
        limit=read_limit(visit),
        before_id=read_number(visit.query, "before"),
        queue=read_name(visit.query, "queue"),
        task=read_name(visit.query, "task"),
        tenant=visit.access.tenant or read_name(visit.query, "tenant"),
        label=read_name(visit.query, "label"),
    )
    found = await visit.ask(
        ("api jobs", which, phase), lambda store: list_jobs(store, which, phase, visit.now, HEADS)
    )
    rows = [_listed(visit, row) for row in found.rows]
    shown = [{**listed_document(row, found.phase_of(row)), "args_head": head} for row, head in rows]
    return answer_json(
        {
            "schema": SCHEMA,
            "jobs": [mark_hidden(visit, one) for one in shown],
            "next_before": found.before,
        }
    )


def read_limit(visit: Visit) -> int:
    """Return how many rows the answer may have, from the URL."""
    return read_number(visit.query, "limit", LIMIT_MAX) or LIMIT


def _listed(visit: Visit, row: StoredJob) -> tuple[StoredJob, str | None]:
    if len(row.args) < HEAD_MAX or not visit.may(Right.PAYLOAD):
        return row, None
    return msgspec.structs.replace(row, args="null"), row.args[:HEAD_MAX]


def mark_hidden(visit: Visit, document: Document) -> Document:
    """Mark in a document about a job the payloads that this visitor may not see."""
    return document | {"hidden": [] if visit.may(Right.PAYLOAD) else [*PAYLOADS, "stack"]}


async def show_job(visit: Visit) -> Response:
    """Return all about one job."""
    found = await find_details(visit)
    document = job_document(found.row, found.attempts, found.phase, found.refusals)
    return answer_json(mark_hidden(visit, document))


async def show_attempts(visit: Visit) -> Response:
    """Return the attempts of one job."""
    found = await find_details(visit)
    document = job_document(found.row, found.attempts)
    names = ("schema", "id", "attempts", "attempts_dropped")
    return answer_json({name: document[name] for name in names})


async def find_details(visit: Visit) -> JobDetails:
    """Return all facts about the job in the URL; JobNotFound, also for another tenant's job."""
    job_id: int = visit.request.path_params["job_id"]
    found = await visit.ask(
        ("api job", job_id), lambda store: read_details(store, job_id, visit.now, TEXT_MAX)
    )
    if found is None or not visit.access.may_see(found.row.tenant):
        raise not_found(job_id)
    return found


async def show_why(visit: Visit) -> Response:
    """Return why a job is where it is, and what would move it."""
    about = await find_details(visit)
    return answer_json(why_document(about.row, explain(visit, about)))


async def show_logs(visit: Visit) -> Response:
    """Return the kept lines of its attempts."""
    job_id: int = visit.request.path_params["job_id"]
    rows = await visit.ask(("row", job_id), lambda store: store.inspector.jobs_of([job_id], 0))
    if not rows or not visit.access.may_see(rows[0].tenant):
        raise not_found(job_id)
    kept = (await read_logs(visit, job_id))[::-1]
    return answer_json(logs_document(job_id, kept))


async def show_payload(visit: Visit) -> Response:
    """Return a whole payload as it is stored: numbers keep all their digits."""
    job_id: int = visit.request.path_params["job_id"]
    name: str = visit.request.path_params["name"]

    async def look(store: Store) -> StoredJob | None:
        return await store.inspector.job(job_id)

    row = await visit.ask(("payload", job_id), look)
    if row is None or not visit.access.may_see(row.tenant) or name not in PAYLOADS:
        raise not_found(job_id)
    return Response(getattr(row, name) or "null", media_type="application/json")


_JOB = "/jobs/{job_id:int}"
ROUTES = [
    ApiRoute(
        "/jobs",
        show_jobs,
        "Jobs, newest first; as `outlast jobs --json`, without checkpoints and results.",
        by_tenant=True,
        query={
            "state": "a state or phase",
            "queue": "only of this queue",
            "task": "only of this task",
            "tenant": "only of this tenant",
            "label": "only with this label",
            "limit": f"at most this many, {LIMIT_MAX} at most",
            "before": "only jobs with smaller ids: next_before of the page before",
        },
    ),
    ApiRoute(_JOB, show_job, "All about one job; as `outlast job ID --json`.", by_tenant=True),
    ApiRoute(
        f"{_JOB}/why", show_why, "Why it is there; as `outlast why ID --json`.", by_tenant=True
    ),
    ApiRoute(f"{_JOB}/attempts", show_attempts, "The attempts of one job.", by_tenant=True),
    ApiRoute(
        f"{_JOB}/logs",
        show_logs,
        "What its attempts have printed; as `outlast logs ID --json`.",
        Right.PAYLOAD,
        by_tenant=True,
    ),
    ApiRoute(
        f"{_JOB}/{{name:str}}",
        show_payload,
        "args, checkpoint or result of one job, as stored.",
        Right.PAYLOAD,
        by_tenant=True,
    ),
]
