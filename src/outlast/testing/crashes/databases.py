"""Observe the connections of a task to SQLite, so that each commit is a point."""

from __future__ import annotations

import os
import re
import sqlite3
import sqlite3.dbapi2 as sqlite3_dbapi2
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import unquote

from outlast.testing.crashes.recorder import NOWHERE, find_line, here, is_ours

Connect = Callable[..., sqlite3.Connection]
REAL_CONNECT: Connect = sqlite3.connect
REAL_EXECUTE = sqlite3.Connection.execute
_WRITES = re.compile(
    r"""\b(?:INSERT\s+(?:OR\s+\w+\s+)?INTO|REPLACE\s+INTO|UPDATE(?:\s+OR\s+\w+)?|DELETE\s+FROM)
    \s+(?:["'`\[]?\w+["'`\]]?\.)?["'`\[]?(\w+)""",
    re.IGNORECASE | re.VERBOSE,
)
_SCHEMA = re.compile(r"\s*(?:CREATE|DROP|ALTER)\b", re.IGNORECASE)
_CHECK_SAME_THREAD = 4  # its place among the arguments after the path
_COMMITS = re.compile(r"\s*(?:COMMIT|END)\b", re.IGNORECASE)


def name_rows(table: str, database: str) -> str:
    """Return how the report names the rows of a table."""
    return f"rows of {table} in {database}"


class Statements:
    """What a connection has executed, so that its commits are points with the tables written.
    ``shown``: the name of the database in the report; "": its commits are no points."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.written = NOWHERE  # tables of the transaction -> line

    def note(self, sql: str) -> bool:
        """Note which tables a statement writes; return whether it writes."""
        tables = _WRITES.findall(sql)
        if own := [each for each in tables if not each.startswith("outlast_")]:
            self.written = {**self.written, **dict.fromkeys(own, find_line())}
        return bool(tables or _SCHEMA.match(sql))

    def before(self, sql: str, *, is_open: bool, at_once: bool) -> None:
        """Note a statement, which is a point if it commits: a COMMIT in an open transaction, or a
        write outside one, if such a write commits ``at_once``."""
        writes = self.note(sql)
        if _COMMITS.match(sql) if is_open else writes and at_once:
            self.reach()

    def reach(self) -> None:
        """Come to a commit."""
        written, self.written = self.written, NOWHERE
        if self.shown:
            tables = f" ({', '.join(sorted(written))})" if written else ""
            lines = {name_rows(table, self.shown): line for table, line in written.items()}
            here().reach("commit", f"commit {self.shown}{tables}", lines=lines)


class Databases:
    """The connections to SQLite of this process. ``name_of`` returns the name of a file in the
    report; ``store``: the file of the store."""

    def __init__(self, name_of: Callable[[str], str], store: Callable[[], Path]) -> None:
        self._name_of = name_of
        self._store = store
        self._all: weakref.WeakSet[sqlite3.Connection] = weakref.WeakSet()
        self._on_store: weakref.WeakSet[sqlite3.Connection] = weakref.WeakSet()

    def observe(self) -> None:
        """Observe connections of this process from now on."""
        sqlite3.connect = sqlite3_dbapi2.connect = self._connect  # type: ignore[assignment]

    def _connect(self, database: Any, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        """Connect as ``sqlite3.connect``, and observe it, unless Outlast itself calls."""
        path = "" if is_ours() else _path_of(database, uri=bool(kwargs.get("uri")))
        if not path:
            return REAL_CONNECT(database, *args, **kwargs)
        if len(args) < _CHECK_SAME_THREAD:
            kwargs["check_same_thread"] = False  # for ``release``
        given = kwargs.pop("factory", sqlite3.Connection)
        connection: Any = REAL_CONNECT(database, *args, factory=recorded(given), **kwargs)
        connection.statements = Statements(self._name_of(path))
        REAL_EXECUTE(connection, "PRAGMA synchronous = OFF")  # no run has to survive a power cut
        self._all.add(connection)
        if Path(path).resolve() == self._store():
            self._on_store.add(connection)
        return connection  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close what the task has left open: its files are gone after the run."""
        for connection in list(self._all):
            connection.close()

    def release(self) -> None:
        """Roll back what is open, as the death of a process does."""
        for connection in list(self._all):
            with suppress(sqlite3.Error):
                connection.rollback()

    def locks_store(self) -> bool:
        """Whether the user's code has a transaction on the store."""
        return any(_is_open(each) for each in list(self._on_store))


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        return connection.in_transaction
    except sqlite3.ProgrammingError:  # it is closed
        return False


def _path_of(database: Any, *, uri: bool) -> str:
    """Return the path that is named, "" for memory."""
    name = os.fsdecode(database)
    if not uri or not name.startswith("file:"):
        return "" if name == ":memory:" else name
    path, _, query = name.removeprefix("file:").partition("?")
    in_memory = "mode=memory" in query or path == ":memory:"
    return "" if in_memory else unquote(path.removeprefix("//"))


@cache
def recorded(base: type[sqlite3.Connection]) -> type[sqlite3.Connection]:
    """Return a class of connections whose commits are points, based on that of the user."""

    class Recorded(base):  # type: ignore[misc, valid-type]
        statements: Statements  # set where it is made

        def cursor(self, factory: Any = sqlite3.Cursor) -> Any:
            return super().cursor(_cursors(factory))

        def execute(self, sql: str, *values: Any) -> Any:
            return self.cursor().execute(sql, *values)

        def executemany(self, sql: str, *values: Any) -> Any:
            return self.cursor().executemany(sql, *values)

        def executescript(self, script: str) -> Any:
            return self.cursor().executescript(script)

        def commit(self) -> None:
            if self.in_transaction:
                self.statements.reach()
            super().commit()

        def rollback(self) -> None:
            self.statements.written = NOWHERE
            super().rollback()

        def __exit__(
            self,
            kind: type[BaseException] | None,
            value: BaseException | None,
            trace: TracebackType | None,
        ) -> Any:
            if kind is None and self.in_transaction:
                try:
                    self.statements.reach()
                except BaseException:
                    super().rollback()
                    raise
            return super().__exit__(kind, value, trace)

    return Recorded


@cache
def _cursors(base: type[sqlite3.Cursor]) -> type[sqlite3.Cursor]:
    class RecordedCursor(base):  # type: ignore[misc, valid-type]
        def execute(self, sql: str, *values: Any) -> Any:
            self._before(sql)
            return super().execute(sql, *values)

        def executemany(self, sql: str, *values: Any) -> Any:
            self._before(sql)
            return super().executemany(sql, *values)

        def executescript(self, script: str) -> Any:
            connection: Any = self.connection
            connection.statements.note(script)
            connection.statements.reach()
            return super().executescript(script)

        def _before(self, sql: str) -> None:
            connection: Any = self.connection
            at_once = connection.isolation_level is None or _SCHEMA.match(sql)
            connection.statements.before(
                sql, is_open=connection.in_transaction, at_once=bool(at_once)
            )

    return RecordedCursor
