"""PgBouncer before the server, pooling sessions or transactions: what a worker is told, and does.

Where it pools transactions, a session that listens hears nothing: what it sends itself may come
back all the same, while the pool is quiet and lends both statements the same session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import outlast
from harness.front import FrontMissing
from harness.pgbouncer import PgBouncerServer
from harness.servers import PostgresServer
from outlast.store.postgres import wakeup
from outlast.store.postgres.store import PostgresStore
from outlast.worker.in_process import embedded
from outlast.worker.worker import Worker
from tests.cli import conftest as cli
from tests.cli.conftest import Outlast
from tests.conformance.kit import eventually

folder, fork_server, outlast_command = cli.folder, cli.fork_server, cli.outlast

MODES = ("session", "transaction")


@pytest.fixture(scope="module", params=MODES)
def pooler(request: pytest.FixtureRequest, pg_server: PostgresServer) -> Iterator[PgBouncerServer]:
    try:
        made = PgBouncerServer(pg_server.url(), request.param, {"default_pool_size": "100"})
    except FrontMissing as missing:
        pytest.skip(str(missing))
    with made:
        made.mode = request.param  # type: ignore[attr-defined]
        yield made


class Shop:
    """A worker that is connected through the pooler, and its trips to the store."""

    def __init__(self, app: outlast.App, worker: Worker, trips: list[tuple[int, int]]) -> None:
        self.app, self.worker, self.trips = app, worker, trips

    async def wakeup(self) -> str:
        """What the worker's row says of its wake-up, once there is a row, and it says something."""

        async def told() -> str | None:
            rows = await self.worker._store.inspector.workers()
            return next((each.wakeup for each in rows if each.id == self.worker.me.worker_id), None)

        said: str = await eventually(told)
        return said


@pytest.fixture
async def shop(
    pooler: PgBouncerServer, pg_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> AsyncIterator[Shop]:
    monkeypatch.setenv("OUTLAST_RUN_DIR", str(tmp_path / "run"))
    if pooler.mode == "transaction":  # type: ignore[attr-defined]
        monkeypatch.setattr(wakeup, "ECHO_SECONDS", 1.0)  # none comes back
    async with opened(pooler.through(pg_url), monkeypatch) as made:
        yield made


@asynccontextmanager
async def opened(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shop]:
    trips: list[tuple[int, int]] = []
    real = PostgresStore.exchange

    async def noting(store: Any, me: Any, ended: Any, requests: Any) -> Any:
        trips.append((len(ended), len(requests)))
        return await real(store, me, ended, requests)

    monkeypatch.setattr(PostgresStore, "exchange", noting)
    app = outlast.App(url)

    @app.task
    async def work(number: int) -> int:
        return number

    async with embedded(app, concurrency=10) as worker:
        yield Shop(app, worker, trips)
    await app.close()


async def test_a_job_ends_with_its_result(shop: Shop) -> None:
    jobs = [await shop.app.tasks["work"].enqueue(number) for number in range(20)]
    assert [await job.result(timeout=30) for job in jobs] == list(range(20))


async def test_wake_ups_are_healthy_only_where_they_arrive(
    shop: Shop, pooler: PgBouncerServer, outlast_command: Outlast, pg_url: str
) -> None:
    said = await shop.wakeup()
    health = shop.worker._wakeup.health  # type: ignore[union-attr]
    stats = await asyncio.to_thread(outlast_command, "stats", "--json", "--url", pg_url)
    lost = stats.json()["wakeups"]["notify"]["lost"]
    doctor = await asyncio.to_thread(outlast_command, "doctor", "--url", pg_url)
    if pooler.mode == "session":  # type: ignore[attr-defined]
        assert (said, health.good, lost) == ("notify", True, 0)
        assert "No wake-ups" not in doctor.out
    else:
        assert said.startswith("notify: notifications do not pass the pooler")
        assert (health.good, lost) == (False, 1)
        assert "No wake-ups by notify reach" in doctor.out


async def test_where_no_wake_up_arrives_each_end_looks_for_jobs(
    shop: Shop, pooler: PgBouncerServer
) -> None:
    """And where they arrive, the end of a job that comes alone need not."""
    await shop.wakeup()
    shop.trips.clear()
    for number in range(10):
        job = await shop.app.tasks["work"].enqueue(number)
        assert await job.result(timeout=30) == number
        await asyncio.sleep(0.05)
    ends = [requests for ended, requests in shop.trips if ended]
    assert ends
    if pooler.mode == "transaction":  # type: ignore[attr-defined]
        assert all(ends), "what no notification tells of may wait"
    else:
        assert not all(ends)
