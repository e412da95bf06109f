"""What is true of every verb: when its session is ended, its file is busy, replaced or gone."""

from __future__ import annotations

import contextlib
import inspect
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from outlast.errors import StoreUnavailable
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import Inspector, Store
from outlast.store.sqlite.store import SqliteStore
from tests.conformance.verbs_kit import ALL, NO_TRIP_TO_A_FILE, READS, WRITES, all_of, holding

BY_A_SERVER = {**ALL, **NO_TRIP_TO_A_FILE}
GONE = "was deleted, or another file has taken its place"
END_ALL = """SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()"""


def test_the_kit_covers_every_verb() -> None:
    once = {"open", "close", "drop_connections", "migrate", "migrations", "grant"}
    here = {name.partition(" ")[0] for name in BY_A_SERVER}
    assert public(Store) - once - here == set()
    assert public(Inspector) - here == {"environment"}


def public(protocol: type) -> set[str]:
    verbs = inspect.getmembers(protocol, inspect.iscoroutinefunction)
    return {name for name, _ in verbs}


@pytest.mark.parametrize("verb", [*WRITES, *NO_TRIP_TO_A_FILE])
async def test_a_call_on_an_ended_session_is_unavailable_and_the_next_succeeds(
    verb: str, pg_url: str, session: Any
) -> None:
    store = PostgresStore(pg_url)
    await store.open()
    hands, held = await holding(store)
    before = await all_of(store)
    await session.execute(END_ALL)
    with pytest.raises(StoreUnavailable):
        await BY_A_SERVER[verb](hands, held)
    assert await all_of(store) == before
    await BY_A_SERVER[verb](hands, held)
    await store.close()


async def test_a_read_on_an_ended_session_is_unavailable_and_the_next_succeeds(
    pg_url: str, session: Any
) -> None:
    """All in one database: they change nothing."""
    store = PostgresStore(pg_url)
    await store.open()
    hands, held = await holding(store)
    before = await all_of(store)
    answered = []
    for name, read in READS.items():
        await session.execute(END_ALL)
        try:
            await read(hands, held)
            answered.append(name)
        except StoreUnavailable:
            await read(hands, held)
    assert answered == []
    assert await all_of(store) == before
    await store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.mark.parametrize("verb", ALL)
async def test_a_busy_file_can_be_read_and_refuses_writes(verb: str, path: Path) -> None:
    store = SqliteStore(f"sqlite:///{path}", busy_timeout=0.1)
    await store.open()
    hands, held = await holding(store)
    before = await all_of(store)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        if verb in READS:
            await ALL[verb](hands, held)
        else:
            with pytest.raises(StoreUnavailable, match="stayed locked by another program"):
                await ALL[verb](hands, held)
        other.execute("ROLLBACK")
    assert await all_of(store) == before
    await ALL[verb](hands, held)
    await store.close()


@pytest.mark.parametrize("verb", WRITES)
async def test_a_long_read_of_another_program_blocks_no_verb(verb: str, path: Path) -> None:
    store = SqliteStore(f"sqlite:///{path}", busy_timeout=0.1)
    await store.open()
    hands, held = await holding(store)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM outlast_jobs").fetchone()
        await WRITES[verb](hands, held)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as third:
            third.execute("PRAGMA wal_checkpoint(PASSIVE)")
        await WRITES[verb](hands, held)
    await store.close()


@pytest.mark.parametrize("verb", ALL)
async def test_no_verb_uses_a_file_that_was_replaced(verb: str, path: Path) -> None:
    store, other = SqliteStore(f"sqlite:///{path}"), SqliteStore(f"sqlite:///{path}.new")
    await store.open()
    await other.open()
    hands, held = await holding(store)
    await other.close()
    for beside in ("-wal", "-shm"):
        path.with_name(f"{path.name}{beside}").unlink()
    path.with_name(f"{path.name}.new").replace(path)
    with pytest.raises(StoreUnavailable, match=GONE):
        await ALL[verb](hands, held)
    await ALL[verb](hands, held)
    await store.close()
