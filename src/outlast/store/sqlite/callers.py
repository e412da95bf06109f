"""Uses callers' own connections to SQLite: sqlite3, aiosqlite, and engines of SQLAlchemy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from outlast.base.clock import Clock
from outlast.store.backend import Callers
from outlast.store.foreign import Driver, need_loop, refuse_closed
from outlast.store.protocol import ForeignConnection, ForeignDriver

T = TypeVar("T")


class _Sqlite3(Driver):
    begin = "BEGIN IMMEDIATE, or a first write"

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        try:
            _ = connection.in_transaction
        except (sys.modules["sqlite3"].ProgrammingError, ValueError):  # ValueError: aiosqlite's
            refuse_closed(closed=True)

    async def in_transaction(self) -> bool:
        return bool(self._connection.in_transaction)

    async def run(self, use: Callable[[Any], T]) -> T:
        return use(sys.modules["sqlite3"].Cursor(self._connection))


class _Aiosqlite(_Sqlite3):
    def __init__(self, connection: Any) -> None:
        need_loop("an aiosqlite connection")
        super().__init__(connection)

    async def run(self, use: Callable[[Any], T]) -> T:
        raw = self._connection._conn  # noqa: SLF001  (there is no public way into its thread)
        there = self._connection._execute  # noqa: SLF001
        done: T = await there(lambda: use(sys.modules["sqlite3"].Cursor(raw)))
        return done


def _connect(
    driver: ForeignDriver, *, notify: bool, clock: Clock, file: Path | None = None
) -> ForeignConnection:
    from outlast.store.sqlite.foreign import OnSqlite

    return OnSqlite(driver, clock=clock, file=file)


async def _migrate(driver: ForeignDriver, clock: Clock) -> object:
    from outlast.store.sqlite.schema import migrate

    return await driver.run(lambda cursor: migrate(cursor, clock.wall()))


def _defers_commit(connection: Any) -> bool:
    from outlast.store.sqlite.foreign import defers_commit

    return defers_commit(connection.connection.driver_connection)


CALLERS = Callers(
    kinds="a sqlite3.Connection or an aiosqlite one",
    drivers=(("sqlite3", "Connection", _Sqlite3), ("aiosqlite", "Connection", _Aiosqlite)),
    engines="sqlite or sqlite+aiosqlite",
    engine_drivers=("pysqlite", "aiosqlite"),
    defers_commit=_defers_commit,
    connect=_connect,
    migrate=_migrate,
)
