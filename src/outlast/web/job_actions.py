"""Act on one job by forms; an act that cannot be undone is confirmed on its own page.

A form carries the token that its page has shown: if a newer attempt runs by now, nothing is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.responses import Response

from outlast.insight.acting import By, Verb, act_on_job
from outlast.insight.stacks import AskedStack, ask_for_stack
from outlast.store.protocol import Store
from outlast.web.access import Right
from outlast.web.endpoint import Endpoint
from outlast.web.job import find_page
from outlast.web.problem import WebRefusal
from outlast.web.visit import Visit

DIGITS = 19  # of a token, at most
TEXT_MAX = 1  # characters of payloads that are read: none is needed
VERBS = {
    "cancel": (Right.CANCEL, "Cancel job {}"),
    "requeue": (Right.REQUEUE, "Requeue job {} from the start"),
    "discard": (Right.DISCARD, "Discard job {}"),
}
"""Verbs that are confirmed -> the right, and what is asked."""


async def confirm(visit: Visit) -> Response:
    """Ask for confirmation."""
    verb = visit.request.path_params["verb"]
    if verb not in VERBS:
        raise WebRefusal(404, "No such page", f"There is nothing at {visit.path}.")
    right, title = VERBS[verb]
    visit.require(right)
    found = await find_page(visit)
    row, phase = found.details.row, found.details.phase
    return visit.show(
        "confirm.html",
        row=row,
        phase=phase,
        verb=verb,
        button=verb.capitalize(),
        title=title.format(row.id),
    )


def on_job(verb: Verb) -> Callable[[Visit], Awaitable[Response]]:
    """Return the handler of a form that acts on the job in its URL."""

    async def act(visit: Visit) -> Response:
        form = await visit.form()
        by = By(visit.access.user, form.get("reason") or None)
        scratch = form.get("from_scratch") == "yes"
        answer = await act_on_named(visit, verb, by, token=_token_of(form), from_scratch=scratch)
        if verb is Verb.DISCARD:
            return visit.go("/jobs", phase="dead")
        return visit.go(f"/jobs/{visit.job_id}", done=answer)

    return act


async def act_on_named(
    visit: Visit, verb: Verb, by: By, *, token: int | None, from_scratch: bool
) -> str:
    """Act on the job in the URL, and return the effect, as ``act_on_job`` does; JobNotFound also
    for another tenant's job."""

    async def work(store: Store) -> str:
        row = visit.own(await store.inspector.job(visit.job_id, TEXT_MAX))
        return await act_on_job(store, verb, row, by, token=token, from_scratch=from_scratch)

    return await visit.act(work)


async def ask_stack(visit: Visit) -> Response:
    """Ask where the job in the URL is. The answer appears on its page."""
    token = _token_of(await visit.form())
    await ask_where(visit, By(visit.access.user), token=token)
    return visit.go(f"/jobs/{visit.job_id}", done="asked")


async def ask_where(visit: Visit, by: By, *, token: int | None) -> AskedStack:
    """Ask where the job in the URL is, as ``ask_for_stack`` does; JobNotFound also for another
    tenant's job."""

    async def work(store: Store) -> AskedStack:
        visit.own(await store.inspector.job(visit.job_id, TEXT_MAX))
        return await ask_for_stack(store, visit.job_id, by, token=token)

    return await visit.act(work)


def _token_of(form: dict[str, str]) -> int | None:
    """Return the token in a form: the token of the attempt that its page has shown."""
    shown = form.get("token", "")
    return int(shown) if shown.isascii() and shown.isdigit() and len(shown) < DIGITS else None


_JOB = "/jobs/{job_id:int}"
ENDPOINTS = [
    Endpoint(f"{_JOB}/{{verb}}", confirm, by_tenant=True),
    Endpoint(f"{_JOB}/stack", ask_stack, Right.CANCEL, "POST", by_tenant=True),
    *(
        Endpoint(f"{_JOB}/{verb}", on_job(verb), Right(verb.value), "POST", by_tenant=True)
        for verb in Verb
    ),
]
