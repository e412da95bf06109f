"""Chooses which workers watch over all others: a few of them, however many there are.

A scan of all workers costs the store time in proportion to their number, so not every worker scans
each second. A worker that keeps one of the store's few *watches* leaves its *mark* there after each
successful scan: its id, and the number of its scans without a pause. All workers peek at the marks.
Where a mark has not changed for a few peeks, the first worker to notice steps in. No lock is held,
so no watcher can be in the way of the next, and no clock is compared with another.

Two workers may keep one watch, if a watcher comes back or two step in at once. The mark with more
scans wins, so that the longest observation continues; of equal ones, the lower id. The other worker
leaves once the winning mark has changed again, since a single mark may be a late one. Until then
both watch, which costs a scan and harms nothing: a watcher has no right that other workers lack.

A new worker watches until it has seen the mark of each watch change.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlast.model.lease import LOOK_SECONDS

STALE_PEEKS = 3  # peeks in a row with the same mark; a stall of the peeks counts as one
STALE_SECONDS = STALE_PEEKS * LOOK_SECONDS
DOUBT_SECONDS = 1.5 * LOOK_SECONDS  # a working watcher has left another mark by then
PAUSE_SECONDS = 5.0  # without a peek: the worker was stopped or cut off, and starts over
_ID_BITS = 40
ID_MASK = (1 << _ID_BITS) - 1
_COUNT_MAX = 2**22  # scans: the mark fits 63 bits; beyond it, counting starts over


class WatchPart:
    """One worker's part in the watches. ``is_on``: whether it watches; ``place``: its watch."""

    def __init__(self) -> None:
        self.is_on = True
        self.place: int | None = None
        self._worker_id = 0
        self._looks = 0
        self._rival = 0  # the last mark on its own watch that wins over its own
        self._seen: list[_Seen] = []
        self._peeked_at = float("-inf")

    def take_peek(self, now: float, worker_id: int, marks: Sequence[int]) -> bool:
        """Take the marks read now, on the boot clock. Return whether this worker has just stepped
        in, and should leave its mark at once."""
        if now - self._peeked_at > PAUSE_SECONDS:
            # the marks that were seen to change stay: a slow store makes no worker begin to watch
            self._looks = 0
            for each in self._seen:
                each.begin(now)
        self._peeked_at = now
        self._note(now, marks)
        if worker_id & ID_MASK != self._worker_id:
            self._worker_id, self.place = worker_id & ID_MASK, None
        if self.place is not None and self._has_to_leave(marks[self.place]):
            self.place, self.is_on = None, False
        if self.place is None and self._step_in(now):
            return True
        if self.place is None and all(each.has_changed for each in self._seen):
            self.is_on = False
        return False

    def doubts(self) -> bool:
        """Whether a watch may have lost its watcher, so that another peek soon is worth it."""
        return any(each.is_doubtful() for each in self._seen)

    def next_mark(self) -> int:
        """Return the mark to leave after one more scan."""
        self._looks = self._looks % _COUNT_MAX + 1
        return self._looks << _ID_BITS | self._worker_id

    def forget(self) -> None:
        """Start over: the store was unreachable for a while, perhaps for all workers."""
        self._looks = 0
        self._seen = []

    def _note(self, now: float, marks: Sequence[int]) -> None:
        if len(marks) != len(self._seen):
            self._seen = [_Seen(mark, now) for mark in marks]
            return
        for seen, mark in zip(self._seen, marks, strict=True):
            seen.note(now, mark)

    def _has_to_leave(self, mark: int) -> bool:
        """Whether another worker, whose mark wins, keeps this watch."""
        looks, worker_id = mark >> _ID_BITS, mark & ID_MASK
        wins = (looks, -worker_id) > (self._looks, -self._worker_id)
        if worker_id == self._worker_id or not wins:
            return False
        before, self._rival = self._rival, mark
        return before not in {0, mark}

    def _step_in(self, now: float) -> bool:
        free = (place for place, seen in enumerate(self._seen) if seen.is_free(now))
        self.place = next(free, None)
        if self.place is None:
            return False
        self._looks, self._rival, self.is_on = 0, 0, True
        self._seen[self.place].begin(now)
        return True


class _Seen:
    """One watch's mark, as the peeks since it first appeared have shown it."""

    def __init__(self, mark: int, now: float) -> None:
        self._mark = mark
        self.has_changed = False
        self.begin(now)

    def begin(self, now: float) -> None:
        self._since = self._noted_at = now
        self._peeks = 0

    def note(self, now: float, mark: int) -> None:
        self._noted_at = now
        if mark == self._mark:
            self._peeks += 1
            return
        self._mark, self.has_changed = mark, True
        self.begin(now)

    def is_doubtful(self) -> bool:
        """Whether the watch was kept, and its mark, when last seen, was older than a working
        watcher's. Time since then is not a sign: two peeks in a second may show the same mark."""
        return bool(self._mark) and self._noted_at - self._since >= DOUBT_SECONDS

    def is_free(self, now: float) -> bool:
        """Whether the watch was never kept, or is no longer kept."""
        if not self._mark:
            return True
        return self._peeks >= STALE_PEEKS and now - self._since >= STALE_SECONDS
