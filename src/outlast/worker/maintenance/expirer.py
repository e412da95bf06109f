"""Ends expired jobs, also while this worker claims nothing because it is full or idle."""

from __future__ import annotations

from outlast.base.clock import Clock
from outlast.events import emit
from outlast.store.protocol import EXPIRE_MAX, Store
from outlast.worker.claims.exchange import Exchange
from outlast.worker.claims.wake_turns import EASED_PEERS, WakeTurns

EXPIRE_SECONDS = 10.0  # between two checks; an exchange that claims checks as well


class Expirer:
    """The duty that ends queued jobs which have not begun in time, unless a claim has done so.
    ``kind`` gives the number of workers of this kind: by lot, all of them together do it as often
    as ``EASED_PEERS`` workers would."""

    name = "expirer"

    def __init__(self, store: Store, claims: Exchange, clock: Clock, kind: WakeTurns) -> None:
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
