"""What is true of every verb: when its session is ended, its file is busy, replaced or gone.

Each test goes through all verbs on one store, and names those that do otherwise.
"""

from __future__ import annotations

import contextlib
import inspect
import shutil
import sqlite3
from pathlib import Path

import psycopg
import pytest

from outlast.errors import StoreUnavailable
from outlast.store.inspector import Inspector
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import Store
from outlast.store.sqlite.store import SqliteStore
from outlast.store.values import Claimed
from tests.conformance.kit import Hands
from tests.conformance.verbs_kit import ALL, NO_TRIP_TO_A_FILE, READS, WRITES, Verb, all_of, holding

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
    return {name for name, _ in verbs if not name.startswith("_")}


async def answer_of(verb: Verb, hands: Hands, held: Claimed) -> str:
    """Return the error that a verb raises because its store is unavailable."""
    try:
        await verb(hands, held)
    except StoreUnavailable as error:
        return str(error)
    return "an answer"


@pytest.mark.slow
async def test_a_call_on_an_ended_session_is_unavailable_and_the_next_succeeds(pg_url: str) -> None:
    """The sessions end while the loop is blocked, so that the store cannot know of it before it
    calls; one that it knows of is not used (`test_hosts.py`)."""
    store = PostgresStore(pg_url)
    await store.open()
    hands, held = await holding(store)
    answered = []
    with psycopg.connect(pg_url, autocommit=True) as session:
        for name, verb in BY_A_SERVER.items():
            before = await all_of(store)
            session.execute(END_ALL)
            if await answer_of(verb, hands, held) == "an answer":
                answered.append(name)
            assert await all_of(store) == before, name
            await verb(hands, held)
    assert answered == []
    await store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


async def test_a_busy_file_can_be_read_and_refuses_writes(path: Path) -> None:
    store = SqliteStore(f"sqlite:///{path}", busy_timeout=0.1)
    await store.open()
    hands, held = await holding(store)
    before = await all_of(store)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for read in READS.values():
            await read(hands, held)
        told = {name: await answer_of(verb, hands, held) for name, verb in WRITES.items()}
        other.execute("ROLLBACK")
    locked = "stayed locked by another connection of this process"
    assert {name: said for name, said in told.items() if locked not in said} == {}
    assert await all_of(store) == before
    for verb in ALL.values():
        await verb(hands, held)
    await store.close()


async def test_a_long_read_of_another_program_blocks_no_verb(path: Path) -> None:
    store = SqliteStore(f"sqlite:///{path}", busy_timeout=0.1)
    await store.open()
    hands, held = await holding(store)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM outlast_jobs").fetchone()
        for write in WRITES.values():
            await write(hands, held)
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as third:
                third.execute("PRAGMA wal_checkpoint(PASSIVE)")
            await write(hands, held)
    await store.close()


async def test_no_verb_uses_a_file_that_was_replaced(path: Path, tmp_path: Path) -> None:
    store, other = SqliteStore(f"sqlite:///{path}"), SqliteStore(f"sqlite:///{tmp_path}/new.db")
    await store.open()
    await other.open()
    hands, held = await holding(store)
    await other.close()
    told = {}
    for name, verb in ALL.items():
        for beside in ("-wal", "-shm"):
            path.with_name(f"{path.name}{beside}").unlink()
        shutil.copy(tmp_path / "new.db", tmp_path / "copy.db")
        (tmp_path / "copy.db").replace(path)
        told[name] = await answer_of(verb, hands, held)
        await verb(hands, held)
    assert {name: said for name, said in told.items() if GONE not in said} == {}
    await store.close()
