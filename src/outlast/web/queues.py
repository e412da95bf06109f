"""``/queues``: show, by queue, what waits, who takes it, what hinders it.
Forms pause and resume it (``api/acts.py``)."""

from __future__ import annotations

from starlette.responses import Response

from outlast.insight.history import Series
from outlast.insight.pauses import describe
from outlast.insight.queues import QueueView, list_queues
from outlast.insight.stats import Overview, read_overview
from outlast.model.pause import PauseKind
from outlast.web.endpoint import Endpoints
from outlast.web.overview import read_lately
from outlast.web.problem import WebRefusal
from outlast.web.visit import Visit

ENDPOINTS = Endpoints()
QUEUES_SHOWN = 500
LANES_SHOWN = 200


@ENDPOINTS.at("/queues")
async def show_queues(visit: Visit) -> Response:
    """Show all queues."""
    seen, queues, lately = await find_queues(visit)
    everything = [one for one in seen.pauses if one.kind is PauseKind.ALL]
    return visit.show(
        "queues.html",
        queues=queues[:QUEUES_SHOWN],
        hidden=max(0, len(queues) - QUEUES_SHOWN),
        pauses=[(one, describe(one, visit.now)) for one in seen.pauses],
        everything=everything[0] if everything else None,
        lately=lately,
        more_lanes=seen.statistics.more_lanes,
    )


@ENDPOINTS.at("/queues/queue")
async def show_queue(visit: Visit) -> Response:
    """Show one queue, lane by lane."""
    name = visit.require_name("name")
    _, queues, lately = await find_queues(visit)
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
        lately=lately.get(name),
    )


async def find_queues(visit: Visit) -> tuple[Overview, list[QueueView], dict[str, Series]]:
    """Return the queues as the reader last read them, and their last hour."""
    seen, (_, lately) = await visit.ask("overview", read_overview), await read_lately(visit)
    return seen, list_queues(seen, lately), lately
