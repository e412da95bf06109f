"""Connections of the caller's own: enqueue, and complete an attempt, in the caller's transaction.

Here only the kinds are told apart; the SQL is the stores'. No driver is imported for this: an
object of a driver that is not loaded cannot exist.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from outlast.bridge import loop_is_running
from outlast.clock import SYSTEM, Clock
from outlast.errors import ConnectionMismatch, UsageError
from outlast.store.base import Enqueued, ForeignConnection, NewJob

if TYPE_CHECKING:
    import sqlite3

SUPPORTED = "an asyncpg connection (also of a pool) or a sqlite3.Connection"


def foreign(connection: object, *, notify: bool = True, clock: Clock = SYSTEM) -> ForeignConnection:
    """Return the connection as the protocol has it; ConnectionMismatch for an unknown kind.

    ``notify``: whether its commit wakes idle workers, where the store can do that.
    """
    if _is_sqlite3(connection):
        return Sqlite3Connection(connection, clock)
    if _is_asyncpg(connection):
        return AsyncpgConnection(_unwrapped(connection), notify=notify)
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    raise ConnectionMismatch(f"a {kind} cannot be used here; hand in {SUPPORTED}")


async def checked(connection: object, store_id: str, *, notify: bool = True) -> ForeignConnection:
    """Return the connection, which is on the schema of that id, or raise ConnectionMismatch."""
    found = foreign(connection, notify=notify)
    seen = await found.store_id()
    if seen is None:
        raise ConnectionMismatch(
            "the connection sees no Outlast schema: it is to another database than the"
            " application's, or its search_path leads elsewhere"
        )
    if seen != store_id:
        raise ConnectionMismatch(
            "the connection is on another Outlast schema than the application's: in its"
            " transaction nothing can be stored here"
        )
    return found


def in_transaction(connection: object) -> bool:
    """Whether a transaction of the caller's is open on it."""
    if _is_sqlite3(connection):
        return bool(connection.in_transaction)
    return bool(_unwrapped(connection).is_in_transaction())


class Sqlite3Connection:
    """A ``sqlite3.Connection``, used in its own thread. Its calls never suspend."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock

    async def store_id(self) -> str | None:
        """Return the id of the schema. Read each time: these objects cannot be remembered."""
        from outlast.store import sqlite

        return sqlite.store_id_on(self._connection)

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs in the open transaction, or in the one that sqlite3 opens for it."""
        from outlast.store import sqlite

        return sqlite.enqueue_on(self._connection, jobs, self._clock.wall())

    async def complete(self, job_id: int, token: int, result: Any) -> bool:
        """Complete the attempt in the open transaction."""
        from outlast.store import sqlite

        now = self._clock.wall()
        return sqlite.complete_on(self._connection, job_id, token, result, now)


class AsyncpgConnection:
    """An asyncpg connection, on its own event loop."""

    def __init__(self, connection: Any, *, notify: bool) -> None:
        if not loop_is_running():
            raise UsageError("an asyncpg connection needs its event loop: await the call instead")
        self._connection = connection
        self._notify = notify

    async def store_id(self) -> str | None:
        """Return the id of the schema, asked once per connection."""
        from outlast.store import postgres

        known = _store_ids.get(self._connection)
        if known is None:
            known = await postgres.store_id_on(self._connection)
            if known is not None:
                _store_ids[self._connection] = known
        return known

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs in the open transaction; without one they are stored at once."""
        from outlast.store import postgres

        return await postgres.enqueue_on(self._connection, jobs, notify=self._notify)

    async def complete(self, job_id: int, token: int, result: Any) -> bool:
        """Complete the attempt in the open transaction."""
        from outlast.store import postgres

        return await postgres.complete_on(self._connection, job_id, token, result)


_store_ids: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def _is_sqlite3(connection: object) -> TypeGuard[sqlite3.Connection]:
    driver = sys.modules.get("sqlite3")
    return driver is not None and isinstance(connection, driver.Connection)


def _is_asyncpg(connection: Any) -> bool:
    driver = sys.modules.get("asyncpg")
    if driver is None:
        return False
    return isinstance(connection, driver.Connection | driver.pool.PoolConnectionProxy)


def _unwrapped(connection: Any) -> Any:
    """Return the connection under a pool's proxy; ConnectionMismatch if the pool has it back."""
    driver = sys.modules["asyncpg"]
    if not isinstance(connection, driver.pool.PoolConnectionProxy):
        return connection
    held = connection._con  # noqa: SLF001  (the proxy has no public name for it)
    if held is None:
        raise ConnectionMismatch("the connection was given back to its pool")
    return held
