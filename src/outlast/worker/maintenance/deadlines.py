"""Ends attempts that are far above their timeout; each worker does this for all workers.

An attempt's own worker ends it at its timeout. If that worker's watchdog is stuck while its
heartbeats continue, nothing ends the attempt. So the row carries a hard deadline, and any worker
closes the attempt a while after it, by its token. The worker that ran the attempt then notices that
and ends it (``worker/claims/exchange.py``).

Three rules protect healthy attempts.

- The hard deadline is the claim plus the timeout, but an attempt's clock starts when it begins. A
  worker gives an attempt back if it would begin later after the request than the worker's patience
  (``worker/claims/exchange.py``) plus the longest wait for a slot (``worker/claims/prefetch.py``):
  that much time is allowed on top.
- A stopped worker could neither end the attempt nor hand in its end. So the worker must have been
  seen to beat without a pause for as long as the slack, all of it after the limit. A worker that
  does not beat is left to the rules of the lease.
- The store's clock is trusted only while it runs in step with this process's own
  (``model.lease.SteadyClock``): a step of it ends no attempt.
"""

from __future__ import annotations

from outlast.base.clock import Clock
from outlast.events import emit
from outlast.model.crash import CrashKind
from outlast.model.lease import Beating, SteadyClock, patience
from outlast.model.lifecycle import Outcome, OutcomeKind, Transition, decide
from outlast.store.protocol import Store
from outlast.store.values import Orphan, OverdueAttempt, Snapshot, WorkerSeen
from outlast.worker.claims.counters import Counters
from outlast.worker.claims.dead_jobs import reclaim_and_tell
from outlast.worker.claims.prefetch import TURN_SECONDS

SLACK_SECONDS = 15.0  # above timeout and grace: its own worker, and a blocked loop, act first
SLACK_BEATS = 3  # heartbeats of the attempt's worker, if these are longer


class Deadlines:
    """The part of the reaper that closes overdue attempts."""

    def __init__(self, store: Store, clock: Clock, counters: Counters | None = None) -> None:
        self._store = store
        self._counters = counters or Counters()
        self._clock = clock
        self._steady = SteadyClock()
        self._beating = Beating()

    def forget(self) -> None:
        """Start over: a scan has failed."""
        self._steady.forget()
        self._beating.forget()

    async def take_look(self, look: Snapshot) -> bool:
        """Take a snapshot made with a slack of SLACK_SECONDS; close attempts that are certainly
        overdue. Return whether any was closed."""
        now = self._clock.boot()
        self._steady.look(now, look.now)
        self._beating.look(now, [worker.sign() for worker in look.workers])
        if not look.overdue:
            return False
        seen = await self._store.overdue(SLACK_SECONDS)
        workers = {worker.worker_id: worker for worker in look.workers}
        due = [
            (late.job_id, late.token)
            for late in seen
            if late.worker_id in workers and self._is_due(late, workers[late.worker_id])
        ]
        if not due:
            return False
        closed = await reclaim_and_tell(self._store, self._decide, self._counters, only=due)
        for transition in closed:
            emit(
                "attempt_overdue",
                job_id=transition.job_id,
                token=transition.token,
                state=transition.state.value,
                reason=transition.message,
            )
        return bool(closed)

    def _is_due(self, late: OverdueAttempt, worker: WorkerSeen) -> bool:
        if late.policy.timeout is None:
            return False
        slack = max(SLACK_SECONDS, SLACK_BEATS * worker.heartbeat)
        above = late.policy.cancel_grace + patience(worker.lease) + TURN_SECONDS + slack
        unseen = self._clock.boot() - self._beating.last_beat(worker.worker_id, after=slack)
        return late.seconds - unseen >= above and self._steady.covers(late.policy.timeout + above)

    def _decide(self, orphan: Orphan) -> Transition:
        message = (
            f"far above its limit of {orphan.facts.policy.timeout:g} s, and its own worker"
            f" ({orphan.worker or orphan.worker_id}) has not ended it"
        )
        crash = orphan.crash(CrashKind.TIMEOUT, message)
        outcome = Outcome(kind=OutcomeKind.CRASHED, crash=crash, message=message)
        return decide(orphan.facts, outcome, self._clock.random)
