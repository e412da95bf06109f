"""Reads the environment of a SQLite store: its file, the disk under it, the library."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from contextlib import suppress
from pathlib import Path

from outlast.store.backend import StoreOptions
from outlast.store.environment import owner_unless_own
from outlast.store.lockfile import is_mounted_alone, refuses
from outlast.store.sqlite import library
from outlast.store.sqlite.checks import LASTING_SECONDS, SqliteFacts
from outlast.store.sqlite.connection import SqliteConnection
from outlast.store.sqlite.statements import statements
from outlast.store.sqlite.writer import describe_writer, find_writer

LOOKS = 10
_SQL = statements("environment")


async def environment(connection: SqliteConnection) -> SqliteFacts:
    """Changes nothing: a file that is not in WAL mode is left as it is."""
    path = connection.path
    mode = await _pragma(connection, "journal_mode")
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    sound = writable and mode == "wal"
    disk = os.statvfs(path.parent)
    open_to = _open_to(path)
    return SqliteFacts(
        version=sqlite3.sqlite_version,
        faults=library.check(),
        path=str(path),
        journal_mode=mode,
        synchronous=int(await _as_worker(path)) if sound else None,
        writable=writable,
        free_bytes=disk.f_bavail * disk.f_frsize,
        wal_bytes=_size(path.with_name(f"{path.name}-wal")),
        network=refuses(path),
        alone=is_mounted_alone(path),
        links=path.stat().st_nlink,
        open_to=open_to,
        owners={name: owner for name in open_to if (owner := owner_unless_own(name))},
        directory_mode=stat.S_IMODE(path.parent.stat().st_mode),
        writer=await _find_lasting_writer(path),
    )


async def _find_lasting_writer(path: Path) -> str | None:
    """Return who holds the write lock at each of some looks."""
    first = find_writer(path)
    for _ in range(LOOKS):
        if first is None:
            return None
        await asyncio.sleep(LASTING_SECONDS / LOOKS)
        first = first if find_writer(path) == first else None
    return describe_writer(path)


async def _as_worker(path: Path) -> str:
    """Return the durability of a worker's connection."""
    own = SqliteConnection(path, StoreOptions(busy_timeout=1.0))
    try:
        return await _pragma(own, "synchronous")
    finally:
        await own.close()


async def _pragma(connection: SqliteConnection, name: str) -> str:
    return str(await connection.read(lambda cursor, _: cursor.execute(_SQL[name]).fetchone()[0]))


def _open_to(path: Path) -> dict[str, int]:
    found = {}
    for end in ("", "-wal", "-shm", "-locks"):
        with suppress(OSError):
            own = path.with_name(path.name + end)
            mode = stat.S_IMODE(own.stat().st_mode)
            if mode & 0o077:
                found[str(own)] = mode
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
