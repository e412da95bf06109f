"""A server that refuses LISTEN, advisory locks and unlogged tables: the store is polling only.

The conformance suite runs there by ``make polling``, and by ``make matrix`` on each version.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from harness.servers import PostgresServer
from outlast.base.clock import SYSTEM
from outlast.errors import SchemaMismatch, StoreUnavailable
from outlast.model.lease import Presence
from outlast.model.limits import LimitSpec
from outlast.store.limits import NewLimit
from outlast.store.postgres import schema
from outlast.store.postgres.backend import POSTGRES
from outlast.store.postgres.presence import PostgresPresence
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import Answer, OnKey
from outlast.store.wakeup import POLLING_ONLY
from tests.conformance.kit import Hands, ended, enqueued, eventually, job
from tests.conformance.limits_kit import declare, limited, need

# The server logs what it is asked, and keeps the end of its log in memory.
SETTINGS = {"synchronous_commit": "off", "wal_writer_delay": "10s", "log_statement": "all"}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(refuses=True, settings=SETTINGS) as server:
        yield server


@pytest.fixture
async def url(server: PostgresServer) -> AsyncIterator[str]:
    """A database without tables on it."""
    yield await asyncio.to_thread(server.create_database, "shop")
    await asyncio.to_thread(server.drop_database, "shop")


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.open()
    yield store
    await store.close()


@pytest.mark.slow
async def test_several_programs_make_the_schema_at_once(url: str) -> None:
    stores = [PostgresStore(url) for _ in range(4)]
    await asyncio.gather(*(each.open() for each in stores))
    assert [await each.migrate() for each in stores] == [[], [], [], []]
    assert len({await each.store_id() for each in stores}) == 1
    for each in stores:
        await each.close()


async def test_a_migrator_waits_for_another_one(store: PostgresStore, url: str) -> None:
    session = await asyncpg.connect(url)
    other = PostgresStore(url, statement_timeout=0.2)
    async with session.transaction():
        await session.execute("LOCK TABLE outlast_schema IN SHARE ROW EXCLUSIVE MODE")
        with pytest.raises(StoreUnavailable, match="another session may hold a lock"):
            await other.migrate()
    assert await other.migrate() == []
    await other.close()
    await session.close()


async def test_what_the_server_refuses_is_not_asked_for_once_the_schema_is_there(
    store: PostgresStore, server: PostgresServer
) -> None:
    before = len(server.log.read_text())
    hands = await Hands.on(store)
    presence = PostgresPresence(store.url, patience=5)
    assert await presence.hold(hands.me) == POLLING_ONLY
    wakeup = POSTGRES.open_wakeup(store.url, SYSTEM)
    await wakeup.start(lambda payload: None)

    async def is_told() -> bool:
        return wakeup.health.trouble == POLLING_ONLY

    await eventually(is_told)
    await enqueued(store, job())
    assert await hands.hand_in(ended(await hands.claim_one())) == [Answer.ACCEPTED]
    for delay in (60.0, 0.0):  # the second one replaces the first, and is due
        await enqueued(store, job(key="k", delay=delay, on_key=OnKey(replaces=True)))
    assert await hands.hand_in(ended(await hands.claim_one())) == [Answer.ACCEPTED]
    assert (await hands.seen()).presence is Presence.UNKNOWN
    said = server.log.read_text()[before:]
    assert "outlast_exchange_v1" in said
    assert not [word for word in ("LISTEN", "UNLOGGED", "ERROR") if word in said]
    await wakeup.close()
    await presence.release()


async def test_after_a_crash_no_token_is_drawn_twice_and_the_old_one_is_refused(
    store: PostgresStore, server: PostgresServer
) -> None:
    """The server goes on under the same start time, and has lost the end of its log."""
    loser, other = await Hands.on(store, "loser"), await Hands.on(store, "other")
    await enqueued(store, job())
    await asyncio.to_thread(server.sql, "CHECKPOINT")
    lost = await loser.claim_one()
    await asyncio.to_thread(server.lose_a_process)
    await store.drop_connections()
    early = await other.exchange(limit=1)
    assert (early.valid, early.claimed) == (False, []), "no claim before tokens have jumped"
    me = await store.reconnect(other.me, 0)
    assert me is not None
    other.me = me
    again = await other.claim_one()
    assert again.job_id == lost.job_id
    assert again.token > lost.token
    assert await loser.hand_in(ended(lost)) == [Answer.REFUSED]


async def test_a_change_of_a_limit_and_a_claim_keep_each_other_out(
    store: PostgresStore, url: str
) -> None:
    await declare(store, running=1)
    await enqueued(store, limited(need("a")))
    hands = await Hands.on(store)
    session = await asyncpg.connect(url)
    async with session.transaction():
        await session.execute("SELECT outlast_lock_v1(outlast_limit_lock_v1('a'))")
        assert await hands.claim() == []
        assert not await store.declare_limits([NewLimit("a", LimitSpec(running=2))])
    async with session.transaction():
        assert await session.fetchval("SELECT outlast_try_share_v1(outlast_limit_lock_v1('a'))")
        assert len(await hands.claim()) == 1
    await session.close()


async def test_a_store_becomes_polling_only_when_it_is_told_to(pg_url: str, session: Any) -> None:
    """A worker goes on; its next exchange is refused, as another incarnation has begun."""
    usual = PostgresStore(pg_url)
    hands = await Hands.on(usual)
    assert not (await usual.inspector.environment()).polling_only  # type: ignore[attr-defined]
    told = PostgresStore(pg_url, polling_only=True)
    await told.migrate()
    assert (await usual.inspector.environment()).polling_only  # type: ignore[attr-defined]
    assert not (await hands.exchange()).valid
    assert await usual.reconnect(hands.me, 0) is not None
    await usual.migrate()
    assert (await usual.inspector.environment()).polling_only  # type: ignore[attr-defined]
    assert await session.fetchval("SELECT count(*) FROM outlast_latches") == 1025
    for each in (usual, told):
        await each.close()


async def test_an_old_server_that_refuses_is_refused(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its statistics answer slowly when they began."""
    monkeypatch.setattr(schema, "_POLLING_FROM", 99)
    store = PostgresStore(url)
    with pytest.raises(SchemaMismatch, match="there Outlast needs PostgreSQL 99 or later"):
        await store.open()
    await store.close()
