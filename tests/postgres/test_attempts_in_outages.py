"""Children and events while the database is away: the attempt waits for it, and is not charged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import outlast
from harness.proxy import Proxy, proxied
from harness.servers import free_port
from outlast import State
from outlast.base.clock import SystemClock
from outlast.client.attempt import StopReason
from outlast.store.protocol import Store
from tests.app.in_process_kit import DEADLINE


class Outage(SystemClock):
    """Cuts what leads to the database until a call has paused for it."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy, self._there = proxy, proxy._target
        self.stops: StopReason | None = None  # what the attempt is asked for meanwhile
        self.pauses: list[str] = []
        self._verb = ""

    async def begin(self, attempt: outlast.Attempt, verb: str) -> None:
        self._attempt, self._verb = attempt, verb
        attempt._clock = self
        self._proxy.lead_to("127.0.0.1", free_port())
        await self._proxy.cut()

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(self._verb)
        if self.stops is not None:
            self._attempt._stop(self.stops)
        if self.stops is None or self.pauses.count(self._verb) > 1:
            self.end()

    def end(self) -> None:
        self._proxy.lead_to(*self._there)


@asynccontextmanager
async def behind(url: str) -> AsyncIterator[tuple[outlast.App, Outage]]:
    async with proxied(url) as (proxy, through):
        app = outlast.App(through)
        yield app, Outage(proxy)
        await app.close()


async def result_of(url: str, job_id: int) -> Any:
    """Wait for a result on connections that nothing cuts."""
    app = outlast.App(url)
    try:
        return await (await app.get(job_id)).result(DEADLINE)
    finally:
        await app.close()


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OUTLAST_RUN_DIR", str(tmp_path / "run"))


async def test_an_outage_before_each_call_charges_nothing(store_url: str, store: Store) -> None:
    async with behind(store_url) as (app, outage):

        @app.task
        async def double(number: int) -> int:
            return 2 * number

        @app.task(retries=0)
        async def parent() -> list[Any]:
            attempt = outlast.current()
            is_first = attempt.number == 1
            if is_first:
                await outage.begin(attempt, "spawn")
            run = await attempt.spawn(outlast.group(double.call(n) for n in range(3)))
            if is_first:
                await outage.begin(attempt, "wait_for")
            found = await attempt.wait_for(run)
            if "wait_event" not in outage.pauses:
                await outage.begin(attempt, "wait_event")
            return [found, await attempt.wait_event("approved", timeout=3600)]

        job = await parent.enqueue()
        await app.send_event("approved", "yes")
        async with app.worker():
            assert await result_of(store_url, job.id) == [[0, 2, 4], "yes"]
        row = await store.inspector.job(job.id)
        assert row is not None
        assert (row.failures, row.losses) == (0, 0)
        assert set(outage.pauses) == {"spawn", "wait_for", "wait_event"}
        children = await store.inspector.children(job.id, 1, 10)
        assert [child.state for child in children] == [State.COMPLETED] * 3


async def test_an_attempt_that_is_asked_to_stop_waits_no_longer(
    store_url: str, store: Store
) -> None:
    async with behind(store_url) as (app, outage):

        @app.task(retries=0)
        async def asks() -> Any:
            attempt = outlast.current()
            if attempt.number == 1:
                outage.stops = StopReason.DRAIN
                await outage.begin(attempt, "wait_event")
            try:
                return await attempt.wait_event("approved", timeout=3600)
            finally:
                outage.end()

        job = await asks.enqueue()
        await app.send_event("approved", "yes")
        async with app.worker():
            assert await result_of(store_url, job.id) == "yes"
        first = (await store.inspector.attempts(job.id))[0]
        assert (first.outcome, first.charge) == ("released", "none")
