"""``/events``: send hints that something has changed, so that pages load again.

A hint carries no data: the page decides what its user may see when it loads. A stream ends after
``Site.stream_seconds``, since a server that stops waits for open answers; the browser opens a new
one, and each begins with a hint, so nothing is missed in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from outlast.web.access import Right
from outlast.web.endpoint import Endpoints
from outlast.web.problem import WebRefusal
from outlast.web.sampler import CLIENTS_MAX, TOPICS, Sampler
from outlast.web.visit import Visit

ENDPOINTS = Endpoints()
TOPICS_MAX = 10  # of one page
ID_DIGITS = 18
HINT = b"data: \n\n"


@ENDPOINTS.at("/events", by_tenant=True)
async def stream(visit: Visit) -> Response:
    """Send hints until the stream ends."""
    asked = frozenset(visit.query.get("topics", "").split()[:TOPICS_MAX])
    topics = await _allowed(visit, asked)
    if not topics:
        raise WebRefusal(404, "No such topics", "There is nothing to hint at.")
    sampler = visit.site.sampler()
    user = visit.access.user
    if not sampler.has_room(user):
        raise WebRefusal(503, "Too many open pages", f"{CLIENTS_MAX} pages are live already.", 5)
    if visit.request.method == "HEAD":
        return Response(media_type="text/event-stream")
    return StreamingResponse(
        _hints(sampler, topics, user, visit.site.stream_seconds),
        media_type="text/event-stream",
        headers={"x-accel-buffering": "no"},
    )


async def _hints(
    sampler: Sampler, topics: frozenset[str], user: str, seconds: float
) -> AsyncIterator[bytes]:
    client = sampler.join(topics, user)
    stopped = asyncio.ensure_future(sampler.stopped.wait())
    try:
        yield b"retry: 1000\n" + HINT
        async with asyncio.timeout(seconds):
            while not stopped.done():
                hinted = asyncio.ensure_future(client.hinted.wait())
                try:
                    await asyncio.wait({hinted, stopped}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    hinted.cancel()
                if client.ended:
                    return
                if client.hinted.is_set():
                    client.hinted.clear()
                    yield HINT
    except TimeoutError:
        return
    finally:
        stopped.cancel()
        sampler.leave(client)


async def _allowed(visit: Visit, asked: frozenset[str]) -> frozenset[str]:
    """Return the topics of which this user may get hints: for one tenant's user, only its jobs."""
    kinds = {"job", "logs"} if visit.may(Right.PAYLOAD) else {"job"}
    jobs = {topic for topic in asked if _is_job(topic, kinds)}
    tenant = visit.access.tenant
    if tenant is None:
        return frozenset(jobs | (asked & TOPICS))
    ids = tuple(sorted({int(topic.partition(":")[2]) for topic in jobs}))
    rows = await visit.ask(("tenants", ids), lambda store: store.inspector.jobs_of(ids, 0))
    own = {str(row.id) for row in rows if row.tenant == tenant}
    return frozenset(topic for topic in jobs if topic.partition(":")[2] in own)


def _is_job(topic: str, kinds: set[str]) -> bool:
    kind, _, number = topic.partition(":")
    return kind in kinds and number.isascii() and number.isdigit() and 0 < len(number) <= ID_DIGITS
