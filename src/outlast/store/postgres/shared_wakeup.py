"""Shares one session that listens among all workers of an event loop.

Each worker hears all notifications, in the same order. Each has the wake-up's one ``health``; a
worker that leaves ends nothing for the others, and the last one closes the session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakKeyDictionary

from outlast.base.clock import SYSTEM, Clock
from outlast.store.postgres.wakeup import PostgresWakeup, Session
from outlast.store.wakeup import Health


class _Shared:
    """A wake-up, and the callbacks of its workers."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.wakeup = PostgresWakeup(url, clock)
        self.members: dict[SharedWakeup, Callable[[str], None]] = {}

    def tell(self, payload: str) -> None:
        for on_wake in list(self.members.values()):
            on_wake(payload)


_sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Shared]] = WeakKeyDictionary()


async def borrow_session(url: str, seconds: float) -> Session | None:
    """Return the session of this event loop that listens there, for a holder that keeps it to its
    end; None: it is lent, or there is none within ``seconds``."""
    found = _sessions.get(asyncio.get_running_loop(), {}).get(url)
    return None if found is None else await found.wakeup.borrow(seconds)


class SharedWakeup:
    """The ``Wakeup`` of one worker by NOTIFY."""

    def __init__(self, url: str, clock: Clock = SYSTEM) -> None:
        self.health = Health("notify")
        self._url = url
        self._clock = clock
        self._session: _Shared | None = None

    async def start(self, on_wake: Callable[[str], None]) -> None:
        """Listen, or share the session that listens already. Raises for no outage."""
        here = _sessions.setdefault(asyncio.get_running_loop(), {})
        session = here.setdefault(self._url, _Shared(self._url, self._clock))
        self._session = session
        is_first = not session.members
        session.members[self] = on_wake
        self.health = session.wakeup.health
        if is_first:
            await session.wakeup.start(session.tell)
        elif self.health.good:
            on_wake("")  # earlier notifications were not heard

    async def close(self) -> None:
        """Stop hearing; the last worker ends the session. Safe to call twice."""
        session, self._session = self._session, None
        if session is None:
            return
        del session.members[self]
        self.health = Health("notify")
        self.health.ended()
        if not session.members:
            del _sessions[asyncio.get_running_loop()][self._url]
            await session.wakeup.close()
