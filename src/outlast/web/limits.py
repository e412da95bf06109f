"""``/limits``: show what limits allow and what is in use; set, hold and reset one; weights."""

from __future__ import annotations

from starlette.responses import Response

from outlast.client.limits import make_set_limit
from outlast.client.weights import make_weight
from outlast.errors import ConfigError
from outlast.insight.acting import By, hold_limit, set_limit, set_weight
from outlast.insight.limits import counted, next_start, spec_text
from outlast.insight.queries import read_one_limit
from outlast.store.limits import WAITING_SHOWN, Hold, SetLimit
from outlast.web.access import Right
from outlast.web.endpoint import Endpoints
from outlast.web.listing import require_name
from outlast.web.visit import Visit

ENDPOINTS = Endpoints()


@ENDPOINTS.at("/limits")
async def show_limits(visit: Visit) -> Response:
    """Show limits by name, and the weights of tenants."""
    rows = await visit.ask("limits", lambda store: store.inspector.limits())
    weights = await visit.ask("weights", lambda store: store.inspector.weights())
    return visit.show(
        "limits.html", rows=rows, weights=weights, spec_text=spec_text, counted=counted
    )


@ENDPOINTS.at("/limits/limit")
async def show_limit(visit: Visit) -> Response:
    """Show one limit with its busiest keys."""
    name = require_name(visit.query, "name")
    row, permits = await visit.ask(("limit", name), lambda store: read_one_limit(store, name))
    return visit.show(
        "limit.html",
        row=row,
        permits=permits,
        spec_text=spec_text,
        next_start=next_start,
        counted=counted,
        waiting_max=WAITING_SHOWN,
    )


@ENDPOINTS.at("/limits/set", Right.LIMIT, "POST")
async def change(visit: Visit) -> Response:
    """Set a limit, or one key of it."""
    form = await visit.form()
    new = make_set_limit(
        form.get("name", ""),
        key=form.get("key") or None,
        running=_number("running", form.get("running")),
        rate=form.get("rate") or None,
        burst=_number("burst", form.get("burst")),
    )
    await visit.act(lambda store: set_limit(store, new, By(visit.access.user)))
    return visit.go("/limits/limit", name=new.name)


@ENDPOINTS.at("/limits/reset", Right.LIMIT, "POST")
async def reset(visit: Visit) -> Response:
    """Go back to the values of the code."""
    form = await visit.form()
    new = SetLimit(name=form.get("name", ""), key=form.get("key") or None, reset=True)
    await visit.act(lambda store: set_limit(store, new, By(visit.access.user)))
    return visit.go("/limits/limit", name=new.name)


@ENDPOINTS.at("/limits/hold", Right.LIMIT, "POST")
async def hold(visit: Visit) -> Response:
    """Let nothing start under a limit for some seconds."""
    form = await visit.form()
    seconds = _number("seconds", form.get("seconds")) or 0
    held = Hold(form.get("name", ""), form.get("key", ""), float(seconds))
    await visit.act(lambda store: hold_limit(store, held, By(visit.access.user)))
    return visit.go("/limits/limit", name=held.name)


@ENDPOINTS.at("/limits/weight", Right.LIMIT, "POST")
async def weigh(visit: Visit) -> Response:
    """Set the weight of a tenant; without a value, give it the weight of all others."""
    form = await visit.form()
    new = make_weight(form.get("tenant"), _number("weight", form.get("weight") or "1"))
    await visit.act(lambda store: set_weight(store, new, By(visit.access.user)))
    return visit.go("/limits")


def _number(what: str, text: str | None) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 9):  # noqa: PLR2004
        raise ConfigError(f"{what} has to be a whole number")
    return int(text)
