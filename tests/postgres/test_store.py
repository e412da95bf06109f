"""What only PostgreSQL has: roles, schemas, poolers, foreign connections, errors of the server."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock
from urllib.parse import quote

import asyncpg
import pytest

from harness.pgbouncer import PgBouncerServer
from outlast.errors import BadData, SchemaMismatch, StoreUnavailable
from outlast.model.crash import Crash, CrashKind
from outlast.model.job import State
from outlast.model.lifecycle import Transition
from outlast.store.postgres.pool import Connections
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import Store
from outlast.store.values import Answer, ClaimRequest, WorkerRef
from outlast.worker.claims.exchange import exchange_bisecting
from tests.conformance.kit import TASK, Hands, crashed, ended, enqueued, eventually, job, row_of

# -- errors

NO_WORKER = WorkerRef(0, 0)


async def test_a_server_that_is_not_there_is_unavailable_and_its_password_not_shown() -> None:
    store = PostgresStore("postgresql://me:secret@127.0.0.1:1/none", connect_timeout=2.0)
    with pytest.raises(StoreUnavailable) as caught:
        await store.open()
    assert "secret" not in str(caught.value)


async def test_a_database_without_tables_asks_for_migrate(bare_pg_url: str) -> None:
    store = PostgresStore(bare_pg_url)
    with pytest.raises(SchemaMismatch, match="outlast migrate"):
        await store.enqueue([job()])
    with pytest.raises(SchemaMismatch, match="outlast migrate"):
        await store.inspector.job(1)
    assert {step.applied_at for step in await store.migrations()} == {None}
    await store.close()


async def test_a_statement_that_takes_too_long_is_unavailable(
    pg_url: str, store: PostgresStore, session: Any
) -> None:
    hasty = PostgresStore(pg_url, statement_timeout=1.0)
    async with session.transaction():
        await session.execute("LOCK TABLE outlast_workers")
        with pytest.raises(StoreUnavailable):
            await hasty.observe()

    async def answers() -> bool:  # a busy machine may take that long, too
        try:
            return (await hasty.observe()).workers == []
        except StoreUnavailable:
            return False

    assert await eventually(answers)
    await hasty.close()


async def test_a_peek_returns_when_a_scheduled_job_falls_due(
    store: PostgresStore, hands: Hands
) -> None:
    async def next_due() -> float | None:
        return (await store.peek(NO_WORKER)).next_due

    await enqueued(store)
    assert await next_due() is None, "what stands in the line was notified"
    await enqueued(store, job(delay=3600.0), job(delay=50.0, queue="other"))
    assert await next_due() == pytest.approx(50.0, abs=30.0)
    await enqueued(store, job(delay=0.001))
    late = await next_due()
    assert late is not None
    assert late < 1.0
    await hands.claim()
    assert await next_due() == pytest.approx(50.0, abs=30.0)


async def test_a_peek_shows_that_jobs_have_joined_a_line(
    store: PostgresStore, hands: Hands
) -> None:
    async def drawn() -> int:
        return (await store.peek(NO_WORKER)).drawn or 0

    before = await drawn()
    await enqueued(store, job(delay=3600.0))
    assert await drawn() == before
    await enqueued(store)
    assert (joined := await drawn()) > before
    await hands.hand_in(crashed(await hands.claim_one(), delay=0.0))
    assert await drawn() > joined


async def test_a_cancellation_reaches_its_caller_though_the_connection_is_gone(pg_url: str) -> None:
    """The rollback fails, and its error takes the cancellation's place on the way out."""
    connections = Connections(pg_url)
    lent = asyncio.Event()

    async def caller() -> None:
        async with connections.use() as connection, connection.transaction():
            connection.terminate()
            lent.set()
            await asyncio.Event().wait()

    calling = asyncio.create_task(caller())
    await lent.wait()
    calling.cancel()
    await asyncio.wait([calling])
    assert calling.cancelled()


async def test_closing_survives_a_connection_whose_session_the_server_is_just_ending(
    pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver has read the server's last message, but not the end of the stream yet."""
    connections = Connections(pg_url)
    async with connections.use() as connection:
        pass
    error = asyncpg.InternalClientError("cannot switch to state 12; another operation (2)")
    monkeypatch.setattr(type(connection), "close", AsyncMock(side_effect=error))
    await connections.close()
    assert connection.is_closed()


async def test_a_role_that_may_not_create_tables_is_told_so(
    bare_pg_url: str, bare_session: Any
) -> None:
    await bare_session.execute("DROP ROLE IF EXISTS outlast_plain; CREATE ROLE outlast_plain LOGIN")
    plain = PostgresStore(f"postgresql://outlast_plain@{bare_pg_url.partition('@')[2]}")
    with pytest.raises(SchemaMismatch, match="may create tables"):
        await plain.open()
    await plain.close()
    await bare_session.execute("DROP ROLE outlast_plain")


async def test_the_search_path_of_the_url_decides_which_schema(
    bare_pg_url: str, bare_session: Any
) -> None:
    await bare_session.execute("CREATE SCHEMA one; CREATE SCHEMA two")
    stores = [
        PostgresStore(f"{bare_pg_url}?options={quote(f'-c search_path={name}')}")
        for name in ("one", "two")
    ]
    for each in stores:
        await each.open()
    assert await stores[0].store_id() != await stores[1].store_id()
    await enqueued(stores[0])
    assert (await stores[1].inspector.counts(), len(await stores[0].inspector.counts())) == ({}, 1)
    for each in stores:
        await each.close()


async def test_tables_of_another_program_are_left_alone(
    bare_pg_url: str, bare_session: Any
) -> None:
    await bare_session.execute("CREATE TABLE outlast_jobs (id int)")
    store = PostgresStore(bare_pg_url)
    with pytest.raises(SchemaMismatch, match="not of this program"):
        await store.open()
    await store.close()


async def test_a_store_behind_a_pooler_keeps_nothing_in_the_session(pg_url: str) -> None:
    store = PostgresStore(pg_url, pooler=True)
    await store.open()
    hands = await Hands.on(store)
    await enqueued(store)
    assert await hands.hand_in(ended(await hands.claim_one())) == [Answer.ACCEPTED]
    async with store._connections.use() as connection:
        assert await connection.fetchval("SELECT count(*) FROM pg_prepared_statements") <= 1
    await store.close()


@pytest.mark.pgbouncer
async def test_a_store_detects_a_pooler_by_itself(pg_url: str, pgbouncer: PgBouncerServer) -> None:
    """Many at once share a few sessions, and each of their statements finds its own."""
    with PgBouncerServer(pg_url, settings={"default_pool_size": "2"}) as pooler:
        store = PostgresStore(pooler.through(pg_url), connections=8)
        await store.open()
        await enqueued(store, *[job() for _ in range(40)])
        workers = [await Hands.on(store, f"w{n}") for n in range(8)]

        async def works(hands: Hands) -> int:
            done = 0
            while claimed := await hands.claim(1):
                await hands.follow(*map(ended, claimed), limit=0)
                done += len(claimed)
                for _ in range(5):  # statements of many kinds meet in each session
                    await asyncio.gather(store.heartbeat(hands.me), store.observe(), hands.claim(0))
            return done

        assert sum(await asyncio.gather(*map(works, workers))) == 40
        assert await store.inspector.counts() == {("default", State.COMPLETED): 40}
        await store.close()


def test_a_store_serves_several_event_loops_in_turn(pg_url: str) -> None:
    store = PostgresStore(pg_url)

    async def once() -> int:
        await store.open()
        (job_id,) = await enqueued(store)
        await store.close()
        return job_id

    assert [asyncio.run(once()) for _ in range(3)] == [1, 2, 3]


# -- bad data


def rejected(transition: Transition, _why: str = "") -> Transition:
    crash = Crash(kind=CrashKind.REJECTED_RESULT)
    return Transition(
        job_id=transition.job_id,
        token=transition.token,
        state=State.DEAD,
        outcome=crash.kind.value,
        charge=transition.charge,
        failures=1,
        losses=0,
        crash=crash,
    )


async def test_a_bad_result_is_found_in_its_batch_and_ends_its_own_job_only(
    store: Store, hands: Hands
) -> None:
    await enqueued(store, *[job() for _ in range(12)])
    claimed = await hands.claim(10)
    ends = [ended(each, result='"fine"') for each in claimed]
    ends[3] = ended(claimed[3], result="\x00")
    ends[7] = crashed(claimed[7])
    with pytest.raises(BadData):
        await hands.hand_in(*ends)
    reply = await exchange_bisecting(store, hands.me, ends, [ClaimRequest([TASK], 5)], rejected)
    assert reply.answers == [Answer.ACCEPTED] * 10
    assert len(reply.claimed) >= 2
    (attempt,) = await store.inspector.attempts(claimed[3].job_id)
    assert attempt.outcome == "rejected_result"
    for each in (claimed[0], claimed[9]):
        row = await row_of(store, each.job_id)
        assert row.state is State.COMPLETED


async def test_a_bad_claim_request_blames_no_result(store: Store, hands: Hands) -> None:
    await enqueued(store)
    claimed = await hands.claim_one()
    with pytest.raises(BadData):
        await exchange_bisecting(
            store, hands.me, [ended(claimed)], [ClaimRequest(["\x00"], 5)], rejected
        )
    row = await row_of(store, claimed.job_id)
    assert row.state is State.COMPLETED
