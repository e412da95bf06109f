"""A primary that freezes ends no session: its statements hang, while another server takes over.

Its host accepts connections and answers nothing, as when a disk or a hypervisor hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.proxy import proxied
from harness.servers import PostgresServer
from outlast.errors import StoreUnavailable
from outlast.model.job import State
from outlast.store.postgres import hangs
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import NewJob
from tests.conformance.kit import enqueued, eventually, row_of
from tests.crash.kit import scene

DATABASE = "frozen"
SOON = 15.0  # seconds on a busy machine; a statement may hang for 35, a worker waits for 20


class Pair:
    """A primary that can be frozen, and a standby that follows it."""

    def __init__(self, primary: PostgresServer, standby: PostgresServer) -> None:
        self.primary, self.standby = primary, standby
        self._frozen: list[psutil.Process] = []

    def url(self, *servers: PostgresServer) -> str:
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in servers)
        return f"postgresql://postgres@{hosts}/{DATABASE}?target_session_attrs=primary"

    def freeze(self) -> None:
        postmaster = psutil.Process(self.primary.pid)
        self._frozen = [postmaster, *postmaster.children()]
        for each in self._frozen:
            each.suspend()

    def thaw(self) -> None:
        for each in self._frozen:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.resume()

    async def fail_over(self) -> None:
        """Freeze the primary and promote the standby."""
        self.freeze()
        await asyncio.to_thread(self.standby.promote)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with PostgresServer() as primary:
        primary.create_database(DATABASE)
        with PostgresServer(standby_of=primary) as standby:
            made = Pair(primary, standby)
            try:
                yield made
            finally:
                made.thaw()


@contextlib.asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, **options)
    await store.open()
    yield store
    await store.close()


@pytest.mark.slow_but("first")
@pytest.mark.parametrize("place", ["first", "last"])
async def test_a_worker_goes_on_once_another_takes_writes(
    pair: Pair, place: str, tmp_path: Path
) -> None:
    """Wherever the frozen host stands in the URL; what runs goes on, under the same lease."""
    hosts = (pair.primary, pair.standby)
    async with scene(pair.url(*(hosts if place == "first" else hosts[::-1])), tmp_path) as stage:
        worker = await stage.worker("--concurrency", "5")
        running = await stage.enqueue("waits")
        await stage.in_state(running, State.RUNNING)
        await stage.ended(await stage.enqueue("noop"))
        await pair.fail_over()
        async with opened(pair.url(pair.standby)) as there:
            (job,) = await enqueued(there, NewJob(task="noop"))

            async def is_done() -> bool:
                return (await row_of(there, job)).state is State.COMPLETED

            await eventually(is_done, SOON)
            assert not worker.told("lease_lost")
            assert (await row_of(there, running)).state is State.RUNNING


@pytest.mark.parametrize("way", ["another host", "one address"])
async def test_a_call_ends_once_another_takes_writes(pair: Pair, way: str) -> None:
    """Also behind one address, which leads to another server by then."""
    async with proxied(pair.url(pair.primary)) as (proxy, one):
        both = pair.url(pair.primary, pair.standby)
        async with opened(both if way == "another host" else one) as store:
            pair.freeze()
            waits = asyncio.create_task(store.enqueue([NewJob(task="t")]))
            await asyncio.to_thread(pair.standby.promote)
            proxy.lead_to("127.0.0.1", pair.standby.port)
            async with asyncio.timeout(SOON):
                with pytest.raises(StoreUnavailable, match="another server answers"):
                    await waits
                await store.enqueue([NewJob(task="t")])


async def test_a_standby_is_asked_again_while_another_host_says_nothing(pair: Pair) -> None:
    """It becomes the primary while a try waits for the frozen one."""
    pair.standby.sql("ALTER SYSTEM SET log_connections = on")
    pair.standby.sql("SELECT pg_reload_conf()")

    async def asked() -> int:
        return pair.standby.log.read_text().count(
            "connection authorized: user=postgres database=frozen"
        )

    pair.freeze()
    store = PostgresStore(pair.url(pair.primary, pair.standby))
    opening = asyncio.create_task(store.open())
    await eventually(asked)
    await asyncio.to_thread(pair.standby.promote)
    await opening
    await store.close()


async def test_a_call_is_not_left_for_a_standby(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the first that answers, by a URL without attributes, before it is promoted."""
    looks = count_looks(monkeypatch)
    url = pair.url(pair.primary, pair.standby).partition("?")[0]
    async with opened(url) as store:
        pair.freeze()
        waits = asyncio.create_task(store.enqueue([NewJob(task="t")]))
        async with asyncio.timeout(SOON):
            while len(looks) < 2:
                await asyncio.sleep(0.01)
        assert not waits.done()
        await asyncio.to_thread(pair.standby.promote)
        async with asyncio.timeout(SOON):
            with pytest.raises(StoreUnavailable, match="another server answers"):
                await waits


def count_looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let calls hang soon, and return when the next look is due, after each look."""
    monkeypatch.setattr(hangs, "HUNG_SECONDS", 0.1)
    monkeypatch.setattr(hangs, "LOOK_SECONDS", 0.05)
    looks: list[float] = []
    compare = hangs.Lent._compare

    async def count(self: hangs.Lent, *of: Any) -> None:
        await compare(self, *of)
        looks.append(self._look_at)

    monkeypatch.setattr(hangs.Lent, "_compare", count)
    return looks


async def test_a_call_that_is_only_slow_is_left_alone(
    pg_url: str, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server knows the session: however long it waits for a lock, it is not cut off."""
    looks = count_looks(monkeypatch)
    async with opened(pg_url) as store:
        await session.execute("SELECT pg_advisory_lock(1)")
        locks = asyncio.create_task(
            store._connections.run(lambda it: it.execute("SELECT pg_advisory_lock(1)"))
        )
        async with asyncio.timeout(SOON):
            while len(looks) < 3:
                await asyncio.sleep(0.01)
        assert [b - a >= 0.1 for a, b in itertools.pairwise(looks)] == [True, True]
        assert not locks.done()
        await session.execute("SELECT pg_advisory_unlock(1)")
        await locks


async def test_a_slow_read_is_left_alone_where_each_session_may_lead_to_another_standby(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by the reader endpoint of a cloud: a standby takes over nothing."""
    looks = count_looks(monkeypatch)
    async with opened(pair.url(pair.primary)):  # with a schema
        pass
    async with (
        proxied(pair.url(pair.primary)) as (proxy, one),
        opened(one.partition("?")[0], read_only=True) as store,
    ):
        reads = asyncio.create_task(
            store._connections.run(lambda it: it.execute("SELECT pg_sleep(30)"))
        )
        proxy.lead_to("127.0.0.1", pair.standby.port)
        async with asyncio.timeout(SOON):
            while len(looks) < 2 and not reads.done():
                await asyncio.sleep(0.01)
        assert not reads.done()
        reads.cancel()
