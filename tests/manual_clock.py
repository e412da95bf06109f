"""For tests of code that waits: a clock that advances only on request.

It is handed in wherever a ``Clock`` is taken, so that no test waits for real time:

    clock = ManualClock()
    task = asyncio.create_task(clock.sleep(60))
    await clock.run_for(60)         # the sleeper wakes at its own time, at once
"""

from __future__ import annotations

import asyncio
import heapq
import itertools

from outlast.base.clock import seeded

TURNS = 10  # turns of the loop that woken tasks get before time goes on


class ManualClock:
    """A ``Clock`` under a test's control; its random numbers are seeded, so that every run is the
    same.

    Attributes:
        sleepers: how many calls of ``sleep`` wait for the clock to go on.
    """

    def __init__(
        self, *, wall: float = 1_700_000_000.0, boot: float = 1_000.0, seed: int = 0
    ) -> None:
        """``wall`` and ``boot`` are the seconds at which the two clocks start."""
        self._wall = wall
        self._boot = boot
        self._random = seeded(seed)
        self._sleeping: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def wall(self) -> float:
        """Seconds since 1970: goes with ``advance``, and steps with ``step_wall``."""
        return self._wall

    def boot(self) -> float:
        """Seconds on the clock that never steps: goes with ``advance`` only."""
        return self._boot

    def random(self) -> float:
        """The next number in [0, 1) of the seeded sequence."""
        return self._random()

    async def sleep(self, seconds: float) -> None:
        """Return once the clock has gone on by ``seconds``; at once (a turn of the loop) for 0."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleeping, (self._boot + seconds, next(self._order), woken))
        await woken

    @property
    def sleepers(self) -> int:
        """How many calls of ``sleep`` are waiting."""
        return sum(1 for _, _, woken in self._sleeping if not woken.done())

    def advance(self, seconds: float) -> None:
        """Let both clocks go on; sleepers that are due run at the loop's next turn."""
        self._go_to(self._boot + seconds)

    def step_wall(self, seconds: float) -> None:
        """Let the wall clock step, as when an operator sets it; no sleeper wakes."""
        self._wall += seconds

    async def run_for(self, seconds: float) -> None:
        """Let both clocks go on from sleeper to sleeper: each wakes at its own time, and what it
        does then (sleep again, for example) is done before time goes on."""
        end = self._boot + seconds
        await _turns()
        while self._sleeping and self._sleeping[0][0] <= end:
            self._go_to(max(self._boot, self._sleeping[0][0]))
            await _turns()
        self._go_to(end)
        await _turns()

    def _go_to(self, boot: float) -> None:
        self._wall += boot - self._boot
        self._boot = boot
        while self._sleeping and self._sleeping[0][0] <= boot:
            woken = heapq.heappop(self._sleeping)[2]
            if not woken.done():  # cancelled meanwhile
                woken.set_result(None)


async def _turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
