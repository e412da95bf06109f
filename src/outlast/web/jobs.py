"""``/jobs``: list jobs by the filter in the URL, newest first; ``/go``: find one."""

from __future__ import annotations

from starlette.responses import Response

from outlast.insight.documents import error_of
from outlast.insight.queries import JobList, SearchBounds, list_jobs, look_up
from outlast.model.job import State
from outlast.store.protocol import Store
from outlast.store.rows import StoredJob
from outlast.web.bulk import verbs_for
from outlast.web.endpoint import Endpoints
from outlast.web.filters import fields_for, query_of, read_asked
from outlast.web.problem import WebRefusal
from outlast.web.visit import ROWS, ROWS_MAX, Visit

ENDPOINTS = Endpoints()
BOUNDS = SearchBounds(looks=1, rows=20_000, judged=2_000, text_max=200)


@ENDPOINTS.at("/jobs", by_tenant=True)
async def show_jobs(visit: Visit) -> Response:
    """Show a page of jobs."""
    asked = read_asked(visit)
    before = visit.read_number("before")
    limit = visit.read_number("rows", ROWS_MAX) or ROWS
    which = asked.job_filter(limit=limit, before_id=before)

    async def look(store: Store) -> tuple[JobList, dict[int, str | None]]:
        found = await list_jobs(store, which, asked.state, BOUNDS, asked.texts)
        return found, await _read_errors(store, found.rows)

    found, errors = await visit.ask(("jobs", which, asked), look)
    return visit.show(
        "jobs.html",
        rows=[(row, found.phase_of(row), *_last_time(row)) for row in found.rows],
        errors=errors,
        fields=fields_for(visit),
        is_search=asked.texts is not None,
        query=query_of(visit),
        before=before,
        found=found,
        is_full=len(found.rows) == limit,
        verbs=verbs_for(visit, asked),
    )


async def _read_errors(store: Store, rows: list[StoredJob]) -> dict[int, str | None]:
    """Return the last error, in one line, of each dead job among these."""
    dead = {row.id: row for row in rows if row.state is State.DEAD}
    ends = await store.inspector.last_ends(list(dead)) if dead else []
    return {end.job_id: error_of(dead[end.job_id], end) for end in ends}


def _last_time(row: StoredJob) -> tuple[str, float]:
    """Return the last or next event of a job, and its time."""
    if row.ended_at is not None:
        return "ended", row.ended_at
    if row.started_at is not None:
        return "claimed", row.started_at
    if row.waiting:
        return "due", row.run_at
    return (
        ("enqueued", row.enqueued_at) if row.requeued_at is None else ("requeued", row.requeued_at)
    )


@ENDPOINTS.at("/go", by_tenant=True)
async def go_to(visit: Visit) -> Response:
    """Send the browser to the job or worker with this id, token, key or name."""
    text = (visit.read_name("q") or "").strip()
    if not text:
        return visit.go("/jobs")
    tenant = visit.access.tenant
    target = await visit.ask(("go", text, tenant), lambda store: look_up(store, text, tenant))
    if target is None:
        raise WebRefusal(
            404,
            "Nothing found",
            f"No job has the id, the token or the key {text!r}, and no worker has that name.",
        )
    return visit.go(f"/{target.kind}/{target.id}")
