"""Finds workers that are gone and gives their jobs back. Every worker does this for all.

Two proofs: the host-local lock file is free (the kernel released it when the last process that
held it died), or the presence in the database is gone, with no beat for longer than one is due.
And the observer's rule (the beat counter stood still for that worker's own lease, on this
process's own clock). A look that fails makes the observer start anew, so an outage of
the store never counts as silence of a worker.

One statement a look tells of all this at once, and whether there are orphans at all and attempts
past their hard deadline (``worker/deadlines.py``): only where there are does anything more follow.
"""

from __future__ import annotations

from collections.abc import Callable

from outlast.clock import Clock
from outlast.errors import StoreError
from outlast.events import emit
from outlast.model.crash import CrashKind
from outlast.model.lease import LOOK_FRACTION, DeathCause, Observer, PresenceObserver
from outlast.model.lifecycle import Outcome, OutcomeKind, Transition, decide
from outlast.store.base import ORPHANS_MAX, Store
from outlast.store.lockfile import Probe, probe
from outlast.store.values import Look, Orphan, WorkerSeen
from outlast.worker.deadlines import SLACK_SECONDS, Deadlines

LOOK_SECONDS = 1.0  # between two looks; less where a worker has a short lease
UNKNOWN = "it is no longer registered as alive"


class Reaper:
    """The duty that cleans up after workers that are gone; ``on_reclaimed`` hears of what."""

    name = "reaper"

    def __init__(
        self,
        store: Store,
        own_id: Callable[[], int],
        on_reclaimed: Callable[[list[Transition]], None],
        *,
        clock: Clock,
        on_reaped: Callable[[WorkerSeen, DeathCause], None] = lambda gone, cause: None,
        on_look: Callable[[Look], None] = lambda look: None,
        deadlines: Deadlines | None = None,
    ) -> None:
        self._on_reaped = on_reaped
        self._on_look = on_look
        self._deadlines = deadlines
        self._store = store
        self._own_id = own_id
        self._on_reclaimed = on_reclaimed
        self._clock = clock
        self._observer = Observer()
        self._presence = PresenceObserver()
        self._first = True  # nothing has been reconciled yet

    async def run_once(self) -> float:
        """Look at every worker once, reap those that are gone, reclaim what they held."""
        try:
            asked_at = self._clock.boot()
            look = await self._store.observe(SLACK_SECONDS)
            reaped = await self._reap(look.workers, asked_at)
            if reaped or look.orphans or self._first:
                await self._reconcile()
            if self._deadlines is not None:
                await self._deadlines.take(look)
        except StoreError:
            self._forget()
            raise
        self._on_look(look)
        soon = self._presence.pause or LOOK_SECONDS
        return min([LOOK_SECONDS, soon, *(each.lease * LOOK_FRACTION for each in look.workers)])

    def _forget(self) -> None:
        self._observer.forget()
        self._presence.forget()
        if self._deadlines is not None:
            self._deadlines.forget()

    async def _reap(self, seen: list[WorkerSeen], asked_at: float) -> int:
        now = self._clock.boot()
        others = [each for each in seen if each.worker_id != self._own_id()]
        signs = [each.sign() for each in others]
        silent = {sign.worker_id for sign in self._observer.look(now, signs)}
        absent = {sign.worker_id for sign in self._presence.look(asked_at, now, signs)}
        count = 0
        for each in others:
            cause = self._cause_of_death(each, silent, absent)
            if cause and await self._store.reap(each, cause):
                count += 1
                _tell_reaped(each, cause)
                self._on_reaped(each, cause)
        if count:
            emit("workers_deactivated", count=count)
        return count

    @staticmethod
    def _cause_of_death(each: WorkerSeen, silent: set[int], absent: set[int]) -> DeathCause | None:
        lock = probe(each.lock_path, each.lock_device, each.lock_inode, each.boot_id)
        if lock is Probe.FREE:
            return DeathCause.LOCK_FILE
        if each.worker_id in absent and lock is not Probe.HELD:  # held: its processes are here
            return DeathCause.PRESENCE
        return DeathCause.SILENCE if each.worker_id in silent else None

    async def _reconcile(self) -> None:
        """Reclaim; the first time this is what the worker finds at its start."""
        count = await self._reclaim()
        if self._first:
            self._first = False
            emit("reconciliation_complete", orphaned_count=count)

    async def _reclaim(self) -> int:
        count = 0
        while True:
            applied = await self._store.reclaim(self._decide)
            count += len(applied)
            if applied and self._first:
                emit("orphaned_jobs_detected", count=len(applied))
            elif applied:
                emit("stale_jobs_detected", count=len(applied))
            for transition in applied:
                emit(
                    "job_reenqueued",
                    job_id=transition.job_id,
                    token=transition.token,
                    state=transition.state.value,
                    reason=transition.message,
                )
            if applied:
                self._on_reclaimed(applied)
            if len(applied) < ORPHANS_MAX:
                return count

    def _decide(self, orphan: Orphan) -> Transition:
        why = UNKNOWN if orphan.cause is None else orphan.cause.sentence
        message = f"worker {orphan.worker or orphan.worker_id} is gone: {why}"
        outcome = Outcome(
            kind=OutcomeKind.CRASHED,
            crash=orphan.crash(CrashKind.LOST_WORKER, message),
            message=message,
            proven=orphan.cause is not None and orphan.cause.proven,
        )
        return decide(orphan.facts, outcome, self._clock.random)


def _tell_reaped(gone: WorkerSeen, cause: DeathCause) -> None:
    emit(
        "worker_reaped",
        worker=gone.name,
        worker_id=gone.worker_id,
        cause=cause.value,
        age=gone.age,
    )
