"""Connections to PostgreSQL in odd states: pipelines, autocommit, other schemas, other loops."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy.ext.asyncio as sqlalchemy_asyncio
from psycopg.adapt import Dumper, Loader

import outlast
from harness.pgbouncer import PgBouncerServer
from outlast.client.attempt import Attempt
from outlast.errors import ConnectionMismatch, UsageError
from outlast.model.job import State
from outlast.store.protocol import Store
from tests.conformance.kit import Hands
from tests.conformance.shop_kit import Link, an_app


@pytest.fixture
async def app(pg_url: str) -> AsyncIterator[outlast.App]:
    app = an_app(pg_url)
    yield app
    await app.close()


async def attempt_of(app: outlast.App, store: Store) -> Attempt:
    await app.tasks["mail"].enqueue("first")
    hands = await Hands.on(store, tasks=["mail"])
    (claimed,) = await hands.claim(1, tasks=["mail"])
    return Attempt(Link(await store.store_id()), claimed)  # type: ignore[arg-type]


async def states(store: Store) -> dict[State, int]:
    return {state: count for (_, state), count in (await store.inspector.counts()).items()}


DONE = {State.COMPLETED: 1, State.QUEUED: 1}


# ---------------------------------------------------------------------- psycopg's own ways


@pytest.mark.parametrize("threshold", [0, None], ids=["prepared", "never_prepared"])
async def test_psycopg_in_autocommit_mode_with_a_block_of_its_own(
    app: outlast.App, store: Store, pg_url: str, threshold: int | None
):
    attempt = await attempt_of(app, store)
    async with await psycopg.AsyncConnection.connect(
        pg_url, autocommit=True, prepare_threshold=threshold
    ) as mine:
        for _ in range(2):
            async with mine.transaction(force_rollback=True):
                await app.tasks["mail"].using(connection=mine, key="k").enqueue("a")
                await attempt.complete_in(mine)
        with pytest.raises(UsageError, match="needs an open transaction"):
            await attempt.complete_in(mine)
        async with mine.transaction():
            await app.tasks["mail"].using(connection=mine, key="k").enqueue("a")
            await attempt.complete_in(mine)
    assert await states(store) == DONE


@pytest.mark.parametrize("autocommit", [False, True])
async def test_psycopg_in_a_pipeline(app: outlast.App, store: Store, pg_url: str, autocommit: bool):
    """What a statement has done is known late there: nothing of it is sent yet."""
    attempt = await attempt_of(app, store)
    mine = await psycopg.AsyncConnection.connect(pg_url, autocommit=autocommit)
    async with mine, mine.pipeline(), mine.transaction():
        await mine.execute("SELECT 1")
        mail = app.tasks["mail"]
        first = await mail.using(connection=mine).enqueue("a")
        await mail.using(connection=mine, after=[first]).enqueue("b")
        await attempt.complete_in(mine)
        assert await states(store) == {State.RUNNING: 1}
    assert await states(store) == {**DONE, State.BLOCKED: 1}


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_psycopg_in_autocommit_mode_stores_a_job_at_once_also_in_a_pipeline(
    app: outlast.App, store: Store, pg_url: str, plain: bool
):
    """Up to its next sync a pipeline is one transaction, which a later statement may end."""
    mail = app.tasks["mail"]
    if plain:
        with psycopg.connect(pg_url, autocommit=True) as it, it.pipeline():
            await mail.using(connection=it).enqueue("a")
            with pytest.raises(psycopg.errors.DivisionByZero):
                it.execute("SELECT 1 / 0").fetchone()
    else:
        mine = await psycopg.AsyncConnection.connect(pg_url, autocommit=True)
        async with mine, mine.pipeline():
            await mail.using(connection=mine).enqueue("a")
            with pytest.raises(psycopg.errors.DivisionByZero):
                await (await mine.execute("SELECT 1 / 0")).fetchone()
    assert await states(store) == {State.QUEUED: 1}


# ---------------------------------------------------------------------- pooled, and prepared


@pytest.mark.pgbouncer
async def test_a_connection_through_a_pooler_of_transactions(
    app: outlast.App, store: Store, pg_url: str, pgbouncer: PgBouncerServer
):
    attempt = await attempt_of(app, store)
    url = pgbouncer.through(pg_url)
    async with asyncpg.create_pool(url, min_size=2, max_size=2, statement_cache_size=0) as pool:
        for n in range(4):
            async with pool.acquire() as mine:
                await _roll_back(mine, app, attempt, str(n))
        async with pool.acquire() as mine, mine.transaction():
            await app.tasks["mail"].using(connection=mine, key="k").enqueue("a")
            await attempt.complete_in(mine)
    assert await states(store) == DONE


async def _roll_back(mine: Any, app: outlast.App, attempt: Attempt, to: str) -> None:
    transaction = mine.transaction()
    await transaction.start()
    await app.tasks["mail"].using(connection=mine, key="k").enqueue(to)
    await attempt.complete_in(mine)
    await transaction.rollback()


# -------------------------------------------------------------------------------- two schemas


async def test_a_session_whose_path_is_changed_is_refused_until_it_leads_back(
    app: outlast.App, store: Store, pg_url: str
):
    """One pool, and a schema for each tenant: a session is used for one after the other."""
    attempt = await attempt_of(app, store)
    async with await psycopg.AsyncConnection.connect(pg_url, autocommit=True) as mine:
        await mine.execute("CREATE SCHEMA other")
    theirs = an_app(pg_url + "?options=-csearch_path%3Dother")
    await theirs.tasks["mail"].enqueue("first of theirs")
    async with await psycopg.AsyncConnection.connect(pg_url) as mine:
        await mine.execute("SET search_path = other")
        for refused in (
            app.tasks["mail"].using(connection=mine).enqueue("a"),
            attempt.complete_in(mine),
        ):
            with pytest.raises(ConnectionMismatch, match="another Outlast schema"):
                await refused
        assert (await theirs.tasks["mail"].using(connection=mine).enqueue("b")).id == 2
        await mine.execute("SET search_path = public")
        await app.tasks["mail"].using(connection=mine).enqueue("c")
        await attempt.complete_in(mine)
    assert await states(store) == DONE
    await theirs.close()


# ------------------------------------------------------------------------ loops and threads


def in_a_thread(work: Any) -> BaseException | None:
    """Await it on an event loop of another thread; return what that raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(work)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "it waits forever"
    return raised[0] if raised else None


async def test_a_connection_of_another_loop_is_refused_before_anything_is_sent(
    app: outlast.App, store: Store, pg_url: str
):
    attempt = await attempt_of(app, store)
    mine = await asyncpg.connect(pg_url)
    async with mine.transaction():
        there = app.tasks["mail"].using(connection=mine).enqueue("a")
        error = await asyncio.to_thread(in_a_thread, there)
        assert isinstance(error, ConnectionMismatch), error
        assert "another event loop" in str(error)
        error = await asyncio.to_thread(in_a_thread, attempt.complete_in(mine))
        assert isinstance(error, ConnectionMismatch), error
        await app.tasks["mail"].using(connection=mine).enqueue("b")
        await attempt.complete_in(mine)
    await mine.close()
    assert await states(store) == DONE


async def test_a_session_of_sqlalchemy_on_asyncpg_is_refused_on_another_loop(
    app: outlast.App, store: Store, pg_url: str
):
    """The process would crash in asyncpg, used by two threads."""
    engine = sqlalchemy_asyncio.create_async_engine(
        pg_url.replace("postgresql://", "postgresql+asyncpg://")
    )
    async with sqlalchemy_asyncio.AsyncSession(engine) as mine:
        await app.tasks["mail"].using(connection=mine).enqueue("a")
        there = app.tasks["mail"].using(connection=mine).enqueue("b")
        error = await asyncio.to_thread(in_a_thread, there)
        assert isinstance(error, ConnectionMismatch), error
        await app.tasks["mail"].using(connection=mine).enqueue("c")
        await mine.commit()
    await engine.dispose()
    assert await states(store) == {State.QUEUED: 2}


BYTES: dict[str, Any] = {"client_encoding": "sql_ascii"}


@pytest.mark.parametrize("option", [{"stream_results": True}, {"yield_per": 10}])
async def test_an_engine_of_sqlalchemy_that_streams_its_results(
    app: outlast.App, store: Store, pg_url: str, option: dict[str, Any]
):
    """A cursor of the server can run no INSERT."""
    url = pg_url.replace("postgresql://", "postgresql+psycopg://")
    engine = sqlalchemy_asyncio.create_async_engine(url, execution_options=option)
    try:
        async with engine.begin() as mine:
            await app.tasks["mail"].using(connection=mine).enqueue("a")
    finally:
        await engine.dispose()
    assert await states(store) == {State.QUEUED: 1}


async def test_a_session_of_psycopg_that_returns_texts_as_bytes_is_refused_with_the_remedy(
    app: outlast.App, store: Store, pg_url: str
):
    """As each one is, by its default, to a database without an encoding. (SQLAlchemy cannot even
    connect.)"""
    mail = app.tasks["mail"]
    with psycopg.connect(pg_url, **BYTES) as mine:
        with pytest.raises(ConnectionMismatch, match="say SET client_encoding TO 'UTF8'"):
            await asyncio.to_thread(mail.using(connection=mine).enqueue_sync, "a")
        mine.execute("SET client_encoding TO 'UTF8'")
        await asyncio.to_thread(mail.using(connection=mine, key="k").enqueue_sync, "b")
    async with await psycopg.AsyncConnection.connect(pg_url, **BYTES) as awaited:
        with pytest.raises(ConnectionMismatch, match="SQL_ASCII"):
            await mail.using(connection=awaited).enqueue("c")
    assert await states(store) == {State.QUEUED: 1}


async def test_threads_that_share_a_connection_of_psycopg_have_their_turns(
    app: outlast.App, store: Store, pg_url: str
):
    with psycopg.connect(pg_url) as mine:
        mail = app.tasks["mail"].using(connection=mine)
        calls = [asyncio.to_thread(mail.enqueue_sync, str(n)) for n in range(40)]
        jobs = await asyncio.gather(*calls)
        assert len({job.id for job in jobs}) == 40
    assert await states(store) == {State.QUEUED: 40}


# ---------------------------------------------------------------------- types of a program's own


async def test_psycopg_with_loaders_and_dumpers_of_the_programs(app: outlast.App, pg_url: str):
    """Also for lists, as a common recipe says for columns of JSON."""

    class Text(Loader):
        def load(self, data: Any) -> str:
            return bytes(data).decode().upper()

    class Json(Dumper):
        oid = 3802

        def dump(self, obj: Any) -> bytes:
            return json.dumps(obj).encode()

    mail = app.tasks["mail"]
    with psycopg.connect(pg_url) as mine:
        for name in ("int8", "bool", "text", "uuid", "float8"):
            mine.adapters.register_loader(name, Text)
        mine.adapters.register_dumper(list, Json)
        first = await mail.using(connection=mine, key="k").enqueue("a")
        again = await mail.using(connection=mine, key="k").enqueue("a")
        later = await mail.using(connection=mine, delay=60, labels=["x"]).enqueue("b")
        assert (first.id, first.created) == (1, True)
        assert (again.id, again.created) == (1, False)
        assert type(later.id) is int
        assert mine.execute("SELECT 7").fetchone() == (7,)  # int4
        assert mine.execute("SELECT 'a'").fetchone() == ("A",)


@pytest.mark.parametrize("name", ["bool", "int8"])
async def test_asyncpg_with_a_codec_of_the_programs_for_a_type_of_ours_is_refused(
    app: outlast.App, pg_url: str, name: str
):
    mine = await asyncpg.connect(pg_url)
    await mine.set_type_codec(name, encoder=str, decoder=str, schema="pg_catalog")
    with pytest.raises(ConnectionMismatch, match="codec"):
        await app.tasks["mail"].using(connection=mine, key="k").enqueue("a")
    assert await mine.fetchval("SELECT count(*)::int4 FROM outlast_jobs") == 0
    await mine.close()
