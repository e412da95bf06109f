"""Uses callers' own connections to SQLite: sqlite3, aiosqlite, and engines of SQLAlchemy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from outlast.base.clock import Clock
from outlast.store.backend import Callers
from outlast.store.foreign import Driver, need_loop, refuse_closed
from outlast.store.protocol import ForeignDriver
from outlast.store.schedules import Deleted, NewSchedule, Put
from outlast.store.values import Enqueued, NamedStep, NewEvent, NewJob, StepFound

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


class _OnSqlite:
    """The verbs on a connection to SQLite; in autocommit mode, each commits at once."""

    def __init__(self, driver: ForeignDriver, *, notify: bool, clock: Clock) -> None:
        from outlast.store.sqlite import store

        self._store = store
        self._driver = driver
        self._clock = clock
        self.begin = driver.begin
        self.in_transaction = driver.in_transaction

    async def store_id(self, *, refresh: bool = False) -> str | None:
        """Read each time, since these connection objects cannot hold a note."""
        lock = await self._driver.in_transaction()
        return await self._driver.run(lambda cursor: self._store.store_id_on(cursor, lock=lock))

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        now = self._clock.wall()
        return await self._driver.run(lambda cursor: self._store.enqueue_on(cursor, jobs, now))

    async def put_schedules(self, schedules: Sequence[NewSchedule]) -> list[Put]:
        now = self._clock.wall()
        return await self._driver.run(lambda cursor: self._store.put_on(cursor, schedules, now))

    async def delete_schedule(self, name: str) -> Deleted:
        now = self._clock.wall()
        return await self._driver.run(lambda cursor: self._store.delete_on(cursor, name, now))

    async def complete(self, job_id: int, token: int, result: Any) -> bool:
        now = self._clock.wall()
        return await self._driver.run(
            lambda cursor: self._store.complete_on(cursor, job_id, token, result, now)
        )

    async def find_step(self, step: NamedStep) -> StepFound:
        return await self._driver.run(lambda cursor: self._store.find_on(cursor, step))

    async def keep_step(self, step: NamedStep) -> bool:
        now = self._clock.wall()
        return await self._driver.run(lambda cursor: self._store.keep_on(cursor, step, now))

    async def send_event(self, event: NewEvent) -> bool:
        now = self._clock.wall()
        return await self._driver.run(lambda cursor: self._store.send_on(cursor, event, now))


async def _migrate(driver: ForeignDriver, clock: Clock) -> object:
    from outlast.store.sqlite.schema import migrate

    return await driver.run(lambda cursor: migrate(cursor, clock.wall()))


def _defers_commit(connection: Any) -> bool:
    from outlast.store.sqlite.jobs import defers_commit

    return defers_commit(connection.connection.driver_connection)


CALLERS = Callers(
    kinds="a sqlite3.Connection or an aiosqlite one",
    drivers=(("sqlite3", "Connection", _Sqlite3), ("aiosqlite", "Connection", _Aiosqlite)),
    engines="sqlite or sqlite+aiosqlite",
    engine_drivers=("pysqlite", "aiosqlite"),
    defers_commit=_defers_commit,
    connect=_OnSqlite,
    migrate=_migrate,
)
