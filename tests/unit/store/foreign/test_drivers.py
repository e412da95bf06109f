"""Behaviour of single kinds of the caller's connections.

Common behaviour is tested in tests/conformance/test_connections.py.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading

import asyncpg
import pytest

from outlast.errors import ConnectionMismatch, UsageError
from outlast.store.foreign import pyformat
from tests.conformance.shop_kit import an_app

# --------------------------------------------------------------------------------- sqlite3


@pytest.fixture
def lite(sqlite_url):
    """An application, and a separate connection to its file."""
    app = an_app(sqlite_url)
    app.tasks["mail"].enqueue_sync("first")
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    yield app, connection
    connection.close()
    app.close_sync()


def test_calls_on_different_connections_are_refused(lite):
    app, connection = lite
    mail = app.tasks["mail"]
    with pytest.raises(UsageError, match="same connection"):
        app.enqueue_many_sync([mail.using(connection=connection).call("a"), mail.call("b")])


@pytest.mark.parametrize(
    "connection", [5, "postgresql://", threading.Lock()], ids=["int", "url", "lock"]
)
def test_an_unknown_kind_of_connection_names_the_known_ones(lite, connection):
    app, _ = lite
    with pytest.raises(
        ConnectionMismatch, match=r"sqlite3.*asyncpg.*psycopg 3.*SQLAlchemy.*Django"
    ):
        app.tasks["mail"].using(connection=connection).enqueue_sync("a")


LOADED = """
import sys, outlast
from outlast.store.foreign import open_driver
try:
    open_driver(object())
except outlast.OutlastError:
    print(sorted({"asyncpg", "psycopg", "sqlalchemy", "django", "aiosqlite"} & set(sys.modules)))
"""


def test_no_library_of_connections_is_loaded_to_tell_them_apart():
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, check=True)
    assert done.stdout == b"[]\n"


def test_a_statement_for_psycopg_keeps_its_percent_signs_and_may_name_a_value_twice():
    assert pyformat("SELECT '5 %', $2, $10, $2", range(10)) == (
        "SELECT '5 %%', %(p2)s, %(p10)s, %(p2)s",
        {f"p{place}": place - 1 for place in range(1, 11)},
    )


# --------------------------------------------------------------------------------- asyncpg


@pytest.fixture
async def pg(pg_url):
    """An application, and a separate pool to its database."""
    app = an_app(pg_url)
    await app.tasks["mail"].enqueue("first")
    async with asyncpg.create_pool(pg_url, min_size=1, max_size=2) as pool:
        await pool.execute("CREATE TABLE orders (id integer)")
        yield app, pool
    await app.close()


async def jobs_seen(pool: asyncpg.Pool) -> int:
    count: int = await pool.fetchval("SELECT count(*) FROM outlast_jobs")
    return count


async def test_the_schema_is_asked_for_once_per_connection(pg, monkeypatch):
    app, pool = pg
    async with pool.acquire() as connection:
        mail = app.tasks["mail"].using(connection=connection)
        await mail.enqueue("a")
        monkeypatch.setattr("outlast.store.postgres.foreign._store_id", None)
        await mail.enqueue("b")
    async with pool.acquire() as again:
        await app.tasks["mail"].using(connection=again).enqueue("c")
    assert await jobs_seen(pool) == 4


async def test_a_connection_that_sees_no_schema_is_refused_and_stays_usable(pg):
    app, pool = pg
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL search_path = pg_temp")
        with pytest.raises(ConnectionMismatch, match="search_path"):
            await app.tasks["mail"].using(connection=connection).enqueue("a")
        assert await connection.fetchval("SELECT 1") == 1


async def test_a_connection_that_was_given_back_is_refused(pg):
    app, pool = pg
    async with pool.acquire() as connection:
        pass
    with pytest.raises(ConnectionMismatch, match="given back"):
        await app.tasks["mail"].using(connection=connection).enqueue("a")
