"""Act on all jobs that match a filter: show them first, then act on exactly those, in steps.

The list of jobs and the groups of dead ones lead here, and the answer leads to ``/actions/12``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.responses import Response

from outlast.insight.acting import ACTS, Verb
from outlast.insight.bulk import Preview, bulk_filter, preview
from outlast.insight.filters import PHASES, AskedJobs
from outlast.store.protocol import Store
from outlast.web.access import Right
from outlast.web.api.acts import BulkAct, begin_shown
from outlast.web.api.route import read_form
from outlast.web.endpoint import Endpoint
from outlast.web.filters import fields_for, query_of, read_asked
from outlast.web.problem import WebRefusal
from outlast.web.visit import Visit


def verbs_for(visit: Visit, asked: AskedJobs) -> list[str]:
    """Return what the visitor may do to all jobs of a filter. The filter has to name a state: a
    phase depends on what workers do at this moment, and may differ in the next."""
    if not visit.may(Right.BULK):
        return []
    return [one.value for one in Verb if asked.state in ACTS[one].states and visit.may(one.value)]


def confirm(verb: Verb) -> Callable[[Visit], Awaitable[Response]]:
    """Return the handler that shows the jobs to act on, and asks for confirmation."""

    async def show(visit: Visit) -> Response:
        visit.require(verb)
        asked = read_asked(visit)
        if asked.state in PHASES:
            said = f"Jobs are {verb}ed by their state, and {asked.state} is not one: see state=."
            raise WebRefusal(400, "Not valid", said)

        async def look(store: Store) -> Preview:
            return await preview(store, verb, await bulk_filter(store, asked))

        seen = await visit.ask(("bulk page", verb, asked), look)
        return visit.show(
            "bulk.html",
            seen=seen,
            asked=query_of(visit),
            fields=fields_for(visit),
            verb=verb.value,
            filter=msgspec.json.encode(seen.filter).decode(),
        )

    return show


def do(verb: Verb) -> Callable[[Visit], Awaitable[Response]]:
    """Return the handler that begins the action on the jobs shown; it leads to its progress."""

    async def act(visit: Visit) -> Response:
        visit.require(verb)
        form = await visit.form()
        if "filter" not in form:  # it must not mean all jobs
            said = "This form did not come from this page. Reload it and try again."
            raise WebRefusal(400, "Not valid", said)
        from_scratch = form.pop("from_scratch", "") == "true"
        sent = read_form(form | {"verb": verb}, BulkAct, "filter")
        which = msgspec.structs.replace(sent.filter, from_scratch=from_scratch)
        action_id = await begin_shown(visit, msgspec.structs.replace(sent, filter=which))
        return visit.go(f"/actions/{action_id}")

    return act


ENDPOINTS = [
    Endpoint(f"/jobs/{verb}", handler(verb), Right.BULK, method, by_tenant=True)
    for verb in Verb
    for method, handler in (("GET", confirm), ("POST", do))
]
