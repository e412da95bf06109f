"""Access to the caller's transaction, for each supported kind of connection.

``fetch`` runs a statement of PostgreSQL's store, ``run`` a function of SQLite's, inside the
transaction that is open. SQLAlchemy's connections are used through SQLAlchemy, which does not
commit what it has not seen begin; Django's are used at their driver, which ``atomic()`` commits for
every writer. Neither the caller's row factories nor its cursors matter.

No library is imported for this: an object of a library that is not loaded cannot exist.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, Protocol, TypeVar

from outlast.errors import ConnectionMismatch, UsageError, text_of
from outlast.sync import loop_is_running

T = TypeVar("T")
Use = Callable[[Any], T]

SUPPORTED = (
    "an asyncpg connection (also of a pool), a psycopg 3 Connection or AsyncConnection, a"
    " Connection, Session, AsyncConnection or AsyncSession of SQLAlchemy 2, a connection of Django,"
    " a sqlite3.Connection or an aiosqlite one"
)


class ForeignDriver(Protocol):
    """Access to one connection; it has ``fetch`` or ``run``, as its dialect needs.

    dialect: ``postgres`` or ``sqlite``.
    begin: how people open a transaction there.
    errors: in its block, what the driver raises leaves as people know it from their library.
    """

    dialect: str
    begin: str

    @property
    def errors(self) -> AbstractContextManager[object]: ...  # noqa: D102

    async def in_transaction(self) -> bool:
        """Whether what is written now waits for a commit of the caller's."""
        ...

    async def session(self) -> object:
        """Return what lives as long as the session with the server does."""
        ...

    async def fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        """Return the rows of a statement with ``$1``; their columns are found by name."""
        ...

    async def run(self, use: Use[T]) -> T:
        """Return ``use(cursor)``, called where a cursor of SQLite may be used."""
        ...


def open_driver(connection: object) -> ForeignDriver:
    """Return the way into a connection; ConnectionMismatch if it is closed or of no known kind.

    UsageError where this code cannot use it: an asynchronous one without an event loop, say.
    """
    for module, kind, way in _DRIVERS:
        if _is(connection, module, kind):
            return way(connection)
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    raise ConnectionMismatch(f"a {kind} cannot be used here; hand in {SUPPORTED}")


class _Driver:
    """A connection of a driver: one session."""

    dialect = "postgres"
    begin = "`with connection.transaction():`"
    errors: AbstractContextManager[object] = nullcontext()

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def session(self) -> object:
        return self._connection

    async def fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        raise NotImplementedError

    async def run(self, use: Use[T]) -> T:
        raise NotImplementedError


class _Asyncpg(_Driver):
    begin = "`async with connection.transaction():`"

    def __init__(self, connection: Any) -> None:
        _need_loop("an asyncpg connection")
        super().__init__(_out_of_pool(connection))
        _refuse_closed(self._connection.is_closed())
        _refuse_other_loop(self._connection)

    async def in_transaction(self) -> bool:
        return bool(self._connection.is_in_transaction())

    async def fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        rows: Sequence[Any] = await self._connection.fetch(statement, *values)
        return rows


class _Psycopg(_Driver):
    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        _refuse_closed(connection.closed)

    async def in_transaction(self) -> bool:
        idle = sys.modules["psycopg"].pq.TransactionStatus.IDLE
        return not self._connection.autocommit or self._connection.info.transaction_status != idle

    async def fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        psycopg = sys.modules["psycopg"]
        with psycopg.Cursor(self._connection, row_factory=psycopg.rows.dict_row) as cursor:
            cursor.execute(*_pyformat(statement, values))
            rows: Sequence[Any] = cursor.fetchall()
            return rows


class _AsyncPsycopg(_Psycopg):
    begin = "`async with connection.transaction():`"

    def __init__(self, connection: Any) -> None:
        _need_loop("an AsyncConnection of psycopg")
        super().__init__(connection)

    async def fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        psycopg = sys.modules["psycopg"]
        rows_as = psycopg.rows.dict_row
        async with psycopg.AsyncCursor(self._connection, row_factory=rows_as) as cursor:
            await cursor.execute(*_pyformat(statement, values))
            rows: Sequence[Any] = await cursor.fetchall()
            return rows


class _Sqlite3(_Driver):
    dialect = "sqlite"
    begin = "BEGIN IMMEDIATE, or a first write"

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        try:
            _ = connection.in_transaction
        except (sys.modules["sqlite3"].ProgrammingError, ValueError):  # ValueError: aiosqlite's
            _refuse_closed(closed=True)

    async def in_transaction(self) -> bool:
        return bool(self._connection.in_transaction)

    async def run(self, use: Use[T]) -> T:
        return use(sys.modules["sqlite3"].Cursor(self._connection))


class _Aiosqlite(_Sqlite3):
    def __init__(self, connection: Any) -> None:
        _need_loop("an aiosqlite connection")
        super().__init__(connection)

    async def run(self, use: Use[T]) -> T:
        raw = self._connection._conn  # noqa: SLF001  (there is no public way into its thread)
        there = self._connection._execute  # noqa: SLF001
        done: T = await there(lambda: use(sys.modules["sqlite3"].Cursor(raw)))
        return done


class _Sqlalchemy:
    """A Connection or Session of SQLAlchemy 2, also an asynchronous one."""

    begin = "an engine without the isolation_level AUTOCOMMIT"
    errors: AbstractContextManager[object] = nullcontext()

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._awaits = hasattr(owner, "run_sync")
        if self._awaits:
            _need_loop(f"an {type(owner).__name__} of SQLAlchemy")
        _refuse_closed(getattr(owner, "closed", False))
        dialect = _dialect_of(owner)
        if dialect.is_async and not self._awaits:
            raise UsageError(
                "hand in the AsyncConnection or AsyncSession itself, not what run_sync() gives you"
            )
        self._pyformat = dialect.driver.startswith("psycopg")
        self.dialect = "sqlite" if dialect.name == "sqlite" else "postgres"

    async def in_transaction(self) -> bool:
        return await self._use(_defers_commit)

    async def session(self) -> object:
        session = await self._use(lambda connection: connection.connection.driver_connection)
        if _is(session, "asyncpg", "Connection"):
            _refuse_other_loop(session)
        return session

    async def fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        args = _pyformat(statement, values) if self._pyformat else (statement, values)
        return await self._use(lambda it: it.exec_driver_sql(*args).mappings().all())

    async def run(self, use: Use[T]) -> T:
        return await self._use(lambda connection: use(_SqlalchemyCursor(connection)))

    async def _use(self, use: Use[T]) -> T:
        if not self._awaits:
            return use(_connection_of(self._owner))
        done: T = await self._owner.run_sync(lambda owner: use(_connection_of(owner)))
        return done


class _SqlalchemyCursor:
    """As much of a cursor as the statements on a caller's connection need."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Any = None) -> Any:
        return self._connection.exec_driver_sql(statement, values)

    executemany = execute


class _Django:
    """A connection of Django, in its own thread."""

    begin = "`with transaction.atomic():`"

    def __init__(self, connection: Any) -> None:
        if loop_is_running():
            raise UsageError(
                "a connection of Django is not for event loops: call the NAME_sync form in plain"
                " code, which sync_to_async() can run for you"
            )
        connection.validate_thread_sharing()
        connection.validate_no_broken_transaction()
        connection.ensure_connection()
        self._connection = connection
        self._driver = driver = open_driver(connection.connection)
        self.dialect, self.session = driver.dialect, driver.session
        self.fetch, self.run = driver.fetch, driver.run

    @property
    def errors(self) -> AbstractContextManager[object]:
        wrapper: AbstractContextManager[object] = self._connection.wrap_database_errors
        return wrapper

    async def in_transaction(self) -> bool:
        return bool(self._connection.in_atomic_block or not self._connection.get_autocommit())


_DRIVERS: Sequence[tuple[str, str, Callable[[Any], ForeignDriver]]] = (
    ("sqlite3", "Connection", _Sqlite3),
    ("asyncpg", "Connection", _Asyncpg),
    ("asyncpg.pool", "PoolConnectionProxy", _Asyncpg),
    ("psycopg", "Connection", _Psycopg),
    ("psycopg", "AsyncConnection", _AsyncPsycopg),
    ("sqlalchemy", "Connection", _Sqlalchemy),
    ("sqlalchemy.orm", "Session", _Sqlalchemy),
    ("sqlalchemy.orm", "scoped_session", lambda scoped: _Sqlalchemy(scoped())),
    ("sqlalchemy.ext.asyncio", "AsyncConnection", _Sqlalchemy),
    ("sqlalchemy.ext.asyncio", "AsyncSession", _Sqlalchemy),
    ("sqlalchemy.ext.asyncio", "async_scoped_session", lambda scoped: _Sqlalchemy(scoped())),
    ("django.db.backends.base.base", "BaseDatabaseWrapper", _Django),
    ("django.utils.connection", "ConnectionProxy", _Django),
    ("aiosqlite", "Connection", _Aiosqlite),
)


def _is(connection: object, module: str, kind: str) -> bool:
    found = getattr(sys.modules.get(module), kind, None)
    return found is not None and isinstance(connection, found)


def _need_loop(what: str) -> None:
    if not loop_is_running():
        raise UsageError(f"{what} needs its event loop: await the call instead")


def _refuse_closed(closed: object) -> None:
    if closed:
        raise ConnectionMismatch("the connection is closed: open another, or take one of the pool")


def _refuse_other_loop(connection: Any) -> None:
    """Raise ConnectionMismatch for asyncpg's connection of another loop: that may run in another
    thread, and two threads in asyncpg's C code crash the process."""
    if connection._loop is not asyncio.get_running_loop():  # noqa: SLF001
        raise ConnectionMismatch("the connection belongs to another event loop: open one on this")


def _out_of_pool(connection: Any) -> Any:
    """Return asyncpg's connection under a pool's proxy; ConnectionMismatch if it was given back."""
    if not _is(connection, "asyncpg.pool", "PoolConnectionProxy"):
        return connection
    held = connection._con  # noqa: SLF001  (the proxy has no public name for it)
    if held is None:
        raise ConnectionMismatch("the connection was given back to its pool")
    return held


def _connection_of(owner: Any) -> Any:
    return owner.connection() if _is(owner, "sqlalchemy.orm", "Session") else owner


def _dialect_of(owner: Any) -> Any:
    """Return SQLAlchemy's dialect; ConnectionMismatch for a driver that is not known here."""
    try:
        bound = owner.get_bind() if hasattr(owner, "get_bind") else owner
    except Exception as error:
        raise ConnectionMismatch(
            f"the session does not know which engine to use ({text_of(error)}): hand in"
            " session.connection(bind_arguments=…) instead"
        ) from error
    dialect = bound.dialect
    if dialect.driver in {"asyncpg", "psycopg", "psycopg_async", "pysqlite", "aiosqlite"}:
        return dialect
    raise ConnectionMismatch(
        f"SQLAlchemy on {dialect.name}+{dialect.driver} cannot be used here; make an engine for"
        " postgresql+psycopg (version 3), postgresql+asyncpg, sqlite or sqlite+aiosqlite"
    )


def _defers_commit(connection: Any) -> bool:
    """Whether what is written on SQLAlchemy's connection waits for its ``commit()``."""
    raw = connection.connection.driver_connection
    if connection.dialect.name != "sqlite":
        return not connection.connection.dbapi_connection.autocommit
    begins = raw.isolation_level is not None and getattr(raw, "autocommit", None) is not True
    return bool(begins or raw.in_transaction)


_PLACE = re.compile(r"\$(\d+)")


@cache
def _with_names(statement: str) -> str:
    return _PLACE.sub(r"%(p\1)s", statement.replace("%", "%%"))


def _pyformat(statement: str, values: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    names = {f"p{place}": value for place, value in enumerate(values, 1)}
    return _with_names(statement), names
