"""Back-pressure (``app.queue(…)``): refuses to enqueue while too many jobs of a queue wait.

A client counts the waiting jobs at most once a second, up to the maximum and no further, and adds
the jobs that it enqueues itself meanwhile. So a maximum may be exceeded by the jobs that all
clients enqueue within one second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from outlast.base.clock import Clock
from outlast.errors import QueueFull
from outlast.store.values import Enqueued, NewJob

COUNT_SECONDS = 1.0  # for which a count is used
LOOK_SECONDS = 0.2  # between two checks for room


class _Seen(msgspec.Struct):
    """A count of a queue's waiting jobs, and when it was taken."""

    count: int
    at: float


class QueueMaxima:
    """The largest numbers of waiting jobs that the code has declared, by queue."""

    def __init__(self) -> None:
        self.maxima: dict[str, int] = {}
        self._seen: dict[str, _Seen] = {}

    async def admit(
        self,
        jobs: Sequence[NewJob],
        count: Callable[[str, int], Awaitable[int]],
        clock: Clock,
        wait: float = 0.0,
    ) -> None:
        """Return once there is room for these jobs, and count them as enqueued.

        ``count(queue, most)`` counts waiting jobs. Raises QueueFull after ``wait`` seconds without
        room for all of them.
        """
        wanted = Counter(job.queue for job in jobs if job.queue in self.maxima)
        if not wanted:
            return
        until = clock.boot() + wait
        while full := await self._find_full(wanted, count, clock):
            left = until - clock.boot()
            if left <= 0:
                raise full
            await clock.sleep(min(LOOK_SECONDS, left))
            self._seen.pop(full.queue, None)
        for queue, number in wanted.items():
            if queue in self._seen:  # another call may wait for a new count
                self._seen[queue].count += number

    def note_stored(self, jobs: Sequence[NewJob], stored: Sequence[Enqueued]) -> None:
        """Uncount jobs that ``admit`` counted, but whose key or window already had a job."""
        for job, one in zip(jobs, stored, strict=False):
            if not one.created and job.queue in self._seen:
                self._seen[job.queue].count -= 1

    async def _find_full(
        self, wanted: Counter[str], count: Callable[[str, int], Awaitable[int]], clock: Clock
    ) -> QueueFull | None:
        for queue, number in wanted.items():
            most, seen = self.maxima[queue], self._seen.get(queue)
            if seen is None or clock.boot() - seen.at >= COUNT_SECONDS:
                at = clock.boot()
                counted = await count(queue, most)
                if self._seen.get(queue) is seen:  # else another call has counted meanwhile
                    self._seen[queue] = _Seen(counted, at)
                seen = self._seen.get(queue) or _Seen(counted, at)
            if seen.count + number > most:
                return QueueFull(
                    f"queue {queue!r} is full: {seen.count:,} jobs wait, and at most {most:,} may"
                    f" (app.queue); {number:,} more were not enqueued",
                    queue=queue,
                    waiting=seen.count,
                    waiting_max=most,
                )
        return None
