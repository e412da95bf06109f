"""Connections to PostgreSQL, and what their errors mean to the rest of the program.

A constant small number of connections, last used first, without asyncpg's own pool: its reset
costs a round trip per release and runs ``pg_advisory_unlock_all()``. A connection whose
statement broke off is never used again: its outcome is unknown, and so is its state.

Connections belong to the event loop and the process that opened them; a store used from another
loop or after a fork opens its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import asyncpg
import msgspec

from outlast.errors import BadData, ConfigError, SchemaMismatch, StoreCorrupt, StoreUnavailable

SCHEMES = ("postgresql://", "postgres://")
_CLIENT_GRACE_SECONDS = 5.0  # the server's own statement_timeout speaks first

_BROKEN_OFF = (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError)
TROUBLE = (*_BROKEN_OFF, asyncpg.PostgresError)  # all that the driver raises
_CLASS_ERRORS: dict[str, type[Exception]] = {
    "21": BadData,
    "22": BadData,
    "23": BadData,
    "XX": StoreCorrupt,
}
_CODE_ERRORS: dict[str, tuple[type[Exception], str]] = {
    "42P01": (SchemaMismatch, "a table is missing: run `outlast migrate`"),
    "42883": (SchemaMismatch, "a function is missing: run `outlast migrate`"),
    "42703": (SchemaMismatch, "a column is missing: run `outlast migrate`"),
    "3F000": (SchemaMismatch, "the schema of the search_path is missing"),
    "42501": (SchemaMismatch, "this role lacks a privilege on the tables of Outlast"),
    "XX000": (StoreUnavailable, "the server failed"),
    "22023": (StoreUnavailable, "the server refuses a setting"),
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to connect. Times are in seconds. ``pooler``: a transaction pooler stands between, so
    nothing is kept in the session, neither settings nor prepared statements. A pooler that refuses
    our settings is recognised by that."""

    url: str
    connections: int = 1
    statement_timeout: float = 30.0
    connect_timeout: float = 10.0
    pooler: bool = False


def check_url(url: str) -> str:
    """Return the URL. Raises ConfigError unless it is one of PostgreSQL."""
    if not url.startswith(SCHEMES):
        raise ConfigError(f"not a PostgreSQL URL: {url!r}; write postgresql://USER@HOST/DATABASE")
    return url


def translated(error: BaseException) -> Exception | None:
    """Return the error of Outlast that a driver's error stands for; None if it is no such one."""
    if isinstance(error, asyncpg.PostgresError):
        return _of_server(error)
    if isinstance(error, UnicodeError):
        return BadData(str(error))
    if isinstance(error, _BROKEN_OFF):
        return StoreUnavailable(f"PostgreSQL: {error or type(error).__name__}")
    return None


def _of_server(error: BaseException) -> Exception:
    code = getattr(error, "sqlstate", None) or ""
    if code in _CODE_ERRORS:
        kind, hint = _CODE_ERRORS[code]
        return kind(f"PostgreSQL: {hint} ({error})")
    return _CLASS_ERRORS.get(code[:2], StoreUnavailable)(f"PostgreSQL: {error}")


@contextmanager
def foreign_errors() -> Iterator[None]:
    """Translate what concerns our rows on a connection of the caller's; the rest is the caller's
    own (a serialization failure, say, which its retry loop waits for)."""
    try:
        yield
    except Exception as error:
        raised = getattr(error, "orig", None) or error  # SQLAlchemy wraps what the driver raises
        mapped = BadData(str(error)) if isinstance(raised, UnicodeError) else _of_server(raised)
        if isinstance(mapped, (BadData, SchemaMismatch)):
            raise mapped from error
        raise


class _Lane:
    """The connections of one event loop."""

    def __init__(self, limit: int) -> None:
        self.free = asyncio.Semaphore(limit)
        self.idle: list[Any] = []
        self.generation = 0


class Connections:
    """At most ``settings.connections`` per event loop, opened when needed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._pid = os.getpid()
        self._lanes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Lane] = WeakKeyDictionary()
        self._left_to_parent: list[object] = []

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Any]:
        """Lend a connection; errors of the driver leave as errors of Outlast.

        Whatever breaks off (also a cancelled caller) takes the connection with it. A caller that
        was cancelled hears of that, though the driver's own clean-up (a rollback on a connection
        that is gone) may have put another error in its place.
        """
        lane = self._lane()
        cancels = _cancels()
        async with lane.free:
            generation = lane.generation
            connection = lane.idle.pop() if lane.idle else await self._connect()
            try:
                yield connection
            except BaseException as error:
                mapped = translated(error)
                self._give_back(lane, generation, connection, keep=_is_clean(error, mapped))
                if mapped is None:
                    raise
                if _cancels() > cancels:
                    raise asyncio.CancelledError from error
                raise mapped from error
            self._give_back(lane, generation, connection, keep=True)

    async def close(self) -> None:
        """Close this loop's idle connections politely, those of other loops abruptly."""
        mine = self._lane()
        idle, mine.idle = mine.idle, []
        mine.generation += 1
        for connection in idle:
            await _close(connection)
        self.drop()

    def drop(self) -> None:
        """Throw away all idle connections; those in use go when they are given back."""
        for loop, lane in list(self._lanes.items()):
            lane.generation += 1
            idle, lane.idle = lane.idle, []
            if not loop.is_closed():
                for connection in idle:
                    loop.call_soon_threadsafe(connection.terminate)

    def _lane(self) -> _Lane:
        if os.getpid() != self._pid:  # the sockets are the parent's: hold them, say nothing
            self._left_to_parent.append(self._lanes)
            self._lanes = WeakKeyDictionary()
            self._pid = os.getpid()
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(loop)
        if lane is None:
            lane = self._lanes[loop] = _Lane(self.settings.connections)
        return lane

    def _give_back(self, lane: _Lane, generation: int, connection: Any, *, keep: bool) -> None:
        usable = not connection.is_closed() and not connection.is_in_transaction()
        if keep and usable and generation == lane.generation:
            lane.idle.append(connection)
        else:
            connection.terminate()

    async def _connect(self) -> Any:
        try:
            return await connect(self.settings)
        except Exception as error:
            mapped = translated(error)
            if mapped is None:
                raise
            raise StoreUnavailable(
                f"cannot connect to {redacted(self.settings.url)}: {error}"
            ) from error


async def connect(settings: Settings, *, application: str = "outlast") -> Any:
    """Open one connection, by way of a pooler where there is one that says so. Its driver prepares
    and executes without a break, so a pooler keeps both on one session of the server."""
    try:
        return await _open(settings, application, pooler=settings.pooler)
    except asyncpg.ProtocolViolationError as error:
        if "startup parameter" not in str(error):
            raise
        return await _open(settings, application, pooler=True)


async def _open(settings: Settings, application: str, *, pooler: bool) -> Any:
    """READ COMMITTED is what the arguments in the SQL files rest on, and custom plans keep a plan
    made on an empty table from outliving that."""
    milliseconds = str(int(settings.statement_timeout * 1000))
    session = {
        "application_name": application,
        "statement_timeout": milliseconds,
        "idle_in_transaction_session_timeout": milliseconds,
        "default_transaction_isolation": "read committed",
        "plan_cache_mode": "force_custom_plan",
        "jit": "off",
    }
    try:
        return await asyncpg.connect(
            settings.url,
            timeout=settings.connect_timeout,  # pyright: ignore[reportArgumentType]
            command_timeout=settings.statement_timeout + _CLIENT_GRACE_SECONDS,
            statement_cache_size=0 if pooler else 100,
            server_settings={"application_name": application} if pooler else session,
        )
    except ValueError as error:
        raise ConfigError(f"{redacted(settings.url)}: {error}") from error


def redacted(url: str) -> str:
    """Return the URL without its password."""
    head, at, tail = url.rpartition("@")
    scheme, _, user = head.partition("://")
    return f"{scheme}://{user.split(':')[0]}@{tail}" if at else url


def _is_clean(error: BaseException, mapped: Exception | None) -> bool:
    """Whether the statement ended with an error of its own and the connection is as before."""
    if isinstance(mapped, (StoreUnavailable, StoreCorrupt)):
        return False
    return isinstance(error, Exception)


def _cancels() -> int:
    """Return how often somebody has asked the running task to end."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def _close(connection: Any) -> None:
    try:
        await connection.close(timeout=2.0)
    except TROUBLE:
        connection.terminate()
