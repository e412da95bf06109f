"""Ends attempts that are far above their timeout, whoever runs them; each worker does so for all.

An attempt's own worker ends it at its timeout. Should that worker's watchdog be stuck while its
heart beats, nobody would: so the row carries a hard deadline, and any worker closes the attempt a
while after it, by its token. The worker that ran it finds that out and ends it
(``worker/exchange.py``). The store's clock is believed only while it runs in step with this
process's own (``model.lease.SteadyClock``): a step of it ends nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from outlast.clock import Clock
from outlast.events import emit
from outlast.model.crash import CrashKind
from outlast.model.lease import SteadyClock
from outlast.model.lifecycle import Outcome, OutcomeKind, Transition, decide
from outlast.store.base import Store
from outlast.store.values import Late, Look, Orphan

SLACK_SECONDS = 15.0  # above timeout and grace: its own worker, and a blocked loop, go first


class Deadlines:
    """The part of the reaper that closes what is overdue; ``on_reclaimed`` hears of it."""

    def __init__(self, store: Store, on_reclaimed: Callable[[], None], *, clock: Clock) -> None:
        self._store = store
        self._on_reclaimed = on_reclaimed
        self._clock = clock
        self._steady = SteadyClock()

    def forget(self) -> None:
        """Start anew: a look has failed."""
        self._steady.forget()

    async def take(self, look: Look) -> None:
        """Take in a look with a slack of SLACK_SECONDS; close what is certainly overdue."""
        self._steady.look(self._clock.boot(), look.now)
        if not look.overdue:
            return
        seen = await self._store.overdue(SLACK_SECONDS)
        due = [(late.job_id, late.token) for late in seen if self._is_due(late)]
        if due:
            self._tell(await self._store.reclaim(self._decide, only=due))

    def _is_due(self, late: Late) -> bool:
        timeout, grace = late.policy.timeout, late.policy.cancel_grace
        if timeout is None or late.seconds < grace + SLACK_SECONDS:
            return False
        return self._steady.covers(timeout + grace + SLACK_SECONDS)

    def _decide(self, orphan: Orphan) -> Transition:
        message = (
            f"timeout: far above its limit of {orphan.facts.policy.timeout:g} s, and its own worker"
            f" ({orphan.worker or orphan.worker_id}) has not ended it"
        )
        crash = orphan.crash(CrashKind.TIMEOUT, message)
        outcome = Outcome(kind=OutcomeKind.CRASHED, crash=crash, message=message)
        return decide(orphan.facts, outcome, self._clock.random)

    def _tell(self, closed: list[Transition]) -> None:
        for transition in closed:
            emit(
                "attempt_overdue",
                job_id=transition.job_id,
                token=transition.token,
                state=transition.state.value,
                reason=transition.message,
            )
        if closed:
            self._on_reclaimed()
