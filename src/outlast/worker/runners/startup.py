"""Watches runners until they have imported the application and entered its lifespan.

Code that hangs there hangs before there is an attempt, so no limit of a task can end it. A late
runner is reported, with the line at which it stands; a very late one is killed, and another one is
started after the back-off.
"""

from __future__ import annotations

from outlast.base.clock import Clock
from outlast.events import emit
from outlast.worker.runners.process import RunnerProcess

LOOK_SECONDS = 1.0
SLOW_SECONDS = 60.0  # then an event reports the slow start
START_SECONDS_MAX = 300.0  # then the runner is killed
LIFESPAN = "lifespan"  # reason of a kill: the application's lifespan has failed
TOO_LATE = "startup"  # reason of a kill: the start took too long


class StartupWatch:
    """Judges runners that are not ready yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: set[int] = set()  # pids

    async def look(self, runners: list[RunnerProcess]) -> float | None:
        """Check all runners once; return the seconds until the next check, None if all have
        started."""
        starting = [runner for runner in runners if not (runner.ready or runner.kill_reason)]
        self._told &= {runner.pid for runner in starting}
        for runner in starting:
            await self._judge(runner)
        return LOOK_SECONDS if starting else None

    async def _judge(self, runner: RunnerProcess) -> None:
        age = self._clock.boot() - runner.started_at
        if age >= START_SECONDS_MAX:
            runner.kill(TOO_LATE)
        elif age >= SLOW_SECONDS and runner.pid not in self._told:
            self._told.add(runner.pid)
            stacks = await runner.ask_for_stacks()
            emit("runner_slow", pid=runner.pid, seconds=round(age, 3), stacks=stacks)
