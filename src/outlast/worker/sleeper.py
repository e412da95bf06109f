"""Lets a worker that is not needed leave for a while, so that its database can be suspended.

It leaves as any worker does: it drains, marks its row, closes its connections and ends its runners.
It is back after ``idle_after``, or sooner if a job is due within the next minute; each time it is
an ordinary worker, which also does its share for the store.
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
    seconds, no other worker is alive and there is no schedule, not even a paused one.

    Args:
        at_once: whether it may also leave if there is nothing at the start: it was asleep.

    ``rest``: once it has left, for how many seconds; None if it leaves for another reason.
    """

    name = "sleeper"

    def __init__(self, store: Store, idle_after: float, *, at_once: bool, clock: Clock) -> None:
        self.nudge = Nudge()
        self.rest: float | None = None
        self._store = store
        self._seconds = idle_after
        self._clock = clock
        self._until = UntilEmpty(seconds=idle_after, at_once=at_once, clock=clock)
        self._worker: Worker | None = None

    def attach(self, worker: Worker) -> None:
        """Watch what this worker claims."""
        self._worker = worker
        worker.watch_claims(self._until)

    async def run_once(self) -> float | None:
        """Let the worker leave if it is not needed."""
        worker = self._worker
        if worker is None or not self._until.is_over():
            return LOOK_SECONDS
        if await self._is_needed(worker):
            return NEEDED_SECONDS
        if not self._until.is_over():
            return LOOK_SECONDS
        due_at = self._until.due_at
        left = self._seconds if due_at is None else due_at - self._clock.boot()
        self.rest = max(0.0, min(self._seconds, left))
        emit("worker_sleeps", worker_id=worker.me.worker_id, seconds=round(self.rest, 3))
        worker.sleep(self.rest)
        return None

    async def _is_needed(self, worker: Worker) -> bool:
        others = await self._store.inspector.workers()
        if any(holds(one) and one.id != worker.me.worker_id for one in others):
            return True
        return any(one.declared for one in await self._store.inspector.schedules())
