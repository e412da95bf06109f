"""Ends jobs that have expired, also while this worker claims nothing: it is full, or drains."""

from __future__ import annotations

from outlast.events import emit
from outlast.store.protocol import EXPIRE_MAX, Store

EXPIRE_SECONDS = 10.0  # between two looks; an exchange that claims looks as well


class Expirer:
    """The duty that ends queued jobs which have not begun in time."""

    name = "expirer"

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run_once(self) -> float:
        """End one batch; come back at once while there is more."""
        ended = await self._store.expire()
        if ended:
            emit("jobs_expired", rows=ended)
        return 0.1 if ended >= EXPIRE_MAX else EXPIRE_SECONDS
