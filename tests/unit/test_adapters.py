"""The caller's own connections: one transaction for their rows and ours, on both stores."""

from __future__ import annotations

import sqlite3
import threading

import asyncpg
import pytest

import outlast
from outlast.errors import ConnectionMismatch, UsageError
from outlast.store import adapters


def application(url: str) -> outlast.App:
    app = outlast.App(url)

    @app.task
    async def mail(to: str) -> int:
        return len(to)

    return app


def jobs_in(path: str) -> int:
    with sqlite3.connect(path) as connection:
        count: int = connection.execute("SELECT count(*) FROM outlast_jobs").fetchone()[0]
    connection.close()
    return count


# --------------------------------------------------------------------------------- sqlite3


@pytest.fixture
def lite(sqlite_url):
    """An application, and a connection of one's own to its file."""
    app = application(sqlite_url)
    app.tasks["mail"].enqueue_sync("first")
    path = sqlite_url.removeprefix("sqlite:///")
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE orders (id INTEGER)")
    yield app, path, connection
    connection.close()
    app.close_sync()


def test_a_job_is_stored_when_the_callers_sqlite_transaction_commits(lite):
    app, path, connection = lite
    connection.execute("INSERT INTO orders VALUES (1)")
    job = app.tasks["mail"].using(connection=connection).enqueue_sync("a")
    assert jobs_in(path) == 1
    connection.commit()
    assert jobs_in(path) == 2
    assert app.get_sync(job.id).row.args == '{"to":"a"}'


def test_a_job_is_gone_when_the_callers_sqlite_transaction_rolls_back(lite):
    app, path, connection = lite
    mail = app.tasks["mail"].using(connection=connection)
    connection.execute("INSERT INTO orders VALUES (1)")
    jobs = app.enqueue_many_sync([mail.call("a"), mail.call("b")])
    assert len(jobs) == 2
    connection.rollback()
    assert jobs_in(path) == 1


async def test_an_awaited_enqueue_uses_a_sqlite_connection_in_its_own_thread(sqlite_url):
    app = application(sqlite_url)
    await app.tasks["mail"].enqueue("first")
    path = sqlite_url.removeprefix("sqlite:///")
    connection = sqlite3.connect(path)
    await app.tasks["mail"].using(connection=connection).enqueue("a")
    connection.rollback()
    connection.close()
    assert jobs_in(path) == 1
    await app.close()


def test_calls_on_different_connections_are_refused(lite):
    app, _, connection = lite
    mail = app.tasks["mail"]
    with pytest.raises(UsageError, match="same connection"):
        app.enqueue_many_sync([mail.using(connection=connection).call("a"), mail.call("b")])


def test_a_connection_to_another_database_is_refused(lite, tmp_path):
    app, _, _ = lite
    mail = app.tasks["mail"]
    empty = sqlite3.connect(tmp_path / "empty.db")
    with pytest.raises(ConnectionMismatch, match="sees no Outlast schema"):
        mail.using(connection=empty).enqueue_sync("a")
    empty.close()
    other = application(f"sqlite:///{tmp_path / 'other.db'}")
    other.tasks["mail"].enqueue_sync("a")
    connection = sqlite3.connect(tmp_path / "other.db")
    with pytest.raises(ConnectionMismatch, match="another Outlast schema"):
        mail.using(connection=connection).enqueue_sync("a")
    connection.close()
    other.close_sync()


@pytest.mark.parametrize(
    "connection", [5, "postgresql://", threading.Lock()], ids=["int", "url", "lock"]
)
def test_an_unknown_kind_of_connection_names_the_known_ones(lite, connection):
    app, _, _ = lite
    with pytest.raises(ConnectionMismatch, match=r"asyncpg connection.*sqlite3\.Connection"):
        app.tasks["mail"].using(connection=connection).enqueue_sync("a")


# --------------------------------------------------------------------------------- asyncpg


@pytest.fixture
async def pg(pg_url):
    """An application, and a pool of one's own to its database."""
    app = application(pg_url)
    await app.tasks["mail"].enqueue("first")
    async with asyncpg.create_pool(pg_url, min_size=1, max_size=2) as pool:
        await pool.execute("CREATE TABLE orders (id integer)")
        yield app, pool
    await app.close()


async def jobs_seen(pool: asyncpg.Pool) -> int:
    count: int = await pool.fetchval("SELECT count(*) FROM outlast_jobs")
    return count


async def test_a_job_is_stored_when_the_callers_postgres_transaction_commits(pg):
    app, pool = pg
    async with pool.acquire() as connection:
        async with connection.transaction():
            await connection.execute("INSERT INTO orders VALUES (1)")
            job = await app.tasks["mail"].using(connection=connection).enqueue("a")
            assert await jobs_seen(pool) == 1
        assert await jobs_seen(pool) == 2
    assert (await app.get(job.id)).row.args == '{"to":"a"}'


async def test_a_job_is_gone_when_the_callers_postgres_transaction_rolls_back(pg):
    app, pool = pg
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await app.tasks["mail"].using(connection=connection).enqueue("a")
        await transaction.rollback()
    assert await jobs_seen(pool) == 1


async def test_the_schema_is_asked_for_once_per_connection(pg, monkeypatch):
    app, pool = pg
    async with pool.acquire() as connection:
        mail = app.tasks["mail"].using(connection=connection)
        await mail.enqueue("a")
        monkeypatch.setattr("outlast.store.postgres.store_id_on", None)
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


async def test_a_sqlite_connection_is_no_way_into_postgres(pg):
    app, _ = pg
    connection = sqlite3.connect(":memory:")
    with pytest.raises(ConnectionMismatch):
        await app.tasks["mail"].using(connection=connection).enqueue("a")
    connection.close()


async def test_transactions_are_told_apart_from_their_absence(pg):
    _, pool = pg
    async with pool.acquire() as connection:
        assert not adapters.in_transaction(connection)
        async with connection.transaction():
            assert adapters.in_transaction(connection)


async def test_without_its_loop_an_asyncpg_connection_is_refused(pg):
    app, pool = pg
    refused: list[BaseException] = []

    def plain(connection: object) -> None:
        try:
            app.tasks["mail"].using(connection=connection).enqueue_sync("a")
        except UsageError as error:
            refused.append(error)

    async with pool.acquire() as connection:
        thread = threading.Thread(target=plain, args=(connection,))
        thread.start()
        while thread.is_alive():
            await pool.fetchval("SELECT 1")
    assert "needs its event loop" in str(refused[0])
