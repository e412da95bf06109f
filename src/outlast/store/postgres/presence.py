"""Holds a worker's presence on PostgreSQL: a session advisory lock.

The lock is taken in the session that listens for the worker, if notices reach that one, and
otherwise in a separate one. Nothing else but a check of the wake-up runs in it, so only its end
releases the lock. It is not the session of the beats, whose silence is the other half of the proof
of a death. A separate session sets nothing and keeps no statements, so behind a pooler it works
well enough to notice the pooler.
Each proof is a transaction with its own settings: a serialization failure would cost the lock, and
an open transaction would keep the worker's row locked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from outlast.store.backend import StoreOptions
from outlast.store.postgres.connection import Transaction, begin_text, in_transaction
from outlast.store.postgres.errors import translate
from outlast.store.postgres.spare import connect_spare
from outlast.store.postgres.wakeup import PostgresWakeup, Session
from outlast.store.statements import statements
from outlast.store.values import WorkerRef
from outlast.store.wakeup import Wakeup

_SQL = statements("postgres", "workers")

BORROW_SECONDS = 1.0  # at most, for the session that listens to be there
NAME = "outlast presence"  # of the session, as others see it


def _do_nothing() -> None:
    """Ignore the end of the session."""


class PostgresPresence:
    """The ``PresenceLock`` of one worker; ``patience`` is in seconds, for connecting and asking.
    ``wakeup``: the worker's, which may lend its session."""

    def __init__(self, url: str, *, patience: float, wakeup: Wakeup | None = None) -> None:
        self._on_lost: Callable[[], None] = _do_nothing
        self._url = url
        self._options = StoreOptions(connect_timeout=patience, pooler=True, application=NAME)
        self._patience = patience
        self._lender = wakeup if isinstance(wakeup, PostgresWakeup) else None
        self._session: Session | None = None

    async def hold(self, me: WorkerRef, on_lost: Callable[[], None] = _do_nothing) -> str | None:
        self._on_lost = on_lost
        try:
            session = await self._connected()  # which takes no longer, and tells what hosts say
            async with asyncio.timeout(self._patience):
                return await self._hold(session, me)
        except BaseException as error:
            self._drop()
            mapped = translate(error)
            if mapped is None:
                raise
            raise mapped from error

    async def release(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            connection = session.connection
            try:
                await connection.close(timeout=self._patience)
            except BaseException as error:
                connection.terminate()
                if translate(error) is None:
                    raise

    async def _hold(self, session: Session, me: WorkerRef) -> str | None:
        connection = session.connection
        if session.is_lent:
            async with session.turn:
                await connection.execute(f"SET application_name = '{NAME}'")
        here = (_own_port(connection), connection.get_server_pid())
        async with session.turn, in_transaction(connection, self._begin(connection.local)):
            reason: str | None = await connection.fetchval(
                _SQL["presence_hold"], me.worker_id, me.registration, *here
            )
            return reason

    def _begin(self, local: str | None) -> str:
        return begin_text(Transaction.COMMITTED, self._patience, local)

    async def _connected(self) -> Session:
        if self._session is None or self._session.connection.is_closed():
            session = None
            if self._lender is not None:
                session = await self._lender.borrow(min(BORROW_SECONDS, self._patience / 2))
            self._session = session or Session(await connect_spare(self._url, self._options))
            self._session.connection.add_termination_listener(self._ended)
        return self._session

    def _ended(self, connection: Any) -> None:
        if self._session is not None and connection is self._session.connection:
            self._session = None  # otherwise release() has ended it
            self._on_lost()

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.connection.terminate()


def _own_port(connection: Any) -> int | None:
    """None: the connection is a Unix socket."""
    name = connection._transport.get_extra_info("sockname")  # noqa: SLF001  # asyncpg shows no socket
    return name[1] if isinstance(name, tuple) else None
