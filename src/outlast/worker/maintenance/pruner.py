"""Deletes jobs and workers that ended long ago, and does other chores of tables, in batches bounded
in rows and, roughly, in time.
"""

from __future__ import annotations

from outlast.base.clock import Clock
from outlast.errors import StoreError
from outlast.events import emit
from outlast.store.protocol import EXPIRE_MAX, PRUNE_MAX, Store
from outlast.worker.claims.exchange import Exchange
from outlast.worker.claims.pacing import EASED_PEERS, WakeTurns
from outlast.worker.service import Nudge

PRUNE_SECONDS = 60.0
PRUNE_PEERS = 3  # workers that prune at full rate; if a kind has more, that many do, by lot
PRUNE_FIRST = 100  # rows of the first batch
BATCH_SECONDS = 0.25  # for one batch: the reaper waits for it
HELPS = 0.75  # of the time of a batch twice as large; above that, fewer rows would not help
FULL_LOOK_SECONDS = 600.0  # between two scans from the oldest job; others continue the last one
EXPIRE_SECONDS = 10.0  # between two checks; an exchange that claims checks as well


class Pruner:
    """The duty that keeps the tables small. ``keep_dead``: seconds to keep dead jobs, if an
    operator sets it. ``kind`` gives the number of workers of this kind."""

    name = "pruner"

    def __init__(
        self,
        store: Store,
        *,
        keep_jobs: float,
        keep_workers: float,
        clock: Clock,
        kind: WakeTurns,
        keep_dead: float | None = None,
    ) -> None:
        self.nudge = Nudge()
        self._store = store
        self._keep_jobs = keep_jobs
        self._keep_workers = keep_workers
        self._keep_dead = keep_dead
        self._clock = clock
        self._limit = PRUNE_FIRST
        self._slow: float | None = None  # seconds of the last batch, which had twice the rows
        self._full_look_at = float("-inf")
        self._kind = kind
        self._has_begun = False  # and has not finished

    async def run_once(self) -> float:
        """Delete one batch, if the lot falls on this worker; run again at once if there is more."""
        if not self._has_begun:
            if not self._is_drawn():
                return self._pause()
            for holder in await self._store.inspector.lock_holders():
                emit("limits_locked", holder=str(holder), fix=holder.fix)
        self._has_begun = True
        began_at = self._clock.boot()
        onward = began_at < self._full_look_at
        try:
            gone = await self._store.prune(
                jobs_older_than=self._keep_jobs,
                workers_older_than=self._keep_workers,
                dead_older_than=self._keep_dead,
                limit=self._limit,
                onward=onward,
            )
        except StoreError:  # on a full disk, or at a time limit, a smaller batch may work
            self._limit = max(1, self._limit // 2)
            raise
        if not onward:
            self._full_look_at = began_at + FULL_LOOK_SECONDS
        merged = await self._store.merge_minutes(self._limit)
        for wrong in await self._store.recount_limits():
            emit(
                "limit_recounted",
                limit=wrong.name,
                key=wrong.key,
                counted=wrong.counted,
                running=wrong.holders,
            )
        more = gone >= self._limit or merged >= self._limit
        self._suit(self._clock.boot() - began_at, more=more)
        if gone:
            emit("jobs_pruned", rows=gone)
        self._has_begun = more
        return 0.1 if more else self._pause()

    def _is_drawn(self) -> bool:
        """Whether this worker prunes now: it draws each time, since the others may leave."""
        peers = self._kind.peers
        return peers <= PRUNE_PEERS or self._clock.random() * peers <= PRUNE_PEERS

    def _pause(self) -> float:
        """Return the seconds until the next run, at random: many workers do not run together."""
        if self._kind.peers <= PRUNE_PEERS:
            return PRUNE_SECONDS
        return PRUNE_SECONDS * (0.5 + self._clock.random())

    def _suit(self, seconds: float, *, more: bool) -> None:
        """Adapt the size of batches: smaller if they take long. If half the rows take as long, as
        on a disk with slow commits, small batches would never finish: then they grow, too."""
        slow, self._slow = self._slow, None
        if seconds <= BATCH_SECONDS:
            self._limit = min(PRUNE_MAX, 2 * self._limit) if more else self._limit
        elif slow is not None and seconds > HELPS * slow:
            self._limit = min(PRUNE_MAX, 4 * self._limit)
        elif self._limit > 1:
            self._slow = seconds
            self._limit //= 2


class Expirer:
    """The duty that ends queued jobs which have not begun in time. By lot, all workers of this kind
    (``kind`` gives their number) do it as often as ``EASED_PEERS`` workers would."""

    name = "expirer"

    def __init__(self, store: Store, claims: Exchange, clock: Clock, kind: WakeTurns) -> None:
        self.nudge = Nudge()
        self._store = store
        self._claims = claims
        self._clock = clock
        self._kind = kind

    async def run_once(self) -> float:
        """End one batch, unless a claim has done so; run again at once while there is more."""
        wait = self._claims.claimed_at + EXPIRE_SECONDS - self._clock.boot()
        if wait > 0:
            return wait
        peers = self._kind.peers
        if peers > EASED_PEERS and self._clock.random() * peers > EASED_PEERS:
            return EXPIRE_SECONDS
        ended = await self._store.expire()
        if ended:
            emit("jobs_expired", rows=ended)
        return 0.1 if ended >= EXPIRE_MAX else EXPIRE_SECONDS
