"""The disk or memory under the SQLite store of one world, and its free space.

Most worlds have their database in memory (SQLite's own ``memdb``: the same locks and transactions,
without a system call); each tenth has a file in WAL mode, as in production. Where the disk is full,
SQLite itself says so, in the middle of the statement that needs another page.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

from outlast.store.sqlite import connection as sqlite_connection

PAGES_MAX = 1_073_741_823  # SQLite's own limit
_open_file = sqlite_connection._connected


class Disk:
    """The database of one world. ``connected`` stands in for the store's own way to open it."""

    def __init__(self, folder: Path, chance: Callable[[], float], *, file: bool) -> None:
        self.path = folder / "sim.db"
        self._name = None if file else f"file:/{folder.name}?vfs=memdb"
        self._open: list[sqlite3.Connection] = []
        self._pages_max = PAGES_MAX
        self._chance = chance  # 0 to 1

    def connected(self, path: Path, mode: str) -> sqlite3.Connection:
        """Open the database once more."""
        connection = _open_file(path, mode) if self._name is None else self._in_memory()
        self._open.append(connection)
        connection.create_function("random", 0, lambda: int(self._chance() * 4_294_967_296))
        if self._pages_max != PAGES_MAX:
            connection.execute(f"PRAGMA max_page_count = {self._pages_max}")
        return connection

    def copy(self) -> sqlite3.Connection:
        """Return all of it as it is now."""
        kept = sqlite3.connect(":memory:")
        with contextlib.closing(self.look()) as now:
            now.backup(kept)
        return kept

    def go_back_to(self, kept: sqlite3.Connection) -> None:
        """Restore that state."""
        with contextlib.closing(self.look()) as now:
            kept.backup(now)

    def raise_tokens(self, wall: float, step: float) -> None:
        """Let tokens jump, as ``outlast_raise_tokens_v1`` does; ``step``: 0 to 1."""
        sql = """UPDATE outlast_sequences
                 SET value = CASE WHEN :wall > value THEN :wall ELSE value + 1000000 + :step END
                 WHERE name = 'token'"""
        now_us = int(wall * 1_000_000)
        values = {"wall": now_us, "step": (now_us & 4_293_918_720) + int(step * 524_288)}
        with contextlib.closing(self.look()) as now:
            now.execute(sql, values)

    def look(self) -> sqlite3.Connection:
        """Return a connection that only reads, and never fails."""
        return (
            sqlite3.connect(str(self.path), isolation_level=None)
            if self._name is None
            else self._in_memory()
        )

    def _in_memory(self) -> sqlite3.Connection:
        assert self._name is not None
        return sqlite3.connect(
            self._name, uri=True, isolation_level=None, check_same_thread=False,
            cached_statements=256,
        )  # fmt: skip

    def fill(self) -> None:
        """Let the disk be full."""
        self._limit(1)  # SQLite makes that the present number of pages

    def free_space(self) -> None:
        """Free space again."""
        self._limit(PAGES_MAX)

    def _limit(self, pages: int) -> None:
        self._pages_max = pages
        for connection in list(self._open):
            try:
                connection.execute(f"PRAGMA max_page_count = {pages}")
            except sqlite3.ProgrammingError:  # closed meanwhile
                self._open.remove(connection)
