"""``/queues``: show, by queue, what waits, who takes it, what hinders it; pause and resume."""

from __future__ import annotations

from starlette.responses import Response

from outlast.errors import ConfigError
from outlast.insight.acting import By, note_of
from outlast.insight.pauses import describe, name_of
from outlast.insight.pauses import resume as end_pause
from outlast.insight.queues import QueueView, list_queues
from outlast.insight.stats import Overview, read_overview
from outlast.model.pause import PauseKind
from outlast.store.values import NewPause
from outlast.web.access import Right
from outlast.web.endpoint import Endpoints
from outlast.web.overview import read_lately
from outlast.web.problem import WebRefusal
from outlast.web.visit import Visit

ENDPOINTS = Endpoints()
QUEUES_SHOWN = 500
LANES_SHOWN = 200
REASON_MAX = 500


@ENDPOINTS.at("/queues")
async def show_queues(visit: Visit) -> Response:
    """Show all queues."""
    seen, queues = await find_queues(visit)
    everything = [one for one in seen.pauses if one.kind is PauseKind.ALL]
    return visit.show(
        "queues.html",
        queues=queues[:QUEUES_SHOWN],
        hidden=max(0, len(queues) - QUEUES_SHOWN),
        pauses=[(one, describe(one, visit.now)) for one in seen.pauses],
        everything=everything[0] if everything else None,
        lately=await read_lately(visit),
        more_lanes=seen.statistics.more_lanes,
    )


@ENDPOINTS.at("/queues/queue")
async def show_queue(visit: Visit) -> Response:
    """Show one queue, lane by lane."""
    name = visit.require_name("name")
    _, queues = await find_queues(visit)
    found = next((one for one in queues if one.name == name), None)
    if found is None:
        text = f"No job, no pause and no live worker names the queue {name!r}."
        raise WebRefusal(404, "No such queue", text)
    lanes = sorted(found.lanes, key=lambda one: -one.oldest)
    return visit.show(
        "queue.html",
        queue=found,
        lanes=lanes[:LANES_SHOWN],
        hidden=max(0, len(lanes) - LANES_SHOWN),
        sentence=None if found.pause is None else describe(found.pause, visit.now),
        lately=(await read_lately(visit)).get(name),
    )


async def find_queues(visit: Visit) -> tuple[Overview, list[QueueView]]:
    """Return the queues as the reader last read them."""
    seen, lately = await visit.ask("overview", read_overview), await read_lately(visit)
    return seen, list_queues(seen, lately)


@ENDPOINTS.at("/pause", Right.PAUSE, "POST")
async def pause(visit: Visit) -> Response:
    """Pause a queue, a task, a tenant or everything."""
    form = await visit.form()
    kind, name = _what(form)
    new = NewPause(
        kind=kind,
        name=name,
        paused_by=visit.access.user,
        reason=form.get("reason", "")[:REASON_MAX] or None,
        stop=form.get("stop") == "yes",
    )

    record = note_of("pause", By(visit.access.user, new.reason), name_of(kind, name))
    await visit.act(lambda store: store.pause(new, record=record))
    return _back(visit, kind, name)


@ENDPOINTS.at("/resume", Right.PAUSE, "POST")
async def resume(visit: Visit) -> Response:
    """End a pause."""
    form = await visit.form()
    kind, name = _what(form)
    by = By(visit.access.user, form.get("reason", "")[:REASON_MAX] or None)
    await visit.act(lambda store: end_pause(store, kind, name, by=by))
    return _back(visit, kind, name)


def _what(form: dict[str, str]) -> tuple[PauseKind, str]:
    try:
        kind = PauseKind(form.get("kind", ""))
    except ValueError:
        raise WebRefusal(400, "Not valid", "kind= is queue, task, tenant or all.") from None
    name = form.get("name", "")
    if (kind is PauseKind.ALL) == bool(name):
        raise ConfigError(
            "a pause of a queue, a task or a tenant has its name; that of all has none"
        )
    return kind, name


def _back(visit: Visit, kind: PauseKind, name: str) -> Response:
    """Send the browser back to the page of the thing that was paused or resumed."""
    if kind in {PauseKind.QUEUE, PauseKind.TASK}:
        return visit.go(f"/{kind}s/{kind}", name=name)
    return visit.go("/queues")
