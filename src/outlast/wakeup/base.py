"""What a wake-up is to a worker: a hint, and word of its own health."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from outlast.credentials import hide_logins
from outlast.errors import describe
from outlast.events import emit

WORDS_MAX = 500  # characters of an error


class Wakeup(Protocol):
    """Calls ``on_wake`` with a queue's name, ``cancel:WORKER_ID``, or "" for "look at all". A
    worker that does not serve the queue does not look.

    Duplicates, delays and losses cost latency, never a job.
    """

    health: Health

    async def start(self, on_wake: Callable[[str], None]) -> None:
        """Begin to listen, in the running loop."""
        ...

    async def close(self) -> None:
        """Stop listening. Safe to call twice."""
        ...


class Health:
    """Whether a wake-up works, and else why not: told by an event at each change.

    ``kind`` is ``file``, ``notify``, ``nats`` or ``amqp``; ``note``: what could be
    better while it works. May be changed from any thread.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.good = False
        self.trouble: str | None = None
        self.note: str | None = None

    @property
    def known(self) -> bool:
        """Whether it has been tried at all."""
        return self.good or self.trouble is not None

    def well(self) -> bool:
        """Note that it works; return whether that is news."""
        if self.good:
            return False
        self.good, self.trouble = True, None
        emit("wakeup_ready", kind=self.kind)
        return True

    def ill(self, error: BaseException | str) -> None:
        """Note why it does not work."""
        text = error if isinstance(error, str) else _words(error)
        if self.good or self.trouble is None:
            emit("wakeup_lost", kind=self.kind, error=text)
        self.good, self.trouble = False, text

    def ended(self) -> None:
        """Note that nobody listens any more."""
        self.good, self.trouble = False, "closed"

    def __str__(self) -> str:
        if not self.good:
            return f"{self.kind}: {self.trouble}"
        return self.kind if self.note is None else f"{self.kind}; {self.note}"


def _words(error: BaseException) -> str:
    return hide_logins(" ".join(describe(error).split()))[:WORDS_MAX]


class Listening:
    """A wake-up that listens in a task of its own, from ``start`` to ``close``."""

    def __init__(self, kind: str) -> None:
        self.health = Health(kind)
        self._on_wake: Callable[[str], None] = lambda payload: None
        self._task: asyncio.Task[None] | None = None

    async def start(self, on_wake: Callable[[str], None] = lambda payload: None) -> None:
        """Begin to connect, in the running loop. Does not wait, and raises for no outage."""
        self._on_wake = on_wake
        self._task = asyncio.create_task(self._run(), name="outlast-wakeup")

    async def close(self) -> None:
        """Let go. Safe to call twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self.health.ended()

    async def _run(self) -> None:
        raise NotImplementedError
