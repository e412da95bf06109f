"""Ends jobs that have expired, also while this worker claims nothing: it is full, or drains."""

from __future__ import annotations

from collections.abc import Callable

from outlast.clock import Clock
from outlast.events import emit
from outlast.store.protocol import EXPIRE_MAX, Store

EXPIRE_SECONDS = 10.0  # between two looks; an exchange that claims looks as well


class Expirer:
    """The duty that ends queued jobs which have not begun in time. ``claimed_at``: when this
    worker's last claim was answered, on the boot clock."""

    name = "expirer"

    def __init__(self, store: Store, claimed_at: Callable[[], float], clock: Clock) -> None:
        self._store = store
        self._claimed_at = claimed_at
        self._clock = clock

    async def run_once(self) -> float:
        """End one batch, unless a claim has done so; come back at once while there is more."""
        wait = self._claimed_at() + EXPIRE_SECONDS - self._clock.boot()
        if wait > 0:
            return wait
        ended = await self._store.expire()
        if ended:
            emit("jobs_expired", rows=ended)
        return 0.1 if ended >= EXPIRE_MAX else EXPIRE_SECONDS
