"""Read time and draw random numbers; no other module may.

Everything else takes a ``Clock``, so that a test or a simulation can hand in its own.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """The source of a service's time and random numbers."""

    def wall(self) -> float:
        """Seconds since 1970, for people and for SQLite's rows; may step."""
        ...

    def boot(self) -> float:
        """Seconds on a clock that never steps and goes on while the machine is suspended."""
        ...

    def random(self) -> float:
        """A number in [0, 1)."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        ...


class SystemClock:
    """The machine's own clocks. ``boot`` is CLOCK_BOOTTIME where the system has it."""

    _boot_id = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def boot(self) -> float:
        """Seconds since the machine started."""
        return time.clock_gettime(self._boot_id)

    def random(self) -> float:
        """A number in [0, 1)."""
        return random.random()

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        await asyncio.sleep(seconds)


SYSTEM = SystemClock()


def draw_secret() -> str:
    """Return a text for a URL or a cookie that cannot be guessed: 32 random bytes."""
    import secrets  # it imports hmac, which most programs do not use

    return secrets.token_urlsafe(32)


def secret_bytes(count: int) -> bytes:
    """Return random bytes of the system, for keys and nonces; no simulation replaces them."""
    return os.urandom(count)


def seeded(seed: int) -> Callable[[], float]:
    """Return a random source for a test or a simulation, with the same numbers at each run."""
    return random.Random(seed).random
