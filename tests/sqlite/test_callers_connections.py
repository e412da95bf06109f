"""Connections to SQLite in each mode of autocommit that ``sqlite3`` has."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.client.attempt import Attempt
from outlast.errors import BadData, ConnectionMismatch, LostLease, StoreUnavailable, UsageError
from outlast.model.job import State
from outlast.store.sqlite.store import SqliteStore
from outlast.store.values import NewJob
from tests.conformance.kit import Hands, on
from tests.conformance.shop_kit import Link, an_app

since_312 = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="sqlite3 has autocommit= since Python 3.12"
)
AT_ONCE: dict[str, Any] = {"autocommit": True}
NEVER: dict[str, Any] = {"autocommit": False}
OLD: dict[str, Any] = {"isolation_level": None}
DONE = {("default", State.COMPLETED): 1, ("default", State.QUEUED): 1}


@pytest.fixture
async def app(sqlite_url: str) -> AsyncIterator[outlast.App]:
    app = an_app(sqlite_url)
    yield app
    await app.close()


@pytest.fixture
def path(store: SqliteStore) -> Path:
    return store.path


@contextlib.contextmanager
def connected(path: Path, mode: dict[str, Any]) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, check_same_thread=False, **mode)) as connection:
        yield connection


async def attempt_of(app: outlast.App, store: SqliteStore) -> Attempt:
    await app.tasks["mail"].enqueue("first")
    hands = await Hands.on(store, tasks=["mail"])
    (claimed,) = await hands.claim(1, tasks=["mail"])
    return Attempt(Link(await store.store_id()), claimed)  # type: ignore[arg-type]


async def test_a_connection_to_a_copy_of_the_file_is_refused_and_stays_usable(
    app: outlast.App, path: Path, tmp_path: Path
):
    """It has the same id, and no worker of this store."""
    await app.tasks["mail"].enqueue("first")
    copy, other = tmp_path / "copy.db", tmp_path / "other-name.db"
    with connected(path, {}) as mine:
        mine.execute("VACUUM INTO ?", [str(copy)])
    with connected(copy, {}) as mine:
        mine.execute("CREATE TABLE mine AS SELECT 1")
        for _ in range(2):
            with pytest.raises(ConnectionMismatch, match="another Outlast schema"):
                await app.tasks["mail"].using(connection=mine).enqueue("a")
        mine.commit()
    other.symlink_to(path)
    with connected(other, {}) as mine:
        assert (await app.tasks["mail"].using(connection=mine).enqueue("a")).created


@since_312
@pytest.mark.parametrize("isolation_level", ["DEFERRED", None])
async def test_a_connection_that_is_always_in_a_transaction_waits_for_the_commit(
    app: outlast.App, store: SqliteStore, path: Path, isolation_level: str | None
) -> None:
    attempt = await attempt_of(app, store)
    with connected(path, {**NEVER, "isolation_level": isolation_level}) as mine:
        mail = app.tasks["mail"].using(connection=mine)
        for end in (mine.rollback, mine.commit):
            await asyncio.to_thread(mail.enqueue_sync, "again")
            await asyncio.to_thread(attempt.complete_in_sync, mine)
            assert await store.inspector.counts() == {("default", State.RUNNING): 1}
            end()
        assert await store.inspector.counts() == DONE
        with pytest.raises(LostLease):
            await asyncio.to_thread(attempt.complete_in_sync, mine)
        mine.rollback()


@since_312
async def test_a_connection_that_commits_at_once_takes_jobs_and_completes_in_a_transaction(
    app: outlast.App, store: SqliteStore, path: Path
) -> None:
    attempt = await attempt_of(app, store)
    with connected(path, AT_ONCE) as mine:
        with pytest.raises(UsageError, match="complete_in needs an open transaction: BEGIN"):
            await asyncio.to_thread(attempt.complete_in_sync, mine)
        await asyncio.to_thread(app.tasks["mail"].using(connection=mine).enqueue_sync, "again")
        assert not mine.in_transaction
        mine.execute("BEGIN IMMEDIATE")
        await asyncio.to_thread(attempt.complete_in_sync, mine)
        mine.execute("COMMIT")
    assert await store.inspector.counts() == DONE


@pytest.mark.parametrize("mode", [OLD, pytest.param(AT_ONCE, marks=since_312)], ids=["old", "new"])
async def test_a_connection_that_commits_each_statement_stores_all_jobs_of_a_call_or_none(
    store: SqliteStore, path: Path, mode: dict[str, Any]
) -> None:
    with connected(path, mode) as mine:
        jobs = [NewJob(task="one"), NewJob(task="two", args='"a NUL: \0"')]
        with pytest.raises(BadData):
            await on(mine).enqueue(jobs)
        assert not mine.in_transaction
        assert await store.inspector.counts() == {}
        assert len(await on(mine).enqueue([NewJob(task="one"), NewJob(task="two")])) == 2
        assert not mine.in_transaction
    assert await store.inspector.counts() == {("default", State.QUEUED): 2}


@pytest.mark.parametrize("mode", [OLD, pytest.param(AT_ONCE, marks=since_312)], ids=["old", "new"])
async def test_between_the_statements_of_such_a_call_no_other_connection_writes(
    app: outlast.App, store: SqliteStore, path: Path, mode: dict[str, Any]
) -> None:
    """Otherwise it could take a key that was free when it was looked for."""
    with connected(path, mode) as mine, connected(path, {**OLD, "timeout": 0.0}) as other:
        refused: list[str] = []

        def write(statement: str) -> None:
            try:
                other.execute("UPDATE outlast_sequences SET value = value + 1")
            except sqlite3.OperationalError as error:
                refused.append(f"{error}: {statement}")

        mine.set_trace_callback(write)
        await on(mine).enqueue([NewJob(task="t", key="k"), NewJob(task="t")])
        mine.set_trace_callback(None)
    assert len(refused) >= 3, "each statement between BEGIN and COMMIT"
    assert all("locked" in each for each in refused)
    assert await store.inspector.counts() == {("default", State.QUEUED): 2}


def test_the_first_call_of_all_inside_a_transaction_says_what_to_do_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new.db"
    app = an_app(f"sqlite:///{path}")
    impatient = partialmethod(SqliteStore.__init__, busy_timeout=0.05)
    monkeypatch.setattr(SqliteStore, "__init__", impatient)
    send = app.tasks["mail"]
    with connected(path, OLD) as mine:
        mine.execute("BEGIN IMMEDIATE")
        mine.execute("CREATE TABLE orders (id)")
        with pytest.raises(StoreUnavailable, match="run `outlast migrate` or `async with app:`"):
            send.using(connection=mine).enqueue_sync("ann")
        mine.execute("COMMIT")
        assert asyncio.run(app.stores.ask(lambda store: store.store_id()))  # makes the tables
        mine.execute("BEGIN IMMEDIATE")
        job = send.using(connection=mine).enqueue_sync("ann")
        mine.execute("COMMIT")
    assert job.created
    app.close_sync()


async def test_a_connection_that_distrusts_schemas_is_not_taken_for_a_damaged_file(
    app: outlast.App, path: Path
) -> None:
    await app.tasks["mail"].enqueue("first")
    with connected(path, {}) as mine:
        mine.execute("PRAGMA trusted_schema = OFF")
        with pytest.raises(ConnectionMismatch, match="PRAGMA trusted_schema = ON"):
            await asyncio.to_thread(app.tasks["mail"].using(connection=mine).enqueue_sync, "again")
