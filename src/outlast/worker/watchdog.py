"""Watches what runs: the lease's trust, each attempt's limits, and stops that are not obeyed."""

from __future__ import annotations

from collections.abc import Callable

from outlast.clock import Clock
from outlast.events import emit
from outlast.model.lease import Trust
from outlast.worker.ledger import Ledger, Running
from outlast.worker.pool import Pool

LOOK_SECONDS = 0.25


class Watchdog:
    """The duty that stops attempts: first asked, then, after their own grace, killed."""

    name = "watchdog"

    def __init__(
        self,
        ledger: Ledger,
        pool: Pool,
        *,
        trust: Callable[[], Trust],
        on_lapse: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._pool = pool
        self._trust = trust
        self._on_lapse = on_lapse
        self._clock = clock

    async def run_once(self) -> float:
        """Look at everything that runs, once."""
        now = self._clock.boot()
        if not self._trust().holds(now):
            self._on_lapse()
        for running in list(self._ledger.running.values()):
            self._judge(running, now)
        return LOOK_SECONDS

    def _judge(self, running: Running, now: float) -> None:
        if running.stopped_at is not None:
            if now - running.stopped_at >= running.claimed.policy.cancel_grace:
                self._pool.kill(running.token)
            return
        reason = self._limit_reached(running, now)
        if reason is not None:
            emit("attempt_stopping", token=running.token, reason=reason)
            self._pool.stop(running.token, reason)

    @staticmethod
    def _limit_reached(running: Running, now: float) -> str | None:
        policy = running.claimed.policy
        if policy.timeout is not None and now - running.started_at >= policy.timeout:
            return "timeout"
        stall = policy.stall_timeout
        if stall is not None and now - running.last_sign_at >= stall:
            return "stalled"
        return None
