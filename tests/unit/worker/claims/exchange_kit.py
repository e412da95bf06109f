"""The duty of exchanging without a store or runners, for its tests."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from outlast.errors import StoreUnavailable
from outlast.store.values import ClaimRequest, WorkerRef
from outlast.store.wakeup import Health
from outlast.wakeup.inbox import Inbox
from outlast.worker.claims.checkpoints import CheckpointWriter
from outlast.worker.claims.exchange import Exchange
from outlast.worker.claims.pauses import PauseKeeper
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import (
    COMPLETED,
    FakeOwner,
    FakePool,
    FakeStore,
    claimed,
    new_in_flight,
    new_plan,
)

POLL, LOOK, RECONCILE = 1.0, 2.0, 30.0


class Holder(FakeOwner):
    """A registration that stands, until it is told otherwise."""

    def __init__(self, store: FakeStore) -> None:
        super().__init__()
        self.claims = True
        self.lost = False
        self.fails = False
        self._store = store

    def may_claim(self) -> bool:
        return self.claims

    async def reconnect(self) -> bool:
        self._store.calls.append(("reconnect", None))
        if self.fails:
            raise StoreUnavailable("locked")
        if not self.lost:
            self.me = WorkerRef(self.me.worker_id, self.me.epoch + 1)
        return not self.lost


class Unpaused(PauseKeeper):
    """The keeper of pauses in a store without any."""

    def are_known(self) -> bool:
        return True


class Bench:
    """An exchange and all that it works with."""

    rest: asyncio.Future[None]  # until the next trip, once a test begins to wait

    def __init__(
        self,
        slots: int = 10,
        inbox: Inbox | None = None,
        health: Health | None = None,
    ) -> None:
        self.clock = ManualClock(boot=0.0)
        self.store = FakeStore()
        self.health: Any = health
        wakeup: Any = None if health is None else SimpleNamespace(health=health)
        self.plan = new_plan(self.clock, poll=POLL, wakeup=wakeup, inbox=inbox)
        self.nudge = self.plan.nudge
        self.in_flight = new_in_flight(self.clock, self.plan)
        self.pool = FakePool(self.in_flight, slots)
        self.holder = Holder(self.store)
        self.checkpoints = CheckpointWriter(self.store, self.in_flight)  # type: ignore[arg-type]
        owner: Any = self.plan.turns._owner
        owner.pool = self.pool
        self.exchange = Exchange(
            self.store,  # type: ignore[arg-type]
            self.in_flight,
            self.pool,
            self.holder,
            self.checkpoints,
            self.plan,
            Unpaused(self.holder, self.store, self.in_flight, self.clock),  # type: ignore[arg-type]
            clock=self.clock,
        )

    def ends(self, *tokens: int) -> None:
        for token in tokens:
            self.in_flight.claim([claimed(token)])
            self.in_flight.end(token, COMPLETED)

    def handed_in(self) -> list[list[int]]:
        return [tokens for verb, (tokens, _) in self._exchanges() if tokens]

    def requests(self) -> list[list[ClaimRequest]]:
        return [requests for _, (_, requests) in self._exchanges()]

    def _exchanges(self):
        return [call for call in self.store.calls if call[0] == "exchange"]


@pytest.fixture
def bench():
    return Bench()
