"""Uses callers' own connections to PostgreSQL: asyncpg, psycopg 3, and engines of SQLAlchemy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

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
from outlast.store.protocol import ForeignConnection, ForeignDriver


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

    def _syncing(self) -> Any:
        """Return a block with a sync at its end where the statements of a pipeline in autocommit
        mode, which are one transaction up to that, would be lost with a later one."""
        mine = self._connection
        is_late = mine.autocommit and mine.pgconn.pipeline_status
        return mine.pipeline() if is_late else nullcontext()

    async def fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        psycopg = sys.modules["psycopg"]
        plain, rows_as = _plain(psycopg.Cursor), psycopg.rows.dict_row
        with self._syncing(), plain(self._connection, row_factory=rows_as) as cursor:
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
        plain, rows_as = _plain(psycopg.AsyncCursor), psycopg.rows.dict_row
        async with self._syncing(), plain(self._connection, row_factory=rows_as) as cursor:
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


def _connect(driver: ForeignDriver, *, notify: bool, **_: object) -> ForeignConnection:
    from outlast.store.postgres.foreign import OnPostgres

    return OnPostgres(driver, notify=notify)


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
    connect=_connect,
)
