"""The action that an address of the API names, for those who may see it."""

from __future__ import annotations

from outlast.errors import OutlastError
from outlast.insight.acting import Verb
from outlast.insight.bulk import filter_of, read_action
from outlast.store.actions import ActionRow
from outlast.web.problem import WebRefusal
from outlast.web.visit import Visit


async def read_one(visit: Visit) -> ActionRow:
    """Return the action of this address; of one tenant's user, only a bulk one of that tenant."""
    action_id: int = visit.request.path_params["action_id"]
    await visit.site.bulk.go_on_with_left()
    row = await read_action(await visit.site.writer(), action_id)
    if row is None or not _is_of_tenant(row, visit.access.tenant):
        raise WebRefusal(404, "No such action", f"There is no action {action_id}, or not any more.")
    return row


def _is_of_tenant(row: ActionRow, tenant: str | None) -> bool:
    if tenant is None:
        return True
    try:
        return row.up_to_id is not None and filter_of(row).tenant == tenant
    except OutlastError:
        return False


def check_stoppable(visit: Visit, row: ActionRow) -> None:
    """Refuse one who may not do what the action does."""
    if row.verb in set(Verb) and not visit.may(row.verb):
        said = f"{visit.access.user} lacks the right {row.verb}."
        raise WebRefusal(403, "Not allowed", said)
