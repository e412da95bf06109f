"""A worker's presence on PostgreSQL: a session advisory lock on a connection of its own.

Nothing else ever runs on this connection, so nothing but its end lets go of the lock. It asks for
nothing in the session and keeps no statements: so it works behind a pooler as well, far enough to
find out that there is one. Each proof is a transaction that says itself what it needs: a
serialization failure would cost the lock, and one that stays open would keep the worker's row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from outlast.store.postgres.connection import Settings, check_url, connect
from outlast.store.postgres.errors import translate
from outlast.store.postgres.session import Transaction, begin_text, in_transaction, path_of
from outlast.store.postgres.statements import sql
from outlast.store.values import WorkerRef


def _do_nothing() -> None:
    """The end of the session is told to nothing."""


class PostgresPresence:
    """The ``PresenceLock`` of one worker; ``patience`` is in seconds, for connecting and asking."""

    def __init__(self, url: str, *, patience: float) -> None:
        self._on_lost: Callable[[], None] = _do_nothing
        self._settings = Settings(url=check_url(url), connect_timeout=patience, pooler=True)
        self._patience = patience
        self._connection: Any = None

    async def hold(self, me: WorkerRef, on_lost: Callable[[], None] = _do_nothing) -> str | None:
        """Take the lock or prove that this session has it; return why it cannot be held."""
        self._on_lost = on_lost
        try:
            async with asyncio.timeout(self._patience):
                return await self._hold(me)
        except BaseException as error:
            self._drop()
            mapped = translate(error)
            if mapped is None:
                raise
            raise mapped from error

    async def release(self) -> None:
        """End the session, and the lock with it."""
        connection = self._drop(keep_open=True)
        if connection is not None:
            try:
                await connection.close(timeout=self._patience)
            except BaseException as error:
                connection.terminate()
                if translate(error) is None:
                    raise

    async def _hold(self, me: WorkerRef) -> str | None:
        connection = await self._connected()
        async with in_transaction(connection, self._begin(path_of(connection))):
            session = (_own_port(connection), connection.get_server_pid())
            reason: str | None = await connection.fetchval(
                sql("presence_hold"), me.worker_id, me.registration, *session
            )
            return reason

    def _begin(self, path: str | None) -> str:
        return begin_text(Transaction.COMMITTED, self._patience, path)

    async def _connected(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self._settings, application="outlast presence")
            self._connection.add_termination_listener(self._ended)
        return self._connection

    def _ended(self, connection: Any) -> None:
        if connection is self._connection:  # and not one that was let go of here
            self._connection = None
            self._on_lost()

    def _drop(self, *, keep_open: bool = False) -> Any:
        connection, self._connection = self._connection, None
        if connection is not None and not keep_open:
            connection.terminate()
        return connection


def _own_port(connection: Any) -> int | None:
    """Return the port of the client's end of the connection; None for a Unix socket."""
    name = connection._transport.get_extra_info("sockname")  # noqa: SLF001  # asyncpg shows no socket
    return name[1] if isinstance(name, tuple) else None
