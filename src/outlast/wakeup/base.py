"""What a wake-up is to a worker: a hint, and word of its own health."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Wakeup(Protocol):
    """Calls ``on_wake`` with a queue's name, ``cancel:WORKER_ID``, or "" for "look at all".

    Duplicates, delays and losses cost latency, never a job.
    """

    healthy: bool

    async def start(self, on_wake: Callable[[str], None]) -> None:
        """Begin to listen, in the running loop."""
        ...

    async def close(self) -> None:
        """Stop listening. Safe to call twice."""
        ...
