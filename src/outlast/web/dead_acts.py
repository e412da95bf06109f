"""Requeue or discard a group of dead jobs: what would be done, then exactly that, in steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import isfinite

from starlette.responses import Response

from outlast.insight.acting import By, Verb
from outlast.insight.bulk import BulkFilter, Order, begin, preview
from outlast.web.access import Right
from outlast.web.dead import name_of_group
from outlast.web.endpoint import Endpoint
from outlast.web.problem import WebRefusal
from outlast.web.visit import Visit

REASON_MAX = 1_000
WRONG = WebRefusal(400, "That cannot be", "The form is not as the page has made it.")


def confirm(verb: Verb) -> Callable[[Visit], Awaitable[Response]]:
    """Return what shows the jobs that would be acted on, and asks whether that is meant."""

    async def show(visit: Visit) -> Response:
        check_right(visit, verb)
        name = name_of_group(visit)
        which = BulkFilter(fingerprint=name, tenant=visit.access.tenant)
        seen = await visit.ask(("group", verb, which), lambda store: preview(store, verb, which))
        return visit.show("group_confirm.html", seen=seen, name=name, verb=verb.value)

    return show


def do(verb: Verb) -> Callable[[Visit], Awaitable[Response]]:
    """Return what begins to act on the jobs that were shown; the answer leads to how far it is."""

    async def act(visit: Visit) -> Response:
        check_right(visit, verb)
        form = await visit.form()
        which = BulkFilter(
            fingerprint=form.get("group", ""),
            tenant=visit.access.tenant,
            from_scratch=form.get("from_scratch") == "yes",
        )
        order = Order(
            verb=verb,
            filter=which,
            up_to_id=_whole(form, "up_to_id"),
            as_of=_time(form, "as_of"),
            expected=_whole(form, "expected"),
        )
        by = By(visit.access.user, form.get("reason", "")[:REASON_MAX] or None)
        action_id = await visit.act(lambda store: begin(store, order, by))
        visit.site.bulk.start(action_id)
        return visit.go(f"/actions/{action_id}")

    return act


def check_right(visit: Visit, verb: Verb) -> None:
    """Refuse one who may act on many jobs, and not in this way."""
    if not visit.may(verb.value):
        said = f"{visit.access.user} lacks the right {verb.value}."
        raise WebRefusal(403, "Not allowed", said)


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
    Endpoint("/dead/requeue", confirm(Verb.REQUEUE), Right.BULK, by_tenant=True),
    Endpoint("/dead/discard", confirm(Verb.DISCARD), Right.BULK, by_tenant=True),
    Endpoint("/dead/requeue", do(Verb.REQUEUE), Right.BULK, "POST", by_tenant=True),
    Endpoint("/dead/discard", do(Verb.DISCARD), Right.BULK, "POST", by_tenant=True),
]
