"""The caller's own connections: enqueue, and complete an attempt, in the caller's transaction.

The SQL is the stores'; ``ways`` leads into the transaction that is open on a connection.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from outlast.clock import SYSTEM, Clock
from outlast.errors import ConnectionMismatch
from outlast.store.foreign.drivers import ForeignDriver, open_driver
from outlast.store.protocol import ForeignConnection
from outlast.store.values import Enqueued, NewJob


async def checked(connection: object, store_id: str, *, notify: bool = True) -> ForeignConnection:
    """Return the connection, which is on the schema of that id, or raise ConnectionMismatch."""
    found = foreign(connection, notify=notify)
    seen = await found.store_id()
    if seen != store_id:  # its search_path may have been changed
        seen = await found.store_id(anew=True)
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


def foreign(connection: object, *, notify: bool = True, clock: Clock = SYSTEM) -> ForeignConnection:
    """Return the connection as the protocol has it; ConnectionMismatch for an unknown kind.

    ``notify``: whether its commit wakes idle workers, where the store can do that.
    """
    driver = open_driver(connection)
    if driver.dialect == "sqlite":
        return _OnSqlite(driver, clock)
    return _OnPostgres(driver, notify=notify)


class _OnSqlite:
    """The verbs on a connection to SQLite."""

    def __init__(self, driver: ForeignDriver, clock: Clock) -> None:
        self._driver = driver
        self._clock = clock
        self.begin = driver.begin
        self.in_transaction = driver.in_transaction

    async def store_id(self, *, anew: bool = False) -> str | None:
        """Return the id of the schema. Read each time: these objects cannot be remembered."""
        from outlast.store.sqlite import store as sqlite

        lock = await self._driver.in_transaction()
        return await self._driver.run(lambda cursor: sqlite.store_id_on(cursor, lock=lock))

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs in the open transaction, or in the one that the driver opens for it."""
        from outlast.store.sqlite import store as sqlite

        now = self._clock.wall()
        return await self._driver.run(lambda cursor: sqlite.enqueue_on(cursor, jobs, now))

    async def complete(self, job_id: int, token: int, result: Any) -> bool:
        """Complete the attempt in the open transaction."""
        from outlast.store.sqlite import store as sqlite

        now = self._clock.wall()
        return await self._driver.run(
            lambda cursor: sqlite.complete_on(cursor, job_id, token, result, now)
        )


class _OnPostgres:
    """The verbs on a connection to PostgreSQL."""

    def __init__(self, driver: ForeignDriver, *, notify: bool) -> None:
        self._driver = driver
        self._notify = notify
        self.begin = driver.begin
        self.in_transaction = driver.in_transaction

    async def store_id(self, *, anew: bool = False) -> str | None:
        """Return the id of the schema, asked once per session, or ``anew``."""
        from outlast.store.postgres import store as postgres

        session = await self._driver.session()
        known = _store_ids.get(session)
        if known is None or anew:
            with self._driver.errors:
                known = await postgres.store_id_on(self._driver)
            if known is not None:
                _store_ids[session] = known
        return known

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs in the open transaction; without one they are stored at once."""
        from outlast.store.postgres import store as postgres

        with self._driver.errors:
            return await postgres.enqueue_on(self._driver, jobs, notify=self._notify)

    async def complete(self, job_id: int, token: int, result: Any) -> bool:
        """Complete the attempt in the open transaction."""
        from outlast.store.postgres import store as postgres

        with self._driver.errors:
            return await postgres.complete_on(self._driver, job_id, token, result)


_store_ids: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
