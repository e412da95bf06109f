"""``outlast exporter``: the page over HTTP, on the loop of the command."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from outlast.base import http_server
from outlast.base.http_server import Response, listen, make_response
from outlast.metrics.exposition import CONTENT_TYPE


@asynccontextmanager
async def serving(
    make_page: Callable[[], Awaitable[bytes]], host: str, port: int
) -> AsyncIterator[int]:
    """Serve the page while the block runs; give the port. OSError where that cannot be had."""

    async def answer(path: str) -> Response:
        if path == "/metrics":
            return Response(200, await make_page(), CONTENT_TYPE)
        if path == "/":
            return make_response(200, "Outlast: the metrics are at /metrics")
        return make_response(404, "not found")

    listening = listen(host or None, port)
    async with http_server.serving(listening, answer, checks_host=True):
        yield listening.getsockname()[1]
