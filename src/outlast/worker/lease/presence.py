"""Holds a worker's presence lock: takes it at each registration and retakes a lost one at once.

Each scan by a watching worker shows whether the lock is there, and the end of its session wakes
this duty at once: it only has to check now and then that the lock is still its own. A worker that
cannot hold it only notes this on its row, and others no longer judge by its presence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from outlast.base.clock import Clock
from outlast.errors import StoreError, text_of
from outlast.events import emit
from outlast.model.lease import Presence as Seen
from outlast.store.protocol import PresenceLock, Store
from outlast.store.values import WorkerRef, WorkerSeen
from outlast.worker.base import Lease
from outlast.worker.service import Nudge

RETRY_SECONDS = 0.25
OFF_AFTER_SECONDS = 1.0  # the server may hold an ended session's lock for an instant
PROVE_BEATS = 10  # heartbeats between two proofs
TELL_SECONDS = 1.0  # to write the reason to the row; short, since the lock may be retaken meanwhile


class PresenceKeeper:
    """The duty that holds the lock of a registration."""

    name = "presence"

    def __init__(
        self,
        lock: PresenceLock,
        store: Store,
        lease: Lease,
        *,
        clock: Clock,
    ) -> None:
        self._lock = lock
        self.nudge = Nudge()
        self._store = store
        self._lease = lease
        self._clock = clock
        self._worker_id = 0
        self._held = False
        self._lacking_since: float | None = None
        self._told: str | None = None

    async def run_once(self) -> float:
        """Take or prove the lock; return the seconds until the next time."""
        me = self._lease.me
        if me.worker_id != self._worker_id:  # each registration has its own lock
            await self._lock.release()
            self._worker_id, self._held = me.worker_id, False
            self._lacking_since = self._told = None
        try:
            reason = await self._lock.hold(me, self.nudge.give)
        except StoreError as error:
            reason = text_of(error)
        if reason is not None:
            return await self._note_lacking(me, reason)
        if not self._held:
            self._held = True
            emit("presence_taken", worker_id=me.worker_id)
        self._lacking_since = self._told = None
        return PROVE_BEATS * self._lease.terms.heartbeat

    def is_lost(self, workers: Iterable[WorkerSeen]) -> bool:
        """Whether a scan shows the lock as absent that this duty believes to hold."""
        return self._held and any(
            each.worker_id == self._worker_id and each.presence is not Seen.HELD for each in workers
        )

    async def _note_lacking(self, me: WorkerRef, reason: str) -> float:
        self._held = False
        now = self._clock.boot()
        if self._lacking_since is None:
            self._lacking_since = now
        if now - self._lacking_since < OFF_AFTER_SECONDS:
            return RETRY_SECONDS
        if reason != self._told:
            with suppress(StoreError, TimeoutError):
                async with asyncio.timeout(TELL_SECONDS):
                    await self._store.presence_off(me, reason)
                self._told = reason
                emit("presence_off", worker_id=me.worker_id, reason=reason)
        return RETRY_SECONDS if self._told is None else self._lease.terms.heartbeat
