"""A store on a file, its lock file, and another program that holds the write lock."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.stores import held_open
from outlast.store import lockfile
from outlast.store.backend import file_of
from outlast.store.lockfile import LockFile
from outlast.store.sqlite.store import SqliteStore
from tests.conformance.kit import Hands


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqliteStore]:
    async with held_open(SqliteStore(url, busy_timeout=0.2)) as store:
        yield store


@pytest.fixture
def lock(url: str) -> Iterator[LockFile]:
    lock = LockFile.create(lockfile.directory_for(file_of(url)), "w1")
    yield lock
    lock.release()


@pytest.fixture
def foreign(path: Path, store: SqliteStore) -> Iterator[sqlite3.Connection]:
    """Another program that holds the write lock."""
    assert store.created_file
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


async def registered(store: SqliteStore, lock: LockFile, **terms: Any) -> Hands:
    return await Hands.on(
        store,
        boot_id=lockfile.boot_id(),
        lock_path=str(lock.path),
        lock_device=lock.device,
        lock_inode=lock.inode,
        **terms,
    )
