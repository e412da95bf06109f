"""What is done to one job, by forms. What cannot be undone is confirmed on a page of its own.

A form carries the token that its page has shown: if a newer attempt runs by now, nothing is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.responses import Response

from outlast.model.job import State
from outlast.store.protocol import Store
from outlast.store.rows import StoredJob
from outlast.web.access import Right
from outlast.web.endpoint import Endpoint
from outlast.web.job import find_page, not_found
from outlast.web.problem import WebRefusal
from outlast.web.visit import Visit

VERBS = {
    "cancel": (Right.CANCEL, "Cancel"),
    "requeue": (Right.REQUEUE, "Requeue from the start"),
    "discard": (Right.DISCARD, "Discard"),
}
"""Verbs that are confirmed -> the right, and what the button says."""


async def confirm(visit: Visit) -> Response:
    """Ask whether it is meant."""
    verb = visit.request.path_params["verb"]
    if verb not in VERBS:
        raise WebRefusal(404, "No such page", f"There is nothing at {visit.path}.")
    right, button = VERBS[verb]
    if not visit.may(right):
        raise WebRefusal(403, "Not allowed", f"{visit.access.user} lacks the right {right.value}.")
    found = await find_page(visit)
    return visit.show(
        "confirm.html", row=found.dossier.row, phase=found.dossier.phase, verb=verb, button=button
    )


async def cancel(visit: Visit) -> Response:
    """Cancel a queued job, ask a running one to stop."""

    async def work(store: Store, row: StoredJob) -> str:
        answers = await store.cancel([row.id])
        return _answer(answers, row.id)

    return await _act(visit, work)


async def requeue(visit: Visit) -> Response:
    """Revive a dead or cancelled job."""
    form = await visit.form()

    async def work(store: Store, row: StoredJob) -> str:
        answers = await store.requeue([row.id], from_scratch=form.get("from_scratch") == "yes")
        return _answer(answers, row.id)

    return await _act(visit, work, form)


async def discard(visit: Visit) -> Response:
    """Delete a dead job."""

    async def work(store: Store, row: StoredJob) -> str:
        if row.state is not State.DEAD or not await store.discard([row.id]):
            raise WebRefusal(409, "Not done", f"Job {row.id} is not dead: nothing was deleted.")
        return "discarded"

    await _act(visit, work)
    return visit.go("/jobs", phase="dead")


def _answer(answers: Mapping[int, object], job_id: int) -> str:
    if job_id not in answers:
        raise not_found(job_id)
    return str(answers[job_id])


async def _act(
    visit: Visit,
    work: Callable[[Store, StoredJob], Awaitable[str]],
    form: dict[str, str] | None = None,
) -> Response:
    """Do it, if the job is the tenant's and still in the attempt that the form was made for."""
    job_id: int = visit.request.path_params["job_id"]
    shown = (await visit.form() if form is None else form).get("token", "")

    async def act(store: Store) -> str:
        rows = await store.inspector.jobs_of([job_id], 0)
        if not rows or visit.access.tenant not in {None, rows[0].tenant}:
            raise not_found(job_id)
        if shown and shown != str(rows[0].token or 0):
            now = f"attempt {rows[0].attempt_count} (token {rows[0].token})"
            raise WebRefusal(
                409, "Not done", f"Job {job_id} is in {now} by now: look at its page again."
            )
        return await work(store, rows[0])

    return visit.go(f"/jobs/{job_id}", done=await visit.act(act))


ENDPOINTS = [
    Endpoint("/jobs/{job_id:int}/{verb}", confirm, by_tenant=True),
    Endpoint("/jobs/{job_id:int}/cancel", cancel, Right.CANCEL, "POST", by_tenant=True),
    Endpoint("/jobs/{job_id:int}/requeue", requeue, Right.REQUEUE, "POST", by_tenant=True),
    Endpoint("/jobs/{job_id:int}/discard", discard, Right.DISCARD, "POST", by_tenant=True),
]
