"""Notices a worker whose slots are all held by attempts that wait for other jobs.

A task that enqueues a job and waits for its result holds its slot meanwhile. Where all slots are
held so, nothing that they wait for begins here; if no other worker is there, nothing ever moves.
The worker cannot fix that; it emits an event.
"""

from __future__ import annotations

from outlast.base.clock import Clock
from outlast.events import emit
from outlast.worker.base import AttemptStarter
from outlast.worker.claims.ledger import Ledger

HELD_SECONDS = 5.0  # of all slots, before it is said; once each time


class Waits:
    """Looks, with the watchdog, whether all attempts wait for other jobs and no slot is free."""

    def __init__(self, ledger: Ledger, starter: AttemptStarter, clock: Clock) -> None:
        self._ledger = ledger
        self._starter = starter
        self._clock = clock
        self._since: float | None = None
        self._told = False

    def look(self) -> None:
        """Look once."""
        now = self._clock.boot()
        if not self._all_wait() or self._has_free_slot():
            self._since, self._told = None, False
            return
        self._since = now if self._since is None else self._since
        if not self._told and now - self._since >= HELD_SECONDS:
            self._told = True
            self._tell()

    def _has_free_slot(self) -> bool:
        """Whether a task like those that wait could begin. Where async tasks fill all runners, the
        spare takes a plain function, which may not be what they wait for."""
        waiting = {each.claimed.task for each in self._ledger.running.values()}
        requests = self._starter.make_requests(0)
        return any(not request.solo and waiting & {*request.tasks} for request in requests)

    def _all_wait(self) -> bool:
        running = self._ledger.running.values()
        return bool(running) and all(
            each.progress is not None and each.progress.waits_for is not None for each in running
        )

    def _tell(self) -> None:
        one = min(self._ledger.running.values(), key=lambda each: each.claimed.job_id)
        emit(
            "slots_held_by_waiting",
            running=len(self._ledger.running),
            job_id=one.claimed.job_id,
            waits_for=None if one.progress is None else one.progress.waits_for,
        )
