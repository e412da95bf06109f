"""Connect the code of a task to copies of its PostgreSQL databases, so that each commit is a point.

A database that the task connects to in the run without a crash is copied, once, by CREATE DATABASE
… TEMPLATE, and each run gets a copy of that copy. asyncpg and psycopg are known by their modules,
if the task's program has imported them; SQLAlchemy, Django and pools connect through these.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache, wraps
from importlib import import_module
from typing import Any, NamedTuple
from unittest import mock

from outlast.errors import text_of
from outlast.testing.crashes.databases import Statements
from outlast.testing.crashes.end_state import ROWS_MAX, Table
from outlast.testing.crashes.recorder import Recorder, beyond, is_ours

_TABLES = """
SELECT table_schema, table_name, array_agg(column_name::text ORDER BY ordinal_position)
FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')
    AND table_name NOT LIKE 'outlast\\_%' GROUP BY 1, 2
"""
_END_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND state LIKE 'idle in transaction%'
"""


class Source(NamedTuple):
    """How a database was first connected to. ``driver``: the module's name."""

    driver: str
    args: tuple[Any, ...]
    named: dict[str, Any]

    def ask(self, sql: str, database: str | None = None) -> list[Any]:
        """Return the rows of a statement, on a connection of its own to this database, or to
        another one of its server, outside a transaction."""
        named = {name: value for name, value in self.named.items() if name != "loop"}
        if database is not None:
            named["dbname" if self.driver == "psycopg" else "database"] = database
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(_ASK[self.driver], self.args, named, sql).result()


def _ask_psycopg(args: tuple[Any, ...], named: dict[str, Any], sql: str) -> list[Any]:
    psycopg: Any = sys.modules["psycopg"]
    with closing(_REAL["psycopg"](psycopg.Connection, *args, **named)) as connection:
        connection.autocommit = True
        cursor = connection.cursor(row_factory=psycopg.rows.tuple_row).execute(sql)
        return list(cursor.fetchall()) if cursor.description else []


def _ask_asyncpg(args: tuple[Any, ...], named: dict[str, Any], sql: str) -> list[Any]:
    async def ask() -> list[Any]:
        connection = await _REAL["asyncpg"](*args, **named)
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    with beyond():
        return asyncio.run(ask())


_ASK = {"psycopg": _ask_psycopg, "asyncpg": _ask_asyncpg}
_REAL: dict[str, Callable[..., Any]] = {}  # their own ``connect``, while a run is under way


class Servers:
    """The databases of all runs. ``sources``: those of the first run, by their names; ``run``: the
    name of this process's runs; ``is_recorded``: whether the first run is over; ``copies``: whether
    the task may connect to any."""

    def __init__(self, prefix: str, *, copies: bool = True) -> None:
        self.sources: dict[str, Source] = {}
        self.run = "run"
        self.is_recorded = False
        self._prefix = prefix
        self._copies = copies
        self._names: dict[str, str] = {}  # what was given to connect -> the database
        self._refused: dict[str, BaseException] = {}  # databases that could not be copied
        self._placing = threading.Lock()

    def close(self) -> None:
        """Drop the copies of which those of the runs are made, and those of broken-off runs."""
        with _libraries(lambda *_: None):
            for source in self.sources.values():
                for (copy,) in source.ask("SELECT datname::text FROM pg_database"):
                    if copy.startswith(f"{self._prefix}_"):
                        self._drop(source, copy)

    @contextmanager
    def entered(self, recorder: Recorder) -> Iterator[None]:
        """Within the block, connections are to new copies; transactions that the code of an attempt
        leaves open end with it."""
        release = recorder.release

        def end_transactions() -> None:
            release()
            for name, source in self.sources.items():
                source.ask(_END_OTHERS, self._copy_of(name, self.run))

        with _libraries(lambda *given: self._place(recorder, *given)):
            recorder.release = end_transactions
            try:
                for name, source in self.sources.items():
                    self._copy(source, name)
                yield
            finally:
                for name, source in self.sources.items():
                    self._drop(source, self._copy_of(name, self.run))

    def read(self) -> dict[tuple[str, str], Table]:
        """Return the tables of the copies."""
        return {
            key: table
            for name, source in self.sources.items()
            for key, table in _read_tables(source, name, self._copy_of(name, self.run))
        }

    def _copy_of(self, name: str, run: str) -> str:
        return f"{self._prefix}_{run}_{[*self.sources].index(name)}"

    def _copy(self, source: Source, name: str) -> None:
        base, own = self._copy_of(name, "base"), self._copy_of(name, self.run)
        source.ask(f'CREATE DATABASE "{own}" TEMPLATE "{base}"')

    def _drop(self, source: Source, copy: str) -> None:
        source.ask(f'DROP DATABASE IF EXISTS "{copy}" WITH (FORCE)')

    def _place(self, recorder: Recorder, source: Source) -> tuple[Recorder, str, str] | None:
        """Return the name of a database and that of its copy, which is made at the first use. None:
        Outlast itself connects."""
        if is_ours():
            return None
        if not self._copies:
            recorder.refuse("the task connects to a database on a server: --real-effects lets it")
        try:
            with self._placing:
                name = self._find(source)
        except Exception as error:
            recorder.refuse(
                f"the task connects to a database that cannot be copied: {text_of(error)}. Its role"
                " needs CREATEDB, and no other session may use it meanwhile"
            )
        return recorder, name, self._copy_of(name, self.run)

    def _find(self, source: Source) -> str:
        given = repr(source)
        if given not in self._names:
            ((self._names[given],),) = source.ask("SELECT current_database()::text")
        name = self._names[given]
        if name not in self.sources:
            if self.is_recorded:
                raise LookupError(f"{name} is used only after a crash")
            if name in self._refused:  # the server itself waits five seconds each time
                raise self._refused[name]
            self.sources[name] = source
            try:
                base = self._copy_of(name, "base")
                source.ask(f'CREATE DATABASE "{base}" TEMPLATE "{name}"')
                self._copy(source, name)
            except BaseException as error:
                del self.sources[name]
                self._refused[name] = error
                raise
        return name


def _read_tables(source: Source, name: str, copy: str) -> Iterator[tuple[tuple[str, str], Table]]:
    for schema, table, columns in source.ask(_TABLES, copy):
        texts = ", ".join(f'"{each}"::text' for each in columns)
        rows = source.ask(f'SELECT {texts} FROM "{schema}"."{table}" LIMIT {ROWS_MAX}', copy)  # noqa: S608
        shown = table if schema == "public" else f"{schema}.{table}"
        yield (name, shown), Table(list(columns), rows)


# -- the libraries


Place = Callable[[Source], tuple[Recorder, str, str] | None]


@contextmanager
def _libraries(place: Place) -> Iterator[None]:
    """Within the block, connect where ``place`` says."""
    with ExitStack() as stack:
        with suppress(ImportError):  # Django imports it only as it connects
            psycopg = import_module("psycopg")
            for kind in (psycopg.AsyncConnection, psycopg.Connection):
                real = kind.connect.__func__
                ours = classmethod(_connecting_psycopg(real, place))
                stack.enter_context(mock.patch.object(kind, "connect", ours))
            _REAL["psycopg"] = real
            stack.enter_context(mock.patch.object(psycopg, "connect", psycopg.Connection.connect))
        with suppress(ImportError):
            asyncpg = import_module("asyncpg")
            real = _REAL["asyncpg"] = asyncpg.connect
            new = _connecting_asyncpg(real, place)
            for owner in (asyncpg, asyncpg.connection):
                stack.enter_context(mock.patch.object(owner, "connect", new))
        yield


def _connecting_psycopg(real: Callable[..., Any], place: Place) -> Callable[..., Any]:
    def connect(kind: Any, *args: Any, **named: Any) -> Any:
        placed = place(Source("psycopg", args, named))
        if placed is None:
            return real(kind, *args, **named)
        recorder, name, copy = placed
        made = real(_psycopg_connections(kind), *args, **{**named, "dbname": copy})
        show = _shown if hasattr(made, "send") else _show  # an asynchronous one is awaited
        return show(made, recorder, name)

    return connect


def _connecting_asyncpg(real: Callable[..., Any], place: Place) -> Callable[..., Any]:
    async def connect(*args: Any, **named: Any) -> Any:
        placed = place(Source("asyncpg", args, named))
        if placed is None:
            return await real(*args, **named)
        recorder, name, copy = placed
        kind = named.get("connection_class", sys.modules["asyncpg"].Connection)
        ours = {"database": copy, "connection_class": _asyncpg_connections(kind)}
        return await _shown(real(*args, **{**named, **ours}), recorder, name)

    return connect


def _show(connection: Any, recorder: Recorder, name: str) -> Any:
    connection.recorder, connection.shown = recorder, name
    return connection


async def _shown(connecting: Any, recorder: Recorder, name: str) -> Any:
    with beyond():
        return _show(await connecting, recorder, name)


@cache
def _psycopg_connections(base: Any) -> Any:
    """Return a class of connections, plain or async, whose commits are points."""

    class PsycopgConnection(Statements, base):  # type: ignore[misc]
        @property
        def cursor_factory(self) -> Any:
            return self._made

        @cursor_factory.setter
        def cursor_factory(self, factory: Any) -> None:  # as Django gives one
            self._made = _psycopg_cursors(factory)

        def _exec_command(self, command: Any, *args: Any, **named: Any) -> Any:
            if command == b"COMMIT":  # of commit(), and of the blocks of both libraries
                self.reach()
            return super()._exec_command(command, *args, **named)

    return PsycopgConnection


@cache
def _psycopg_cursors(base: Any) -> Any:
    class PsycopgCursor(base):  # type: ignore[misc]
        def _execute_gen(self, query: Any, *args: Any, **named: Any) -> Any:
            connection = self._conn
            text = query if isinstance(query, str) else _text_of(query, connection)
            is_open = connection.pgconn.transaction_status != 0  # it is not idle
            connection.before(text, is_open=is_open, at_once=connection.autocommit)
            return super()._execute_gen(query, *args, **named)

        def _executemany_gen_pipeline(self, query: Any, *args: Any) -> Any:
            self._conn.note(_text_of(query, self._conn))
            return super()._executemany_gen_pipeline(query, *args)

    return PsycopgCursor


def _text_of(query: Any, connection: Any) -> str:
    if isinstance(query, bytes):
        return query.decode("utf-8", "replace")
    return str(query.as_string(connection)) if hasattr(query, "as_string") else str(query)


_ASYNCPG = ("execute", "executemany", "fetch", "fetchrow", "fetchval", "prepare")


@cache
def _asyncpg_connections(base: Any) -> Any:
    """Return a class of connections whose commits are points."""

    def reaching(name: str) -> Callable[..., Any]:
        method = getattr(base, name)

        @wraps(method)
        async def call(self: Any, query: str, *args: Any, **named: Any) -> Any:
            self.before(query, is_open=self.is_in_transaction(), at_once=True)
            return await method(self, query, *args, **named)

        return call

    async def cancel(self: Any, *waiters: Any) -> None:
        with beyond():  # a statement is cancelled over a connection of its own
            await base._cancel(self, *waiters)  # noqa: SLF001

    methods = {name: reaching(name) for name in _ASYNCPG}
    return type("AsyncpgConnection", (Statements, base), {**methods, "_cancel": cancel})
