"""Uses callers' own connections to PostgreSQL: asyncpg, psycopg 3, and engines of SQLAlchemy."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any

from outlast.base.clock import Clock
from outlast.errors import ConnectionMismatch
from outlast.store.backend import Callers
from outlast.store.foreign import (
    Driver,
    is_of,
    need_loop,
    pyformat,
    refuse_closed,
    refuse_other_loop,
)
from outlast.store.protocol import ForeignDriver
from outlast.store.schedules import Deleted, NewSchedule, Put
from outlast.store.values import Enqueued, NamedStep, NewEvent, NewJob, StepFound

_store_ids: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


class _Asyncpg(Driver):
    begin = "`async with connection.transaction():`"

    def __init__(self, connection: Any) -> None:
        need_loop("an asyncpg connection")
        super().__init__(_out_of_pool(connection))
        refuse_closed(self._connection.is_closed())
        refuse_other_loop(self._connection)

    async def in_transaction(self) -> bool:
        return bool(self._connection.is_in_transaction())

    async def fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        rows: Sequence[Any] = await self._connection.fetch(statement, *values)
        return rows


@cache
def _plain(cursor: type) -> Any:
    """Return a kind of cursor without the types that a program has registered."""
    psycopg = sys.modules["psycopg"]
    adapters = psycopg.adapt.AdaptersMap(types=psycopg.postgres.types)
    psycopg.postgres.register_default_adapters(adapters)
    return type("PlainCursor", (cursor,), {"adapters": adapters})


class _Psycopg(Driver):
    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        refuse_closed(connection.closed)

    async def in_transaction(self) -> bool:
        idle = sys.modules["psycopg"].pq.TransactionStatus.IDLE
        return not self._connection.autocommit or self._connection.info.transaction_status != idle

    async def fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        psycopg = sys.modules["psycopg"]
        rows_as = psycopg.rows.dict_row
        with _plain(psycopg.Cursor)(self._connection, row_factory=rows_as) as cursor:
            cursor.execute(*pyformat(statement, values))
            try:
                rows: Sequence[Any] = cursor.fetchall()
            except psycopg.ProgrammingError:
                if cursor.statusmessage is None:
                    raise
                return []  # it has none, which a pipeline shows no earlier
            return rows


class _AsyncPsycopg(_Psycopg):
    begin = "`async with connection.transaction():`"

    def __init__(self, connection: Any) -> None:
        need_loop("an AsyncConnection of psycopg")
        super().__init__(connection)

    async def fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        psycopg = sys.modules["psycopg"]
        rows_as = psycopg.rows.dict_row
        plain = _plain(psycopg.AsyncCursor)
        async with plain(self._connection, row_factory=rows_as) as cursor:
            await cursor.execute(*pyformat(statement, values))
            try:
                rows: Sequence[Any] = await cursor.fetchall()
            except psycopg.ProgrammingError:
                if cursor.statusmessage is None:
                    raise
                return []  # it has none, which a pipeline shows no earlier
            return rows


def _out_of_pool(connection: Any) -> Any:
    """Return asyncpg's connection under a pool's proxy; ConnectionMismatch if it was given back."""
    if not is_of(connection, "asyncpg.pool", "PoolConnectionProxy"):
        return connection
    held = connection._con  # noqa: SLF001  (the proxy has no public name for it)
    if held is None:
        raise ConnectionMismatch("the connection was given back to its pool")
    return held


def _refuse_bytes(session: Any) -> None:
    """Raise ConnectionMismatch if psycopg returns texts as bytes, because it cannot know their
    encoding. The encoding is that of the database, unless the connection names one."""
    if not is_of(session, "psycopg", "Connection") and not is_of(
        session, "psycopg", "AsyncConnection"
    ):
        return
    if session.info.parameter_status("client_encoding") == "SQL_ASCII":
        raise ConnectionMismatch(
            "the connection's client_encoding is SQL_ASCII, with which psycopg returns texts as"
            " bytes: connect with client_encoding='UTF8', or say SET client_encoding TO 'UTF8'"
        )


class _OnPostgres:
    """The verbs on a connection to PostgreSQL; without a transaction, each commits at once."""

    def __init__(self, driver: ForeignDriver, *, notify: bool, clock: Clock) -> None:
        from outlast.store.postgres import enqueue, store

        self._store = store
        self._forget_lanes = enqueue.forget_lanes
        self._driver = driver
        self._notify = notify
        self.begin = driver.begin
        self.in_transaction = driver.in_transaction

    async def store_id(self, *, refresh: bool = False) -> str | None:
        session = await self._driver.session()
        known = _store_ids.get(session)
        if known is None or refresh:
            _refuse_bytes(session)
            with self._driver.errors:
                known = await self._store.store_id_on(self._driver)
            self._forget_lanes(session)
            if known is not None:
                _store_ids[session] = known
        return known

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if any(job.after for job in jobs) and not await self.in_transaction():
            raise ConnectionMismatch(
                "jobs that wait for others are stored by several statements: open a transaction"
                f" first, with {self.begin}"
            )
        with self._driver.errors:
            return await self._store.enqueue_on(self._driver, jobs, notify=self._notify)

    async def put_schedules(self, schedules: Sequence[NewSchedule]) -> list[Put]:
        with self._driver.errors:
            return await self._store.put_on(self._driver, schedules)

    async def delete_schedule(self, name: str) -> Deleted:
        with self._driver.errors:
            return await self._store.delete_on(self._driver, name)

    async def complete(self, job_id: int, token: int, result: Any) -> bool:
        with self._driver.errors:
            return await self._store.complete_on(self._driver, job_id, token, result)

    async def find_step(self, step: NamedStep) -> StepFound:
        with self._driver.errors:
            return (await self._store.find_steps_on(self._driver, [step]))[0]

    async def keep_step(self, step: NamedStep) -> bool:
        with self._driver.errors:
            return await self._store.keep_step_on(self._driver, step)

    async def send_event(self, event: NewEvent) -> bool:
        with self._driver.errors:
            return await self._store.send_on(self._driver, event, notify=self._notify)


def _defers_commit(connection: Any) -> bool:
    return not connection.connection.dbapi_connection.autocommit


CALLERS = Callers(
    kinds="an asyncpg connection (also of a pool), a psycopg 3 Connection or AsyncConnection",
    drivers=(
        ("asyncpg", "Connection", _Asyncpg),
        ("asyncpg.pool", "PoolConnectionProxy", _Asyncpg),
        ("psycopg", "Connection", _Psycopg),
        ("psycopg", "AsyncConnection", _AsyncPsycopg),
    ),
    engines="postgresql+psycopg (version 3) or postgresql+asyncpg",
    engine_drivers=("asyncpg", "psycopg", "psycopg_async"),
    defers_commit=_defers_commit,
    connect=_OnPostgres,
)
