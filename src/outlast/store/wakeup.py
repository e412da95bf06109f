"""Defines the wake-up of a worker: hints, and its own health."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from outlast.base.clock import Clock
from outlast.base.credentials import hide_logins
from outlast.errors import describe
from outlast.events import emit

WORDS_MAX = 500  # characters of an error
BACKOFF_FIRST_SECONDS, BACKOFF_MAX_SECONDS = 0.25, 10.0
END_TRIES = 3
END_SECONDS = 3.0  # for a connection to be closed


class Wakeup(Protocol):
    """Calls ``on_wake`` with a hint: ``queue:NAME``, ``cancel:WORKER_ID``, ``drain:WORKER_ID``,
    ``stack:WORKER_ID``, or "" for all. The kind comes first, up to the colon, so no queue name can
    read as another kind. Duplicates, delays and losses cost latency, never a job.
    """

    health: Health

    async def start(self, on_wake: Callable[[str], None]) -> None:
        """Begin to listen, in the running loop."""
        ...

    async def close(self) -> None:
        """Stop listening. Safe to call twice."""
        ...


class Health:
    """Whether a wake-up works, and if not, why not; an event reports each change. From any thread.

    ``kind`` is ``file``, ``notify``, ``nats`` or ``amqp``; ``note``: what could be better while it
    works. ``sees_all``: it looks for writes itself, so while it works it misses none.
    """

    def __init__(self, kind: str, *, sees_all: bool = False) -> None:
        self.kind = kind
        self.sees_all = sees_all
        self.good = False
        self.trouble: str | None = None
        self.note: str | None = None

    @property
    def known(self) -> bool:
        """Whether a connection has been tried yet."""
        return self.good or self.trouble is not None

    def note_ready(self) -> bool:
        """Note that it works; return whether that is news."""
        if self.good:
            return False
        self.good, self.trouble = True, None
        emit("wakeup_ready", kind=self.kind)
        return True

    def note_trouble(self, error: BaseException | str) -> None:
        """Note why it does not work."""
        text = error if isinstance(error, str) else _format_error(error)
        if self.good or self.trouble is None:
            emit("wakeup_lost", kind=self.kind, error=text)
        self.good, self.trouble = False, text

    def note_closed(self) -> None:
        """Note that it no longer listens."""
        self.good, self.trouble = False, "closed"

    def __str__(self) -> str:
        if not self.good:
            return f"{self.kind}: {self.trouble}"
        return self.kind if self.note is None else f"{self.kind}; {self.note}"


def _format_error(error: BaseException) -> str:
    return hide_logins(" ".join(describe(error).split()))[:WORDS_MAX]


class Backoff:
    """Waits between two connections: ever longer, until one has lasted for a while."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pause = BACKOFF_FIRST_SECONDS
        self._since = math.inf

    def note_connected(self) -> None:
        """Note that a connection was made now."""
        self._since = self._clock.boot()

    async def rest(self, least: float = 0.0) -> None:
        """Wait until it is time for the next connection, for ``least`` seconds or more."""
        if self._clock.boot() - self._since >= BACKOFF_MAX_SECONDS:
            self._pause = BACKOFF_FIRST_SECONDS
        self._since = math.inf
        pause, self._pause = self._pause, min(2 * self._pause, BACKOFF_MAX_SECONDS)
        await self._clock.sleep(max(least, pause * (0.5 + 0.5 * self._clock.random())))


async def end(tasks: Sequence[asyncio.Task[None]], seconds: float) -> None:
    """Cancel tasks until they have ended, at most END_TRIES times, ``seconds`` apart: a driver
    swallows a cancellation that arrives together with an answer (``wait_for`` of Python 3.11), or
    during a write."""
    for _ in range(END_TRIES):
        going = [task for task in tasks if not task.done()]
        if not going:
            break
        for task in going:
            task.cancel()
        await asyncio.wait(going, timeout=seconds)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()  # retrieve it, or asyncio would log the second failure


class Listening:
    """A wake-up that listens in a separate task, from ``start`` to ``close``."""

    def __init__(self, kind: str) -> None:
        self.health = Health(kind)
        self._on_wake: Callable[[str], None] = lambda payload: None
        self._task: asyncio.Task[None] | None = None

    async def start(self, on_wake: Callable[[str], None] = lambda payload: None) -> None:
        """Begin to connect, in the running loop; neither wait for this nor fail in an outage."""
        self._on_wake = on_wake
        self._task = asyncio.create_task(self._run(), name="outlast-wakeup")

    @property
    def is_closing(self) -> bool:
        """Whether ``close`` was called."""
        return self._task is None

    async def close(self) -> None:
        """Stop listening, in bounded time. Safe to call twice."""
        task, self._task = self._task, None
        if task is not None:
            await end([task], END_SECONDS)
        self.health.note_closed()

    async def _run(self) -> None:
        raise NotImplementedError
