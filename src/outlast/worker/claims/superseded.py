"""Stops attempts of this worker that another worker has closed: first asks, then kills."""

from __future__ import annotations

from outlast.base.clock import Clock
from outlast.events import emit
from outlast.store.protocol import Store
from outlast.worker.base import Pool
from outlast.worker.claims.ledger import Ledger


class SupersededAttempts:
    """Finds such attempts once in ``look_every`` seconds.

    This is not left to the watchdog: another worker closes an attempt because the watchdog is
    stuck.
    """

    def __init__(
        self, store: Store, ledger: Ledger, pool: Pool, clock: Clock, look_every: float
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._control = pool.control
        self._runner_control = pool.runner_control
        self._clock = clock
        self._look_every = look_every
        self._looked_at = clock.boot()
        self._asked: set[int] = set()  # asked to stop; killed at the next check

    def is_due(self) -> bool:
        """Whether to check now."""
        return self._clock.boot() - self._looked_at >= self._look_every

    async def look(self) -> None:
        """Ask newly found attempts to stop, and kill those found before."""
        self._looked_at = self._clock.boot()
        held = [(each.claimed.job_id, each.token) for each in self._ledger.running.values()]
        lost = await self._store.superseded(held) if held else []
        for token in lost:
            running = self._ledger.running.get(token)
            if token in self._asked:
                if self._runner_control is not None:
                    self._runner_control.kill(token)
            elif running is not None:
                emit("attempt_superseded", job_id=running.claimed.job_id, token=token)
                self._control.stop(token, "lease_lost")
        self._asked = set(lost)
