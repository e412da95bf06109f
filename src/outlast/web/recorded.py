"""``/actions``: who did what, when and why; how far an action on many jobs has come."""

from __future__ import annotations

from starlette.responses import Response

from outlast.insight.acting import Verb
from outlast.insight.records import ActionList, list_actions
from outlast.store.actions import CHANGES
from outlast.store.protocol import Store
from outlast.web.access import Right
from outlast.web.api.found import check_stoppable, read_one
from outlast.web.endpoint import Endpoint
from outlast.web.listing import ROWS, read_number
from outlast.web.problem import WebRefusal
from outlast.web.visit import Visit


async def show_actions(visit: Visit) -> Response:
    """Show what people did, newest first."""
    before, job_id = read_number(visit.query, "before"), read_number(visit.query, "job")

    async def look(store: Store) -> ActionList:
        return await list_actions(store, ROWS, before, job_id)

    await visit.site.bulk.go_on_with_left()
    found = await visit.ask(("actions", before, job_id), look)
    return visit.show("actions.html", found=found, before=before, job_id=job_id, full=ROWS)


async def show_action(visit: Visit) -> Response:
    """Show one action, and how far it has come."""
    row = await read_one(visit)
    done = sum(number for word, number in row.counts.items() if word in CHANGES)
    may_stop = visit.may(Right.BULK) and (row.verb not in set(Verb) or visit.may(row.verb))
    return visit.show("action.html", one=row, done=done, may_stop=may_stop)


async def stop(visit: Visit) -> Response:
    """Stop an action on many jobs after the step that is under way."""
    row = await read_one(visit)
    check_stoppable(visit, row)
    if not await visit.act(lambda store: store.stop_action(row.id)):
        raise WebRefusal(409, "Not done", f"Action {row.id} is over, or is none on many jobs.")
    return visit.go(f"/actions/{row.id}")


ENDPOINTS = [
    Endpoint("/actions", show_actions),
    Endpoint("/actions/{action_id:int}", show_action, by_tenant=True),
    Endpoint("/actions/{action_id:int}/stop", stop, Right.BULK, "POST", by_tenant=True),
]
