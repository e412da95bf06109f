"""Wakes a worker by NOTIFY: a connection listens on the channel of its store
(``outlast_channel_v1``), and checks that it receives.

A silent network and a transaction pooler both look like "no news". So the listener notifies itself
on a private channel, once for each connection (an echo wakes all sessions that listen on any
channel), and asks now and then whether the session that answers still listens; without an answer it
opens a new connection. One ``on_wake("")`` after each reconnect covers missed notifications.

Through a quiet pool of transactions LISTEN and NOTIFY reach the same session, which then hears
itself. So behind a pooler another connection notifies, which borrows another session, unless the
listener's is its own for as long as it is connected.

The session that listens can hold the worker's presence as well (``presence.py``): it is lent to
one holder, and ends with the last of the two. A proof of presence and an echo take turns in it. If
either of them ends it, both notice at once and reconnect.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from typing import Any

from outlast.base.clock import SYSTEM, Clock
from outlast.errors import text_of
from outlast.store.backend import StoreOptions
from outlast.store.postgres.connection import Transaction, begin_text, in_transaction
from outlast.store.postgres.spare import connect_spare
from outlast.store.statements import statements
from outlast.store.wakeup import Backoff, Listening

_SQL = statements("postgres", "wakeup")

CHECK_EVERY_SECONDS = 20.0
ECHO_SECONDS = 5.0  # for an answer
DEAF_SECONDS = 60.0  # before the next try behind a pooler that passes nothing on


class Deaf(ConnectionError):
    """Notifications do not pass what stands between."""


class Session:
    """A connection, and the turns of its users."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.turn = asyncio.Lock()
        self.is_lent = False


class PostgresWakeup(Listening):
    """Calls ``on_wake`` with the text of each notification (``Wakeup``), unchanged: any role may
    have sent it.

    It is in good health while the session is known to listen; polling goes on underneath.
    """

    def __init__(self, url: str, clock: Clock = SYSTEM) -> None:
        super().__init__("notify")
        self._url = url
        self._options = StoreOptions(application="outlast wakeup")
        self._clock = clock
        self._backoff = Backoff(clock)
        self._echo = asyncio.Event()
        self._lost = asyncio.Event()
        self._session: asyncio.Future[Session] | None = None  # the one that listens

    async def borrow(self, seconds: float) -> Session | None:
        """Return the session, for a holder that keeps it to its end; None: it is lent, or hears no
        echo within ``seconds``, or the wake-up is not started."""
        if self.is_closing:
            return None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                session = await asyncio.shield(self._find_session())
                if not session.is_lent and not session.connection.is_closed():
                    session.is_lent = True
                    return session
        return None

    def _find_session(self) -> asyncio.Future[Session]:
        if self._session is None:
            self._session = asyncio.get_running_loop().create_future()
        return self._session

    async def _run(self) -> None:
        while not self.is_closing:
            trouble: Exception = ConnectionError("the connection was lost")
            try:
                await self._listen()
            except Exception as error:  # any error: this task would end in silence
                trouble = error
            is_deaf = isinstance(trouble, Deaf)
            self.health.note_trouble(text_of(trouble) if is_deaf else trouble)
            if not self.is_closing:  # otherwise a driver has swallowed the cancellation
                await self._backoff.rest(DEAF_SECONDS if is_deaf else 0.0)

    async def _listen(self) -> None:
        connection = await connect_spare(self._url, self._options)
        session = Session(connection)
        try:
            self._lost = asyncio.Event()
            connection.add_termination_listener(lambda _: self._lost.set())
            channel = await self._ask(session, _SQL["channel"])
            echo_channel = f"outlast_echo_{connection.get_server_pid()}"
            async with asyncio.timeout(ECHO_SECONDS):
                await connection.add_listener(channel, self._heard)
                await connection.add_listener(echo_channel, self._echoed)
            is_heard = await self._echo_returns(session, echo_channel)
            if not is_heard and connection.is_pooled:
                raise Deaf("notifications do not pass the pooler in between")
            while is_heard and not self.is_closing:
                self._note_ready(session)
                if await self._lost_within(CHECK_EVERY_SECONDS):
                    return
                is_heard = await self._still_listens(session, echo_channel, channel)
        finally:
            if self._session is not None and self._session.done():
                self._session = None
            if not (self.is_closing and session.is_lent):
                connection.terminate()

    def _note_ready(self, session: Session) -> None:
        if not self._find_session().done():
            self._find_session().set_result(session)
        if self.health.note_ready():
            self._backoff.note_connected()
            self._on_wake("")

    async def _still_listens(self, session: Session, *channels: str) -> bool:
        return bool(await self._ask(session, _SQL["listens"], *channels))

    async def _ask(self, session: Session, statement: str, *values: str) -> Any:
        """Return the answer; behind a pooler, set what all our transactions set."""
        connection, local = session.connection, session.connection.local
        begin = begin_text(Transaction.COMMITTED, ECHO_SECONDS, local)
        async with session.turn, in_transaction(connection, begin) if local else nullcontext():
            return await connection.fetchval(statement, *values, timeout=ECHO_SECONDS)

    async def _echo_returns(self, session: Session, channel: str) -> bool:
        self._echo.clear()
        if session.connection.is_pooled:
            notifier = await connect_spare(self._url, self._options)
        else:
            notifier = session.connection
        try:
            async with session.turn:
                await notifier.execute(_SQL["echo"], channel, timeout=ECHO_SECONDS)
        finally:
            if notifier is not session.connection:
                notifier.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(ECHO_SECONDS):
                await self._echo.wait()
        return self._echo.is_set()

    async def _lost_within(self, seconds: float) -> bool:
        waits = {
            asyncio.ensure_future(self._lost.wait()),
            asyncio.ensure_future(self._clock.sleep(seconds)),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return self._lost.is_set()

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        self._on_wake(payload)

    def _echoed(self, _connection: Any, _pid: int, _channel: str, _payload: str) -> None:
        self._echo.set()
