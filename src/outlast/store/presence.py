"""Defines presence: a lock that a live worker's session holds in the database and loses at its end.

The duty in ``worker/lease/presence.py`` keeps it; how the lock is taken is up to the store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from outlast.store.values import WorkerRef

SWITCHED_OFF = "switched off (--no-presence)"


class PresenceLock(Protocol):
    """One worker's lock."""

    async def hold(self, me: WorkerRef, on_lost: Callable[[], None]) -> str | None:
        """Take the lock, or prove that this session still has it, and write that on the worker's
        row. ``on_lost`` is called, in the loop, when the session has ended.

        Return None, or why it cannot be held. Raises StoreError; the next call reconnects.
        """
        ...

    async def release(self) -> None:
        """End the session, and the lock with it. Safe to call twice."""
        ...


class NoPresence:
    """The lock of a worker that was configured to do without one."""

    async def hold(self, me: WorkerRef, on_lost: Callable[[], None]) -> str | None:
        """Return why not."""
        return SWITCHED_OFF

    async def release(self) -> None:
        """There is nothing to end."""
