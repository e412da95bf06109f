"""Act on all jobs that match a filter: show them first, then act on exactly those, in steps.

The list of jobs and the groups of dead ones lead here, and the answer leads to ``/actions/12``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import isfinite

import msgspec
from starlette.responses import Response

from outlast.insight.acting import By, Verb
from outlast.insight.bulk import STATES, BulkFilter, Preview, begin, preview, read_filter
from outlast.insight.queries import PHASES
from outlast.store.protocol import Store
from outlast.web.access import Right
from outlast.web.endpoint import Endpoint
from outlast.web.job_filter import AskedJobs, check_search, query_of, read_asked
from outlast.web.problem import WebRefusal
from outlast.web.visit import Visit

REASON_MAX = 1_000
WRONG = WebRefusal(400, "Not valid", "The form is not as the page has made it.")


def verbs_for(visit: Visit, asked: AskedJobs) -> list[str]:
    """Return what the visitor may do to all jobs of a filter. The filter has to name a state: a
    phase depends on what workers do at this moment, and may differ in the next."""
    if not visit.may(Right.BULK) or asked.phase in PHASES:
        return []
    return [one.value for one in Verb if asked.state in STATES[one] and visit.may(one.value)]


def confirm(verb: Verb) -> Callable[[Visit], Awaitable[Response]]:
    """Return the handler that shows the jobs to act on, and asks for confirmation."""

    async def show(visit: Visit) -> Response:
        visit.require(verb)
        asked = read_asked(visit)
        if asked.phase in PHASES:
            said = f"Jobs are {verb}ed by their state, and {asked.phase} is not one: see phase=."
            raise WebRefusal(400, "Not valid", said)

        async def look(store: Store) -> Preview:
            return await preview(store, verb, await _filter_of(store, asked))

        seen = await visit.ask(("bulk page", verb, asked), look)
        return visit.show(
            "bulk.html",
            seen=seen,
            asked=query_of(visit, asked),
            verb=verb.value,
            filter=msgspec.json.encode(seen.filter).decode(),
        )

    return show


async def _filter_of(store: Store, asked: AskedJobs) -> BulkFilter:
    """Return the filter of an act. A span of time in it becomes a point in time, by the store's
    clock, so that it means the same when the act is done."""
    within = asked.within
    since = None if within is None else await store.inspector.now() - within
    alike = ("queue", "task", "tenant", "label", "group", "args", "error")
    named = {name: getattr(asked, name) for name in alike}
    return BulkFilter(state=asked.state, since=since, **named)


def do(verb: Verb) -> Callable[[Visit], Awaitable[Response]]:
    """Return the handler that begins the action on the jobs shown; it leads to its progress."""

    async def act(visit: Visit) -> Response:
        visit.require(verb)
        form = await visit.form()
        seen = Preview(
            verb=verb,
            filter=_filter_in(visit, form),
            count=_whole(form, "expected"),
            at_least=form.get("at_least") == "yes",
            up_to_id=_whole(form, "up_to_id"),
            as_of=_time(form, "as_of"),
        )
        by = By(visit.access.user, form.get("reason", "")[:REASON_MAX] or None)
        action_id = await visit.act(lambda store: begin(store, seen, by))
        visit.site.bulk.start(action_id)
        return visit.go(f"/actions/{action_id}")

    return act


def _filter_in(visit: Visit, form: dict[str, str]) -> BulkFilter:
    """Return the filter that the page has shown. A form without a filter is refused: it must not
    mean all jobs."""
    if "filter" not in form:
        raise WRONG
    sent = read_filter(form["filter"])
    check_search(visit, args=sent.args, error=sent.error)
    return msgspec.structs.replace(
        sent,
        tenant=visit.access.tenant or sent.tenant,
        from_scratch=form.get("from_scratch") == "yes",
    )


def _whole(form: dict[str, str], name: str) -> int:
    text = form.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 18):  # noqa: PLR2004
        raise WRONG
    return int(text)


def _time(form: dict[str, str], name: str) -> float:
    try:
        at = float(form.get(name, ""))
    except ValueError:
        raise WRONG from None
    if not isfinite(at):
        raise WRONG
    return at


ENDPOINTS = [
    Endpoint(f"/jobs/{verb}", handler(verb), Right.BULK, method, by_tenant=True)
    for verb in Verb
    for method, handler in (("GET", confirm), ("POST", do))
]
