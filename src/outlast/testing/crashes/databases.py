"""Observe a task's connections to SQLite, so that each commit is a point."""

from __future__ import annotations

import os
import re
import sqlite3
import sqlite3.dbapi2 as sqlite3_dbapi2
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from outlast.testing.crashes.recorder import NOWHERE, find_line, here, is_ours

Connect = Callable[..., sqlite3.Connection]
REAL_CONNECT: Connect = sqlite3.connect
_WRITES = re.compile(
    r"""\b(?:INSERT\s+(?:OR\s+\w+\s+)?INTO|REPLACE\s+INTO|UPDATE(?:\s+OR\s+\w+)?|DELETE\s+FROM)
    \s+(?:["'`\[]?\w+["'`\]]?\.)?["'`\[]?(\w+)""",
    re.IGNORECASE | re.VERBOSE,
)
_SCHEMA = re.compile(r"\s*(?:CREATE|DROP|ALTER)\b", re.IGNORECASE)
_COMMITS = re.compile(r"\s*(?:COMMIT|END)\b", re.IGNORECASE)
_ROLLS_BACK = re.compile(r"\s*ROLLBACK\b(?!.*\bTO\b)", re.IGNORECASE)
_TEXT = re.compile(r"'[^']*'")


def name_rows(table: str, database: str) -> str:
    """Return how the report names the rows of a table."""
    return f"rows of {table} in {database}"


class Statements:
    """The tables that a connection has written, for the points of its commits. ``shown``: the name
    of the database in the report; "": its commits are not points."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.written = NOWHERE  # tables of the transaction -> line

    def note(self, sql: str) -> bool:
        """Note which tables a statement writes; return whether it writes."""
        tables = _WRITES.findall(_TEXT.sub("''", sql))
        own = {each for each in tables if not each.startswith("outlast_")}
        if not own <= self.written.keys():
            self.written = {**dict.fromkeys(own, find_line()), **self.written}
        return bool(tables or _SCHEMA.match(sql))

    def before(self, sql: str, *, is_open: bool, at_once: bool) -> None:
        """Note a statement that is about to run. It is a point if it commits: a COMMIT, or a write
        outside a transaction, where such a write commits ``at_once``."""
        if _ROLLS_BACK.match(sql):
            self.written = NOWHERE
        writes = self.note(sql)
        if _COMMITS.match(sql) if is_open else writes and at_once:
            self.reach()

    def reach(self) -> None:
        """Reach the point of a commit."""
        written, self.written = self.written, NOWHERE
        if self.shown:
            tables = f" ({', '.join(sorted(written))})" if written else ""
            lines = {name_rows(table, self.shown): line for table, line in written.items()}
            here().reach("commit", f"commit {self.shown}{tables}", lines=lines)


class Observed(sqlite3.Connection):
    """A connection that supports weak references."""


class Databases:
    """The connections to SQLite of this process. ``name_of`` names a file in the report; ``store``:
    the file of the store."""

    def __init__(self, name_of: Callable[[str], str], store: Callable[[], Path]) -> None:
        self._name_of = name_of
        self._store = store
        self._all: weakref.WeakSet[sqlite3.Connection] = weakref.WeakSet()
        self._on_store: weakref.WeakSet[sqlite3.Connection] = weakref.WeakSet()

    def observe(self) -> None:
        """Observe connections of this process from now on."""
        sqlite3.connect = sqlite3_dbapi2.connect = self._connect  # type: ignore[assignment]

    def _connect(self, database: Any, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        """Connect as ``sqlite3.connect`` does, and observe the connection unless it is Outlast's
        own."""
        path = "" if is_ours() else _path_of(database, uri=bool(kwargs.get("uri")))
        if not path:
            return REAL_CONNECT(database, *args, **kwargs)
        kwargs["check_same_thread"] = False  # for ``release``
        kwargs.setdefault("factory", Observed)
        connection = REAL_CONNECT(database, *args, **kwargs)
        connection.execute("PRAGMA synchronous = OFF")  # no run has to survive a power cut
        statements, known = Statements(self._name_of(path)), weakref.ref(connection)

        def see(sql: str) -> None:
            held = known()
            is_open = held is not None and held.in_transaction
            statements.before(sql, is_open=is_open, at_once=True)

        connection.set_trace_callback(see)  # SQLite calls it as each statement begins
        self._all.add(connection)
        if Path(path).resolve() == self._store():
            self._on_store.add(connection)
        return connection

    def close(self) -> None:
        """Close the connections that the task left open: their files are removed after the run."""
        for connection in list(self._all):
            connection.close()

    def release(self) -> None:
        """Roll back open transactions, as the death of the process would."""
        for connection in list(self._all):
            with suppress(sqlite3.Error):
                connection.rollback()

    def locks_store(self) -> bool:
        """Whether the user's code has a transaction on the store."""
        for connection in list(self._on_store):
            with suppress(sqlite3.ProgrammingError):  # it is closed
                if connection.in_transaction:
                    return True
        return False


def _path_of(database: Any, *, uri: bool) -> str:
    """Return the path of a database, "" for one in memory."""
    name = os.fsdecode(database)
    if not uri or not name.startswith("file:"):
        return "" if name == ":memory:" else name
    path, _, query = name.removeprefix("file:").partition("?")
    in_memory = "mode=memory" in query or path == ":memory:"
    return "" if in_memory else unquote(path.removeprefix("//"))
