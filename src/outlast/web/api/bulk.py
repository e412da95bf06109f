"""``/api/v1/bulk``: preview the jobs that an act would change, then act on exactly those."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from outlast.insight.acting import Verb
from outlast.insight.bulk import BulkFilter, Preview, begin, preview
from outlast.insight.documents import Document
from outlast.insight.records import action_document, preview_document
from outlast.web.access import Right
from outlast.web.action_log import read_named, stop_named
from outlast.web.api.acts import Act
from outlast.web.api.route import ApiRoutes
from outlast.web.job_filter import check_search
from outlast.web.problem import WebRefusal, answer_json
from outlast.web.visit import Visit

ROUTES = ApiRoutes()


class BulkAct(Act, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An act on all matching jobs. Without ``expected`` nothing is done: the answer is the preview,
    whose ``count`` (as ``expected``), ``at_least``, ``up_to_id`` and ``as_of`` the caller sends
    back to act."""

    verb: Verb
    filter: BulkFilter = BulkFilter()
    up_to_id: int | None = None
    as_of: float | None = None
    expected: int | None = None
    at_least: bool = False


@ROUTES.at("/bulk", Right.BULK, body=BulkAct, by_tenant=True)
async def act_on_all(visit: Visit, sent: BulkAct) -> Document | Response:
    """Preview an act on all jobs that match; or, with what the preview has shown, begin it."""
    visit.require(sent.verb)
    verb, which = sent.verb, sent.filter
    check_search(visit, args=which.args, error=which.error)
    if visit.access.tenant is not None:
        which = msgspec.structs.replace(which, tenant=visit.access.tenant)
    if sent.expected is None:
        found = await visit.ask(("bulk", verb, which), lambda store: preview(store, verb, which))
        return preview_document(found)
    if sent.up_to_id is None or sent.as_of is None:
        raise WebRefusal(
            400, "Not valid", "Send up_to_id and as_of, as the preview has shown them."
        )
    seen = Preview(
        verb=verb,
        filter=which,
        count=sent.expected,
        at_least=sent.at_least,
        up_to_id=sent.up_to_id,
        as_of=sent.as_of,
    )
    by = sent.by(visit)
    action_id = await visit.act(lambda store: begin(store, seen, by))
    visit.site.bulk.start(action_id)
    return answer_json({"id": action_id, "state": "running"}, 202)


@ROUTES.at("/actions/{action_id:int}/stop", Right.BULK, body=Act, by_tenant=True)
async def stop(visit: Visit, _: Act) -> Document:
    """Stop an act on many jobs after the current step; what was done stays done."""
    await stop_named(visit)
    return action_document(await read_named(visit))
