"""``/api/v1/bulk``: preview the jobs that an act would change, then act on exactly those."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from outlast.insight.acting import Verb
from outlast.insight.bulk import BulkFilter, Preview, begin, preview
from outlast.insight.documents import SCHEMA
from outlast.insight.records import action_document, preview_document
from outlast.web.access import Right
from outlast.web.action_log import read_named, stop_named
from outlast.web.api.acts import Act, by_of
from outlast.web.api.route import ApiRoute, answer_json, read_body
from outlast.web.job_filter import check_search
from outlast.web.problem import WebRefusal
from outlast.web.visit import Visit


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


async def act_on_all(visit: Visit) -> Response:
    """Preview the jobs that the act would change, or begin to act on them."""
    sent = await read_body(visit, BulkAct)
    visit.require(sent.verb)
    check_search(visit, args=sent.filter.args, error=sent.filter.error)
    which = kept_to_tenant(visit, sent.filter)
    if sent.expected is None:
        return await _preview(visit, sent.verb, which)
    if sent.up_to_id is None or sent.as_of is None:
        raise WebRefusal(
            400, "Not valid", "Send up_to_id and as_of, as the preview has shown them."
        )
    seen = Preview(
        verb=sent.verb,
        filter=which,
        count=sent.expected,
        at_least=sent.at_least,
        up_to_id=sent.up_to_id,
        as_of=sent.as_of,
    )
    by = by_of(visit, sent.reason)
    action_id = await visit.act(lambda store: begin(store, seen, by))
    visit.site.bulk.start(action_id)
    return answer_json({"schema": SCHEMA, "id": action_id, "state": "running"}, 202)


def kept_to_tenant(visit: Visit, which: BulkFilter) -> BulkFilter:
    """Return the filter, restricted to the visitor's tenant."""
    if visit.access.tenant is None:
        return which
    return msgspec.structs.replace(which, tenant=visit.access.tenant)


async def _preview(visit: Visit, verb: Verb, which: BulkFilter) -> Response:
    seen = await visit.ask(("bulk", verb, which), lambda store: preview(store, verb, which))
    return answer_json(preview_document(seen))


async def stop(visit: Visit) -> Response:
    """Stop a bulk action after the current step."""
    await stop_named(visit)
    return answer_json({"schema": SCHEMA, **action_document(await read_named(visit))})


ROUTES = [
    ApiRoute(
        "/bulk",
        act_on_all,
        "Preview an act on all jobs that match; or, with what the preview has shown, do it.",
        Right.BULK,
        "POST",
        by_tenant=True,
        body=BulkAct,
    ),
    ApiRoute(
        "/actions/{action_id:int}/stop",
        stop,
        "Stop an act on many jobs; what was done stays done.",
        Right.BULK,
        "POST",
        by_tenant=True,
        body=Act,
    ),
]
