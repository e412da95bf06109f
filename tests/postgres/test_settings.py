"""PostgreSQL whose role or database has settings other than our statements rely on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from outlast.errors import StoreUnavailable
from outlast.model.job import State
from outlast.store.backend import StoreOptions
from outlast.store.postgres.connection import KEEPALIVE, settings_of
from outlast.store.postgres.errors import Collision
from outlast.store.postgres.pool import RETRIES, Connections
from outlast.store.postgres.presence import PostgresPresence
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import Cancelled
from tests.conformance.kit import Hands, ended, enqueued, job
from tests.postgres.kit import blocked, exchange_on

DIFFERENT = {
    "default_transaction_isolation": "serializable",
    "statement_timeout": "7s",
    "lock_timeout": "7s",
    "idle_in_transaction_session_timeout": "7s",
    "idle_session_timeout": "7s",
    "transaction_timeout": "7s",
    "tcp_user_timeout": "7s",
    "plan_cache_mode": "auto",
    "jit": "on",
    "enable_indexscan": "off",
    "enable_indexonlyscan": "off",
    "enable_nestloop": "off",
    "enable_tidscan": "off",
    "array_nulls": "off",
}


TIMEOUTS = """
SELECT name FROM pg_settings
WHERE name LIKE '%timeout%' AND name NOT LIKE '%.%' AND context IN ('user', 'superuser')"""
NOT_OURS = {
    "deadlock_timeout": "only when to look for a deadlock",
    "wal_sender_timeout": "of replication",
}


async def set_database(session: Any, **settings: str) -> None:
    """Let new sessions of this database begin with these settings."""
    name = await session.fetchval("SELECT current_database()")
    for key, value in settings.items():
        await session.execute(f"""ALTER DATABASE "{name}" SET {key} = '{value}'""")


async def set_differently(session: Any) -> dict[str, str]:
    """Let new sessions of this database begin with the settings of DIFFERENT that its server has;
    return these."""
    known = {name for (name,) in await session.fetch("SELECT name FROM pg_settings")}
    chosen = {name: value for name, value in DIFFERENT.items() if name in known}
    await set_database(session, **chosen)
    return chosen


@pytest.fixture(params=[False, True], ids=["direct", "pooled"])
async def connections(
    request: pytest.FixtureRequest, pg_url: str, session: Any
) -> AsyncIterator[Connections]:
    """Connections to a database that is set differently, with and without a pooler between."""
    await set_differently(session)
    options = StoreOptions(statement_timeout=5.0, pooler=request.param)
    connections = Connections(pg_url, options)
    yield connections
    await connections.close()


async def test_the_server_asks_whether_a_silent_client_is_still_there(pg_url: str) -> None:
    """Otherwise the idle sessions of a host that has lost its power stay for two hours."""
    connections = Connections(pg_url)
    async with connections.use() as connection:
        shown = {name: await connection.fetchval(f"SHOW {name}") for name in KEEPALIVE}
    await connections.close()
    assert shown == KEEPALIVE


async def test_each_statement_runs_under_outlasts_own_settings(connections: Connections) -> None:
    async with connections.use() as connection:
        shown = dict(await connection.fetch("SELECT name, setting FROM pg_settings"))
        timeouts = {name for (name,) in await connection.fetch(TIMEOUTS)}
    ours = settings_of(5.0, keeps_plans=False)
    if "transaction_timeout" in shown:  # from 17 on
        ours["transaction_timeout"] = "0"
    assert timeouts <= {*ours, *NOT_OURS}, "a new one: say whether it ends what we do"
    assert {name: shown[name] for name in ours} == ours
    assert shown["transaction_isolation"] == "read committed"
    different = shown.keys() & DIFFERENT
    assert different <= {*ours, "default_transaction_isolation"}, "each is looked at"


async def test_behind_a_pooler_no_setting_is_left_in_the_session(pg_url: str, session: Any) -> None:
    different = await set_differently(session)
    connections = Connections(pg_url, StoreOptions(statement_timeout=5.0, pooler=True))
    async with connections.use() as connection:
        await connection.fetch("SELECT 1")
    shown = dict(await connection.fetch("SELECT name, setting FROM pg_settings"))
    left = {name: shown[name] for name in different}
    assert left == {name: value.replace("7s", "7000") for name, value in different.items()}
    await connections.close()


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
async def test_a_call_is_one_statement_and_behind_a_pooler_a_transaction_of_one(
    pooled: bool, pg_url: str, store: PostgresStore
) -> None:
    mine = PostgresStore(pg_url, pooler=pooled)
    hands = await Hands.on(mine)
    await hands.claim(1)  # the first one also reads the floors
    said: list[str] = []
    (connection,) = mine._connections.loop_pool().idle[False]
    connection.add_query_logger(lambda record: said.append(record.query.split()[-1]))
    for call in (lambda: hands.claim(1), lambda: mine.heartbeat(hands.me), mine.observe):
        said.clear()
        await call()
        await asyncio.sleep(0)  # the driver reports in the loop's next turn
        assert len(said) == (3 if pooled else 1)
    await mine.close()


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_workers_of_one_queue_do_not_conflict(
    level: str, pooled: bool, pg_url: str, store: PostgresStore, session: Any
) -> None:
    await set_database(session, default_transaction_isolation=level)
    await enqueued(store, *[job() for _ in range(200)])
    stores = [PostgresStore(pg_url, pooler=pooled) for _ in range(5)]

    async def works(name: str, each: PostgresStore) -> int:
        hands, done = await Hands.on(each, name), 0
        while claimed := await hands.claim(5) or await hands.claim(5):
            await hands.follow(*map(ended, claimed), limit=0)
            done += len(claimed)
            await each.heartbeat(hands.me)
        return done

    names = (f"w{n}" for n in range(len(stores)))
    assert sum(await asyncio.gather(*map(works, names, stores))) == 200
    assert await store.inspector.counts() == {("default", State.COMPLETED): 200}
    for each in stores:
        await each.close()


async def test_a_read_only_database_is_left_so_and_named(
    pg_url: str, store: PostgresStore, session: Any
) -> None:
    await set_database(session, default_transaction_read_only="on")
    other = PostgresStore(pg_url)
    with pytest.raises(StoreUnavailable, match="the database is read-only"):
        await enqueued(other)
    await other.close()


# -- conflicts with another transaction


KINDS = [
    "serialization_failure",
    "deadlock_detected",
    "unique_violation USING CONSTRAINT = 'outlast_jobs_key'",
    "unique_violation USING CONSTRAINT = 'outlast_jobs_key_ccold'",  # REINDEX CONCURRENTLY
    "unique_violation USING CONSTRAINT = 'outlast_windows_pkey_ccnew1'",
]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_statement_rolled_back_by_a_conflict_is_repeated(
    kind: str, connections: Connections
) -> None:
    tries: list[Any] = []

    async def twice_in_vain(connection: Any) -> int:
        tries.append(connection)
        if len(tries) <= 2:
            await connection.execute(f"DO $$ BEGIN RAISE {kind}; END $$")
        return len(tries)

    assert await connections.run(twice_in_vain) == 3
    assert len({id(each) for each in tries}) == 1, "its connection is kept"


async def test_a_look_at_slow_statements_passes_over_a_session_that_has_ended(
    connections: Connections,
) -> None:
    session = await connections.connect(keeps_plans=False)
    session.terminate()
    in_use = connections.loop_pool().in_use
    in_use.add(session)
    await in_use._look_for_another(dict(in_use._since))
    in_use.remove(session)


async def test_a_statement_that_conflicts_every_time_is_unavailable(
    connections: Connections,
) -> None:
    tries: list[int] = []

    async def in_vain(connection: Any) -> None:
        tries.append(1)
        await connection.execute("DO $$ BEGIN RAISE serialization_failure; END $$")

    with pytest.raises(Collision):
        await connections.run(in_vain)
    assert len(tries) == RETRIES + 1


async def test_a_cancel_in_a_deadlock_with_a_users_transaction_is_repeated(
    pg_url: str, store: PostgresStore, session: Any, watcher: Any
) -> None:
    first, second = await enqueued(store, job(), job())
    await set_database(session, deadlock_timeout="3s")  # it is the cancel that finds the deadlock
    await session.execute("SET deadlock_timeout = '60s'")
    mine = PostgresStore(pg_url)
    lock = "SELECT FROM outlast_jobs WHERE id = $1 FOR UPDATE"
    async with session.transaction():
        await session.execute(lock, second)
        cancelling = asyncio.create_task(mine.cancel([first, second]))
        await blocked(watcher)
        await session.execute(lock, first)  # waits for the cancel, which waits for this
    assert set((await cancelling).values()) == {Cancelled.CANCELLED}
    await mine.close()


# -- independent connections


async def test_a_workers_exchanges_and_other_calls_do_not_block_each_other(
    pg_url: str, store: PostgresStore, session: Any, watcher: Any
) -> None:
    mine = PostgresStore(pg_url, connections=2, reserved=1)
    hands = await Hands.on(mine)
    async with session.transaction():
        await session.execute("SELECT FROM outlast_workers FOR UPDATE")
        claiming = asyncio.create_task(hands.claim(1))
        again = asyncio.create_task(mine.reconnect(hands.me, 0))
        await blocked(watcher)
        async with asyncio.timeout(25):
            assert len((await mine.observe()).workers) == 1
            assert not await mine.prune(jobs_older_than=0, workers_older_than=0)
    await asyncio.gather(claiming, again)
    async with mine._connections.use(), asyncio.timeout(25):
        assert await hands.claim(1) == []
    loop_pool = mine._connections.loop_pool()
    assert sum(map(len, loop_pool.idle.values())) <= 2
    await mine.close()


async def test_an_exchange_waits_for_the_disk_if_a_job_begins_or_ends(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    """Not for a place in the line, which the next exchange gives again. An expiry that was shown
    and is lost may not come again: a standby's clock can be behind."""
    await enqueued(store, job(delay=60), job(delay=60))
    seen = {}
    for case, limit, change in [
        ("nothing", 0, "SELECT"),
        ("two places", 0, "UPDATE outlast_jobs SET run_at = date_part('epoch', now())"),
        ("a claim", 1, "SELECT"),
        (
            "an expiry",
            0,
            "UPDATE outlast_jobs SET expires_at = date_part('epoch', now()) WHERE state = 'queued'",
        ),
    ]:
        await session.execute(change)
        async with session.transaction():
            await exchange_on(session, hands, limit)
            seen[case] = await session.fetchval("SHOW synchronous_commit")
    assert seen == {"nothing": "off", "two places": "off", "a claim": "on", "an expiry": "on"}


def test_the_transaction_of_presence_is_bounded_in_time(pg_url: str) -> None:
    presence = PostgresPresence(pg_url, patience=2.0)
    for bound in ("idle_in_transaction_session_timeout", "tcp_user_timeout"):
        assert f"SET LOCAL {bound} = '2000'" in presence._begin(None)
