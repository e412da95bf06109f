"""Make the page for Prometheus servers, kept for a while: one read of the store for all clients.

If the store cannot be read, the page says so (``outlast_store_up`` 0), since a failed scrape would
look like a missing exporter, and does not repeat earlier values, which would look like new ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily

from outlast.base import http_server
from outlast.base.clock import SYSTEM, Clock
from outlast.base.config import VERSION
from outlast.base.http_server import Response, listen, make_response
from outlast.metrics.collector import QUEUES_MAX, TASKS_MAX, Look, LookCollector, Names

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
KEEP_SECONDS = 15.0  # for which a page is kept
LOOK_SECONDS = 10.0  # that one read may take: less than a Prometheus server waits


class Exporter:
    """Makes the page. ``look`` reads the store and raises if it cannot."""

    def __init__(self, look: Callable[[], Awaitable[Look]], clock: Clock = SYSTEM) -> None:
        self._look = look
        self._clock = clock
        self._queues, self._tasks = Names(QUEUES_MAX), Names(TASKS_MAX)
        self._page: asyncio.Task[bytes] | None = None
        self._good_until = 0.0
        self._looked_at = 0.0

    async def page(self) -> bytes:
        """Return the page, at most KEEP_SECONDS old. Clients that ask while it is made wait for it;
        one that leaves does not end the read."""
        if self._page is None or (self._page.done() and self._clock.boot() >= self._good_until):
            self._page = asyncio.create_task(self._make(), name="outlast-exporter-look")
        return await asyncio.shield(self._page)

    async def _make(self) -> bytes:
        page = render(await self._read(), self._looked_at)
        self._good_until = self._clock.boot() + KEEP_SECONDS
        return page

    async def _read(self) -> LookCollector | None:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                look = await self._look()
        except Exception:  # even by a fault of ours: a failed scrape says less
            return None
        self._looked_at = self._clock.wall()
        return LookCollector(look, self._queues, self._tasks)


def render(look: LookCollector | None, looked_at: float) -> bytes:
    """Return the page of one read; None: it failed. ``looked_at``: the last read's time, or 0."""
    seen = () if look is None else look.collect()
    families = chain(_describe_exporter(looked_at, is_up=look is not None), seen)
    registry: Any = SimpleNamespace(collect=lambda: families)
    return generate_latest(registry)


def _describe_exporter(looked_at: float, *, is_up: bool) -> Iterator[Metric]:
    words = "1 where the store could be read for this page, else 0."
    yield GaugeMetricFamily("outlast_store_up", words, value=float(is_up))
    yield GaugeMetricFamily(
        "outlast_last_look_timestamp_seconds",
        "When the store was read last, in seconds since 1970; 0 if it never was.",
        value=looked_at,
    )
    info = GaugeMetricFamily(
        "outlast_build_info", "The version of the exporter.", labels=["version"]
    )
    info.add_metric([VERSION], 1.0)
    yield info


@asynccontextmanager
async def serving(
    make_page: Callable[[], Awaitable[bytes]], host: str, port: int
) -> AsyncIterator[int]:
    """Serve the page over HTTP while the block runs; yield the port. ConfigError if it is taken."""

    async def answer(path: str) -> Response:
        if path == "/metrics":
            return Response(200, await make_page(), CONTENT_TYPE)
        if path == "/":
            return make_response(200, "Outlast: the metrics are at /metrics")
        return make_response(404, "not found")

    listening = listen(host or None, port, "--port")
    async with http_server.serving(listening, answer, checks_host=True):
        yield listening.getsockname()[1]
