"""Time in a test: that of the machine, and as much later as the test has travelled."""

from __future__ import annotations

from outlast.base.clock import SYSTEM


class TravelClock:
    """A ``Clock`` that goes on as the machine's does, ``ahead`` seconds later."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def wall(self) -> float:
        """Seconds since 1970."""
        return SYSTEM.wall() + self.ahead

    def boot(self) -> float:
        """Seconds since the machine started."""
        return SYSTEM.boot() + self.ahead

    def random(self) -> float:
        """A number in [0, 1)."""
        return SYSTEM.random()

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds`` of the machine's time."""
        await SYSTEM.sleep(seconds)
