"""Connections and transactions that cannot be used are refused, and say why."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy
import sqlalchemy.orm

import outlast
from outlast.errors import ConnectionMismatch, JobNotFound, StoreUnavailable, UsageError
from outlast.store import open_store
from tests.conformance import shop_kit
from tests.conformance.connections_kit import (
    Aiosqlite,
    Asyncpg,
    AsyncPsycopg,
    AsyncSqlalchemy,
    AsyncSqlalchemySession,
    Awaited,
    Caller,
    Django,
    Psycopg,
    Sqlalchemy,
    SqlalchemyScoped,
    SqlalchemySession,
    Sqlite3,
    opened,
)
from tests.conformance.shop_kit import ALL, Shop, an_app, of, params

kind = shop_kit.kind
bare_kind = shop_kit.bare_kind
shop = shop_kit.shop
caller = shop_kit.caller


@pytest.mark.parametrize("bare_kind", params(*ALL), indirect=True)
async def test_a_connection_to_another_store_is_refused_and_stays_usable(
    bare_kind: tuple[str, type[Caller]], tmp_path
):
    url, of_kind = bare_kind
    app = outlast.App(f"sqlite:///{tmp_path / 'elsewhere.db'}")
    mail = app.task(name="mail")(lambda to: None)
    async with opened(of_kind, url) as caller:
        await caller.call(caller.begin)
        with pytest.raises(ConnectionMismatch, match="sees no Outlast schema"):
            await caller.enqueue(mail, "a")
        await caller.call(caller.execute, "CREATE TABLE orders (id INTEGER)")
        await caller.call(caller.commit)
        store = open_store(url)
        await store.open()
        await caller.call(caller.begin)
        with pytest.raises(ConnectionMismatch, match="another Outlast schema"):
            await caller.enqueue(mail, "a")
        await caller.call(caller.execute, "INSERT INTO orders VALUES (1)")
        await caller.call(caller.rollback)
        await store.close()
    await app.close()


@of(Sqlite3, Aiosqlite, Asyncpg, Psycopg, AsyncPsycopg, Sqlalchemy, AsyncSqlalchemy)
async def test_a_closed_connection_is_refused(shop: Shop, caller: Caller):
    await caller.call(caller.shut)
    with pytest.raises(ConnectionMismatch, match="connection is closed: open another"):
        await caller.enqueue(shop.mail, "a")


@of(Aiosqlite, Asyncpg, AsyncPsycopg, AsyncSqlalchemy, AsyncSqlalchemySession)
async def test_plain_code_cannot_use_an_asynchronous_connection(shop: Shop, caller: Caller):
    assert isinstance(caller, Awaited)
    mail = shop.mail.using(connection=caller.connection)
    with pytest.raises(UsageError, match="needs its event loop: await the call instead"):
        await asyncio.to_thread(mail.enqueue_sync, "a")


@of(Psycopg, Sqlalchemy, SqlalchemySession)
async def test_a_coroutine_may_use_a_plain_connection(shop: Shop):
    caller = shop.kind(shop.url)
    caller.open()
    await shop.mail.using(connection=caller.connection).enqueue("a")
    caller.commit()
    caller.close()
    assert await shop.jobs() == ['{"to":"a"}']


@of(Django)
async def test_a_coroutine_cannot_use_a_connection_of_django(shop: Shop, caller: Caller):
    with pytest.raises(UsageError, match="sync_to_async"):
        await shop.mail.using(connection=caller.connection).enqueue("a")


@of(AsyncSqlalchemy, AsyncSqlalchemySession)
async def test_what_run_sync_hands_out_is_refused(shop: Shop, caller: Caller):
    inner: list[Any] = []
    await caller.connection.run_sync(inner.append)
    with pytest.raises(UsageError, match="AsyncConnection or AsyncSession itself"):
        await shop.mail.using(connection=inner[0]).enqueue("a")


async def test_a_scoped_session_is_the_one_of_this_thread(pg_url: str):
    app = an_app(pg_url)
    await app.tasks["mail"].enqueue("first")
    async with opened(SqlalchemyScoped, pg_url) as caller:
        job = await caller.enqueue(app.tasks["mail"], "a")
        with pytest.raises(JobNotFound):
            await app.get(job.id)
        await caller.call(caller.commit)
    assert (await app.get(job.id)).id == job.id
    await app.close()


async def test_an_unknown_sqlalchemy_driver_is_refused_with_the_known_ones(sqlite_url: str):
    engine = sqlalchemy.create_mock_engine("mysql+pymysql://", lambda *_: None)
    odd = sqlalchemy.orm.Session(engine)  # type: ignore[arg-type]
    with pytest.raises(ConnectionMismatch, match=r"mysql\+pymysql.*postgresql\+psycopg"):
        await an_app(sqlite_url).tasks["mail"].using(connection=odd).enqueue("a")


async def test_a_session_without_an_engine_is_refused_with_a_hint(sqlite_url: str):
    app = an_app(sqlite_url)
    with pytest.raises(ConnectionMismatch, match="bind_arguments"):
        await app.tasks["mail"].using(connection=sqlalchemy.orm.Session()).enqueue("a")
    await app.close()


async def test_a_transaction_that_read_first_is_refused_with_a_hint(sqlite_url: str):
    app = an_app(sqlite_url)
    await app.tasks["mail"].enqueue("first")
    path = sqlite_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as mine:
        mine.execute("BEGIN")
        mine.execute("SELECT count(*) FROM outlast_jobs").fetchone()
        await app.tasks["mail"].enqueue("meanwhile")
        with pytest.raises(StoreUnavailable, match="BEGIN IMMEDIATE"):
            await app.tasks["mail"].using(connection=mine).enqueue("a")
    await app.close()
