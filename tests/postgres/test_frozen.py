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
import psycopg
import pytest

from harness.pgbouncer import PgBouncerServer, PoolMode
from harness.proxy import Proxy, proxied
from harness.servers import PostgresServer
from harness.stores import held_open
from outlast.errors import StoreUnavailable
from outlast.model.job import State
from outlast.store.postgres import hangs
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import NewJob
from tests.conformance.connections_kit import Asyncpg, Caller, Django, Psycopg
from tests.conformance.connections_kit import opened as callers_own
from tests.conformance.kit import enqueued, eventually, row_of
from tests.conformance.shop_kit import an_app
from tests.crash.kit import scene

DATABASE = "frozen"
SOON = 15.0  # seconds on a busy machine; a statement may hang for 35, a worker waits for 20
# By default a login that hangs, which is the only one at a time, ends after 15 s, and so does the
# pause after it.
QUICK = {"server_connect_timeout": "1", "server_login_retry": "1"}
POOLED = [
    pytest.param(each, marks=pytest.mark.pgbouncer)
    for each in ("pooled sessions", "pooled transactions")
]


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
            with contextlib.suppress(psutil.NoSuchProcess):  # a session that ends just now
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
    async with held_open(PostgresStore(url, **options)) as store:
        yield store


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


class Way:
    """How a store reaches a pair of servers; ``moved``: that way leads to the other one by then."""

    def __init__(self, url: str, pair: Pair, proxies: list[Proxy], pooler: Any = None) -> None:
        self.url, self._pair = url, pair
        self.proxies, self.pooler = proxies, pooler

    async def fail_over(self) -> None:
        await self._pair.fail_over()
        for each in self.proxies:
            each.lead_to("127.0.0.1", self._pair.standby.port)
        if self.pooler is not None:
            await asyncio.to_thread(self.pooler.tell, "RECONNECT")


@contextlib.asynccontextmanager
async def reached(pair: Pair, way: str) -> AsyncIterator[Way]:
    direct = pair.url(pair.primary)
    if way == "several hosts":
        yield Way(pair.url(pair.primary, pair.standby), pair, [])
        return
    async with proxied(direct) as (one, url), proxied(direct) as (other, _):
        if way == "two addresses":
            yield Way(
                url.replace(f":{one.port}", f":{one.port},127.0.0.1:{other.port}"),
                pair,
                [one, other],
            )
            return
        if way == "one address":
            yield Way(url, pair, [one])
            return
        mode: PoolMode = "session" if way == "pooled sessions" else "transaction"
        pooler = PgBouncerServer(url.partition("?")[0], mode, QUICK)
        await asyncio.to_thread(pooler.start)
        try:
            yield Way(pooler.url(DATABASE), pair, [one], pooler)
        finally:
            await asyncio.to_thread(pooler.dispose)


@pytest.mark.parametrize("way", ["several hosts", "one address", "two addresses", *POOLED])
async def test_a_call_ends_once_another_takes_writes(pair: Pair, way: str) -> None:
    """Whether it begins after the primary froze, or runs as it does."""
    async with reached(pair, way) as there, opened(there.url, connections=2) as store:
        async with store._connections.use(), store._connections.use():
            pass  # two sessions, which are idle now
        runs = asyncio.create_task(sleep_on(store, 60.0))
        await eventually(lambda: sleeps(pair.primary), SOON)
        pair.freeze()
        begins = asyncio.create_task(store.enqueue([NewJob(task="t")]))
        await there.fail_over()
        async with asyncio.timeout(SOON):
            for each in (runs, begins):
                with pytest.raises(StoreUnavailable, match="another server answers"):
                    await each
            await store.enqueue([NewJob(task="t")])


@pytest.mark.parametrize("kind", [Asyncpg, Psycopg, Django])
async def test_a_connection_of_the_callers_is_not_left(pair: Pair, kind: type[Caller]) -> None:
    """What becomes of its transaction is up to its owner and its driver. The program's own sessions
    go on with the other server meanwhile."""
    app = an_app(pair.url(pair.primary, pair.standby))
    mail = app.tasks["mail"]
    direct = pair.url(pair.primary).partition("?")[0]
    async with opened(direct), callers_own(kind, direct) as mine:
        await mine.call(mine.begin)
        await mine.enqueue(mail, "first")
        await mail.enqueue("of its own")
        pair.freeze()
        waits = asyncio.create_task(mine.enqueue(mail, "second"))
        try:
            await pair.fail_over()

            async def goes_on() -> bool:
                with contextlib.suppress(StoreUnavailable):
                    return bool(await mail.enqueue("third"))
                return False

            await eventually(goes_on, SOON)
            assert not waits.done()
        finally:
            pair.thaw()
        await waits
        await mine.call(mine.rollback)
    await app.close()


async def sleep_on(store: PostgresStore, seconds: float) -> None:
    await store._connections.run(lambda it: it.execute(f"SELECT pg_sleep({seconds})"))


async def sleeps(server: PostgresServer) -> bool:
    find = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    return await asyncio.to_thread(server.sql, find) != "0"


async def test_a_call_ends_once_another_has_a_session_of_the_same_number(pair: Pair) -> None:
    """As where each server has a container, with process ids of its own."""
    async with (
        reached(pair, "one address") as way,
        opened(way.url) as store,
        await psycopg.AsyncConnection.connect(pair.url(pair.standby).partition("?")[0]) as other,
    ):
        async with store._connections.use() as session:
            session.get_server_pid = lambda: other.info.backend_pid
        begins = asyncio.create_task(store.enqueue([NewJob(task="t")]))
        await way.fail_over()
        async with asyncio.timeout(SOON):
            with pytest.raises(StoreUnavailable, match="another server answers"):
                await begins


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


@pytest.mark.parametrize("way", ["one address", "two addresses", *POOLED])
async def test_a_call_that_is_only_slow_is_left_alone(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Its server knows the session, however long it waits, and by whichever address the server is
    asked: the first of two says nothing then."""
    async with reached(pair, way) as there, opened(there.url) as store:
        looks = count_looks(monkeypatch)
        locks = await psycopg.AsyncConnection.connect(pair.url(pair.primary), autocommit=True)
        await locks.execute("SELECT pg_advisory_lock(1)")
        wait = "SELECT pg_advisory_xact_lock(1)"
        waits = asyncio.create_task(store._connections.run(lambda it: it.execute(wait)))
        if way == "two addresses":
            there.proxies[0].admit_none()
        async with asyncio.timeout(SOON):
            while len(looks) < 3 and not waits.done():
                await asyncio.sleep(0.01)
        assert not waits.done()
        if way == "one address":  # a pooler has a transaction begun first, which may take long
            assert [b - a >= 0.1 for a, b in itertools.pairwise(looks)] == [True, True]
        await locks.close()
        await waits


@pytest.mark.pgbouncer
async def test_a_call_that_has_waited_for_its_pooler_is_left_alone(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction began late: the server has had it for a moment only."""
    async with reached(pair, "pooled transactions") as there, opened(there.url) as store:
        looks = count_looks(monkeypatch)
        await asyncio.to_thread(there.pooler.tell, "PAUSE")
        began_at = asyncio.get_running_loop().time()
        waits = asyncio.create_task(sleep_on(store, 60.0))

        async def has_waited() -> bool:
            return asyncio.get_running_loop().time() - began_at >= 1.0

        await eventually(has_waited)
        await asyncio.to_thread(there.pooler.tell, "RESUME")
        async with asyncio.timeout(SOON):
            while len(looks) < 2 and not waits.done():
                await asyncio.sleep(0.01)
        assert not waits.done()
        waits.cancel()


@pytest.mark.pgbouncer
async def test_a_call_that_waits_for_one_of_two_poolers_is_left_alone(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both lead to the same server, and a balancer leads to either."""
    looks = count_looks(monkeypatch)
    async with (
        reached(pair, "pooled transactions") as busy,
        reached(pair, "pooled transactions") as idle,
        proxied(busy.url) as (balancer, url),
        opened(url) as store,
    ):
        await asyncio.to_thread(busy.pooler.tell, "PAUSE")
        balancer.lead_to("127.0.0.1", idle.pooler.port)
        waits = asyncio.create_task(store.enqueue([NewJob(task="t")]))
        async with asyncio.timeout(SOON):
            while len(looks) < 2 and not waits.done():
                await asyncio.sleep(0.01)
        assert not waits.done()
        await asyncio.to_thread(busy.pooler.tell, "RESUME")
        await waits


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
