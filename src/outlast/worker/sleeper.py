"""Lets a worker that is not needed leave for a while, so that its database can be suspended.

It leaves as any worker does, and is back, as an ordinary worker, after ``idle_after``, or sooner if
a job is due within the next minute.
"""

from __future__ import annotations

from outlast.base.clock import Clock
from outlast.events import emit
from outlast.insight.availability import holds
from outlast.store.protocol import Store
from outlast.worker.claims.until_empty import UntilEmpty
from outlast.worker.service import Nudge
from outlast.worker.worker import Worker

LOOK_SECONDS = 1.0  # between two looks at what the exchange has found
NEEDED_SECONDS = 60.0  # between two looks at who else needs the worker


class Sleeper:
    """The duty that lets its worker leave once there has been nothing to claim for ``idle_after``
    seconds, no other worker is alive and there is no schedule, not even a paused one. ``at_once``:
    whether it may also leave at the start, because it was asleep."""

    name = "sleeper"

    def __init__(
        self, worker: Worker, store: Store, idle_after: float, clock: Clock, *, at_once: bool
    ) -> None:
        self.nudge = Nudge()
        self._worker, self._store, self._clock = worker, store, clock
        self._seconds = idle_after
        self._until = UntilEmpty(seconds=idle_after, at_once=at_once, clock=clock)
        worker.watch_claims(self._until)

    async def run_once(self) -> float | None:
        """Let the worker leave if it is not needed."""
        if not self._until.is_over():
            return LOOK_SECONDS
        if await self._is_needed():
            return NEEDED_SECONDS
        if not self._until.is_over():
            return LOOK_SECONDS
        due_at = self._until.due_at
        left = self._seconds if due_at is None else due_at - self._clock.boot()
        rest = max(0.0, min(self._seconds, left))
        emit("worker_sleeps", worker_id=self._worker.me.worker_id, seconds=round(rest, 3))
        self._worker.sleep(rest)
        return None

    async def _is_needed(self) -> bool:
        others = await self._store.inspector.workers()
        if any(holds(one) and one.id != self._worker.me.worker_id for one in others):
            return True
        return any(one.declared for one in await self._store.inspector.schedules())
