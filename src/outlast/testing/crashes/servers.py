"""Observe connections to PostgreSQL, so that each commit is a point: those of psycopg and asyncpg,
and what is made of them: SQLAlchemy, Django, pools."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from importlib import import_module
from typing import Any

from outlast.testing.crashes.databases import Statements

_ASYNCPG = ("execute", "executemany", "fetch", "fetchrow", "fetchval", "prepare")


class Servers:
    """The connections of this process."""

    def __init__(self) -> None:
        self._all: weakref.WeakKeyDictionary[Any, Statements] = weakref.WeakKeyDictionary()

    def statements(self, connection: Any, name: Callable[[], str]) -> Statements:
        """Return what a connection has executed. ``name``: of its database."""
        if connection not in self._all:
            self._all[connection] = Statements(name())
        return self._all[connection]

    def release(self) -> None:
        """Close connections with an open transaction, as the end of a process does."""
        for connection in list(self._all):
            with suppress(Exception):
                if not hasattr(connection, "pgconn"):
                    if connection.is_in_transaction():
                        connection.terminate()
                elif connection.pgconn.transaction_status:
                    connection.pgconn.finish()


def observe() -> Servers:
    """Observe all connections of this process from now on."""
    servers = Servers()
    with suppress(ImportError):
        _observe_psycopg(servers)
    with suppress(ImportError):
        _observe_asyncpg(servers, import_module("asyncpg").Connection)
    return servers


def _observe_psycopg(servers: Servers) -> None:
    base = import_module("psycopg.connection").BaseConnection
    cursors = import_module("psycopg.cursor").BaseCursor
    command, execute = base._exec_command, cursors._execute_gen  # noqa: SLF001
    many = cursors._executemany_gen_pipeline  # noqa: SLF001

    def statements(connection: Any) -> Statements:
        return servers.statements(connection, lambda: connection.info.dbname)

    def exec_command(self: Any, sent: Any, *args: Any, **named: Any) -> Any:
        if sent == b"COMMIT":  # of commit(), and of the blocks of both libraries
            statements(self).reach()
        return command(self, sent, *args, **named)

    def execute_gen(self: Any, query: Any, *args: Any, **named: Any) -> Any:
        connection = self._conn
        is_open = connection.pgconn.transaction_status != 0  # it is not idle
        text = _text_of(query, connection)
        statements(connection).before(text, is_open=is_open, at_once=connection.autocommit)
        return execute(self, query, *args, **named)

    def executemany(self: Any, query: Any, *args: Any) -> Any:
        statements(self._conn).note(_text_of(query, self._conn))
        return many(self, query, *args)

    base._exec_command = exec_command  # noqa: SLF001
    cursors._execute_gen = execute_gen  # noqa: SLF001
    cursors._executemany_gen_pipeline = executemany  # noqa: SLF001


def _text_of(query: Any, connection: Any) -> str:
    if isinstance(query, bytes):
        return query.decode("utf-8", "replace")
    return str(query.as_string(connection)) if hasattr(query, "as_string") else str(query)


def _observe_asyncpg(servers: Servers, kind: Any) -> None:
    def reaching(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        async def call(self: Any, query: str, *args: Any, **named: Any) -> Any:
            own = servers.statements(self, lambda: self._params.database)
            own.before(query, is_open=self.is_in_transaction(), at_once=True)
            return await method(self, query, *args, **named)

        return call

    for name in _ASYNCPG:
        setattr(kind, name, reaching(getattr(kind, name)))
