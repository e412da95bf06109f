"""``/actions``: show who did what, when and why, and how far an action on many jobs has come."""

from __future__ import annotations

from starlette.responses import Response

from outlast.errors import OutlastError
from outlast.insight.acting import Verb
from outlast.insight.bulk import filter_of, list_actions, read_action
from outlast.store.actions import LEFT, ActionRow
from outlast.web.access import Right
from outlast.web.endpoint import Endpoints
from outlast.web.problem import WebRefusal
from outlast.web.visit import ROWS, Visit

ENDPOINTS = Endpoints()


@ENDPOINTS.at("/actions")
async def show_actions(visit: Visit) -> Response:
    """Show the actions of people, newest first."""
    before, job_id = visit.read_number("before"), visit.read_number("job")

    await visit.site.bulk.go_on_with_left()
    found = await visit.ask(
        ("actions", before, job_id), lambda store: list_actions(store, ROWS, before, job_id)
    )
    return visit.show("actions.html", found=found, before=before, job_id=job_id, full=ROWS)


@ENDPOINTS.at("/actions/{action_id:int}", by_tenant=True)
async def show_action(visit: Visit) -> Response:
    """Show one action, and how far it has come."""
    row = await read_named(visit)
    done = sum(number for word, number in row.counts.items() if word not in LEFT)
    may_stop = visit.may(Right.BULK) and (row.verb not in set(Verb) or visit.may(row.verb))
    return visit.show("action.html", one=row, done=done, may_stop=may_stop)


async def read_named(visit: Visit) -> ActionRow:
    """Return the action in the URL; for a user of one tenant, only a bulk action of that tenant."""
    action_id: int = visit.request.path_params["action_id"]
    await visit.site.bulk.go_on_with_left()
    row = await read_action(await visit.site.writer(), action_id)
    if row is None or not _is_of_tenant(row, visit.access.tenant):
        raise WebRefusal(404, "No such action", f"There is no action {action_id}.")
    return visit.cover(row)


def _is_of_tenant(row: ActionRow, tenant: str | None) -> bool:
    if tenant is None:
        return True
    try:
        return row.up_to_id is not None and filter_of(row).tenant == tenant
    except OutlastError:
        return False


async def stop_named(visit: Visit) -> int:
    """Stop the action in the URL, for a user with the right to its verb; return its id."""
    row = await read_named(visit)
    if row.verb in set(Verb):
        visit.require(row.verb)
    if not await visit.act(lambda store: store.stop_action(row.id)):
        raise WebRefusal(409, "Not done", f"Action {row.id} has ended, or is not a bulk action.")
    return row.id
