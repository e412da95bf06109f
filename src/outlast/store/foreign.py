"""Leads into the caller's transaction: finds the driver of a connection, for all stores.

Drivers of one database alone are in the folder of its store. SQLAlchemy's connections are used
through SQLAlchemy, which does not commit a transaction that it has not seen begin; Django's at
their driver, which ``atomic()`` commits for every writer. The caller's row factories and cursors do
not matter. No library is imported: an object of a library that is not loaded cannot exist.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from outlast.base.clock import SYSTEM, Clock
from outlast.base.sync import loop_is_running
from outlast.errors import ConnectionMismatch, UsageError, text_of
from outlast.store.backend import Callers, all_callers
from outlast.store.protocol import ForeignConnection, ForeignDriver

T = TypeVar("T")
Use = Callable[[Any], T]

SHARED = (
    "a Connection, Session, AsyncConnection or AsyncSession of SQLAlchemy 2, a connection of Django"
)


def open_driver(connection: object) -> tuple[ForeignDriver, Callers]:
    """Return the driver of a connection, and how its kind of store uses it. ConnectionMismatch for
    a closed connection or an unknown kind; UsageError if this code cannot use it, for example an
    asynchronous one without an event loop.
    """
    known = all_callers()
    for callers in known:
        for module, kind, make in callers.drivers:
            if is_of(connection, module, kind):
                return make(connection), callers
    for module, kind, make_shared in _SHARED:
        if is_of(connection, module, kind):
            shared = make_shared(connection)
            return shared, shared.callers
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    supported = ", ".join([*(each.kinds for each in known), SHARED])
    raise ConnectionMismatch(f"a {kind} cannot be used here; pass {supported}")


class Driver:
    """A connection of a driver: one session."""

    begin = "`with connection.transaction():`"
    errors: AbstractContextManager[object] = nullcontext()

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def session(self) -> object:
        """Return the connection."""
        return self._connection

    async def fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        """Drivers of a store that needs it override this."""
        raise NotImplementedError

    async def run(self, use: Use[T]) -> T:
        """Drivers of a store that needs it override this."""
        raise NotImplementedError


class _Sqlalchemy:
    """A Connection or Session of SQLAlchemy 2, also an asynchronous one."""

    begin = "an engine without the isolation_level AUTOCOMMIT"
    errors: AbstractContextManager[object] = nullcontext()

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._awaits = hasattr(owner, "run_sync")
        if self._awaits:
            need_loop(f"an {type(owner).__name__} of SQLAlchemy")
        refuse_closed(getattr(owner, "closed", False))
        dialect, self.callers = _dialect_of(owner)
        if dialect.is_async and not self._awaits:
            raise UsageError(
                "pass the AsyncConnection or AsyncSession itself, not the object from run_sync()"
            )
        self._pyformat = dialect.driver.startswith("psycopg")

    async def in_transaction(self) -> bool:
        return await self._use(self.callers.defers_commit)

    async def session(self) -> object:
        session = await self._use(lambda connection: connection.connection.driver_connection)
        if is_of(session, "asyncpg", "Connection"):
            refuse_other_loop(session)
        return session

    async def fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        args = pyformat(statement, values) if self._pyformat else (statement, values)
        return await self._use(lambda it: _rows_of(it.exec_driver_sql(*args, _WHOLE)))

    async def run(self, use: Use[T]) -> T:
        return await self._use(lambda connection: use(_SqlalchemyCursor(connection)))

    async def _use(self, use: Use[T]) -> T:
        if not self._awaits:
            return use(_connection_of(self._owner))
        done: T = await self._owner.run_sync(lambda owner: use(_connection_of(owner)))
        return done


_WHOLE = {"stream_results": False, "yield_per": None}  # of no cursor of the server, as others may


def _rows_of(result: Any) -> Sequence[Any]:
    return result.mappings().all() if result.returns_rows else []


class _SqlalchemyCursor:
    """As much of a cursor as the statements on a caller's connection need."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Any = None) -> Any:
        return self._connection.exec_driver_sql(statement, values)

    executemany = execute

    @property
    def connection(self) -> Any:
        """The driver's connection, as cursors of drivers expose it."""
        return self._connection.connection.driver_connection


class _Django:
    """A connection of Django, in its own thread."""

    begin = "`with transaction.atomic():`"

    def __init__(self, connection: Any) -> None:
        if loop_is_running():
            raise UsageError(
                "a Django connection cannot be used in an event loop: call the NAME_sync form in"
                " plain code, which sync_to_async() can run for you"
            )
        connection.validate_thread_sharing()
        connection.validate_no_broken_transaction()
        connection.ensure_connection()
        self._connection = connection
        driver, self.callers = open_driver(connection.connection)
        self.session, self.fetch, self.run = driver.session, driver.fetch, driver.run

    @property
    def errors(self) -> AbstractContextManager[object]:
        wrapper: AbstractContextManager[object] = self._connection.wrap_database_errors
        return wrapper

    async def in_transaction(self) -> bool:
        return bool(self._connection.in_atomic_block or not self._connection.get_autocommit())


_SHARED: Sequence[tuple[str, str, Callable[[Any], _Sqlalchemy | _Django]]] = (
    ("sqlalchemy", "Connection", _Sqlalchemy),
    ("sqlalchemy.orm", "Session", _Sqlalchemy),
    ("sqlalchemy.orm", "scoped_session", lambda scoped: _Sqlalchemy(scoped())),
    ("sqlalchemy.ext.asyncio", "AsyncConnection", _Sqlalchemy),
    ("sqlalchemy.ext.asyncio", "AsyncSession", _Sqlalchemy),
    ("sqlalchemy.ext.asyncio", "async_scoped_session", lambda scoped: _Sqlalchemy(scoped())),
    ("django.db.backends.base.base", "BaseDatabaseWrapper", _Django),
    ("django.utils.connection", "ConnectionProxy", _Django),
)


def is_of(connection: object, module: str, kind: str) -> bool:
    """Whether a connection is an instance of that class of a loaded library."""
    found = getattr(sys.modules.get(module), kind, None)
    return found is not None and isinstance(connection, found)


def need_loop(what: str) -> None:
    """Raise UsageError where no event loop is running."""
    if not loop_is_running():
        raise UsageError(f"{what} needs its event loop: await the call instead")


def refuse_closed(closed: object) -> None:
    """Raise ConnectionMismatch for a closed connection."""
    if closed:
        raise ConnectionMismatch(
            "the connection is closed: open another, or take one from the pool"
        )


def refuse_other_loop(connection: Any) -> None:
    """Raise ConnectionMismatch for asyncpg's connection of another loop: two threads in asyncpg's C
    code would crash the process."""
    if connection._loop is not asyncio.get_running_loop():  # noqa: SLF001
        raise ConnectionMismatch(
            "the connection belongs to another event loop: open one on this loop"
        )


def _connection_of(owner: Any) -> Any:
    return owner.connection() if is_of(owner, "sqlalchemy.orm", "Session") else owner


def _dialect_of(owner: Any) -> tuple[Any, Callers]:
    """Return SQLAlchemy's dialect, and its store; ConnectionMismatch for an unknown driver."""
    try:
        bound = owner.get_bind() if hasattr(owner, "get_bind") else owner
    except Exception as error:
        raise ConnectionMismatch(
            f"the session does not know which engine to use ({text_of(error)}): pass"
            " session.connection(bind_arguments=…) instead"
        ) from error
    dialect, known = bound.dialect, all_callers()
    for callers in known:
        if dialect.driver in callers.engine_drivers:
            return dialect, callers
    raise ConnectionMismatch(
        f"SQLAlchemy on {dialect.name}+{dialect.driver} cannot be used here; make an engine for"
        f" {', '.join(each.engines for each in known)}"
    )


_PLACE = re.compile(r"\$(\d+)")


@cache
def _with_names(statement: str) -> str:
    return _PLACE.sub(r"%(p\1)s", statement.replace("%", "%%"))


def pyformat(statement: str, values: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """Return a statement with ``$1``, and its values, as psycopg takes them."""
    names = {f"p{place}": value for place, value in enumerate(values, 1)}
    return _with_names(statement), names


async def checked(
    connection: object,
    store_id: str,
    *,
    notify: bool = True,
    clock: Clock = SYSTEM,
    file: Path | None = None,
) -> ForeignConnection:
    """Return the connection; ConnectionMismatch if it is on another schema than that id's, or on a
    copy of ``file``."""
    found = foreign(connection, notify=notify, clock=clock, file=file)
    seen = await found.store_id()
    if seen != store_id:  # its search_path may have been changed
        seen = await found.store_id(refresh=True)
    if seen is None:
        raise ConnectionMismatch(
            "the connection sees no Outlast schema: it is to another database than the"
            " application's, or its search_path leads elsewhere"
        )
    if seen != store_id:
        raise ConnectionMismatch(
            "the connection is on another Outlast schema than the application's: pass one that is"
            " on the same"
        )
    return found


def foreign(
    connection: object, *, notify: bool = True, clock: Clock = SYSTEM, file: Path | None = None
) -> ForeignConnection:
    """Return the connection as the protocol defines it; ConnectionMismatch for an unknown kind.

    ``notify``: whether its commit wakes idle workers, if the store can do that.
    """
    driver, callers = open_driver(connection)
    return callers.connect(driver, notify=notify, clock=clock, file=file)
