"""A registered worker on a manual clock whose duties do not run, for tests of its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from outlast.base.config import WorkerSettings
from outlast.errors import StoreUnavailable
from outlast.store.rows import WorkerStatus
from outlast.store.values import Beat, NewWorker, Registered, Snapshot, WorkerRef
from outlast.worker.claims.in_flight import InFlight
from outlast.worker.worker import Worker
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import FakePool, FakeStore

NEW = NewWorker(name="w", host="h", pid=1, boot_id="b", heartbeat=2.0, lease=60.0)


class Rows(FakeStore):
    """A store for registrations; unavailable when set so."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = 0
        self.registered: list[NewWorker] = []
        self.away = False
        self.replies_lost = 0
        self.errors: list[Exception] = []
        self.reconnects: list[WorkerRef | None] = []

    async def register(self, new: NewWorker) -> Registered:
        self._note("register", new.token_seen)
        self.ids += 1
        self.registered.append(new)
        if self.replies_lost:
            self.replies_lost -= 1
            raise StoreUnavailable("the reply was lost")
        return Registered(self.ids, 1)

    async def set_status(
        self, me: WorkerRef, status: WorkerStatus, *, asleep: float | None = None
    ) -> bool:
        self._note("set_status", (me.worker_id, status.value))
        return True

    async def observe(self) -> Snapshot:
        if self.away:
            raise StoreUnavailable("away")
        return Snapshot(workers=[], orphans=False, overdue=False, now=0.0)

    async def announce(self, me: WorkerRef, tasks: Sequence[str], lacks: object) -> None:
        self._note("announce", list(tasks))

    async def tell_wakeup(self, me: WorkerRef, words: str) -> None:
        self._note("tell_wakeup", words)

    async def reconnect(self, me: WorkerRef, token_seen: int) -> WorkerRef | None:
        self._note("reconnect", token_seen)
        return WorkerRef(me.worker_id, me.epoch + 1) if not self.reconnects else None

    def _note(self, verb: str, what: object) -> None:
        if self.away:
            raise StoreUnavailable("away")
        if self.errors:
            raise self.errors.pop()
        self.calls.append((verb, what))


class Stage:
    """A worker with a fake pool, on a manual clock, registered; its duties do not run."""

    def __init__(self, *queues: str) -> None:
        self.clock = ManualClock(boot=0.0)
        self.store = Rows()
        self.holds: list[float] = []
        self.worker = Worker(
            msgspec.structs.replace(NEW, queues=list(queues)),
            WorkerSettings(),
            lambda worker: FakePool(worker.in_flight),
            store=self.store,  # type: ignore[arg-type]
            open_beating_store=None,  # type: ignore[arg-type]
            wakeup=None,
            clock=self.clock,
            hold_until=self.holds.append,
        )

    @property
    def pool(self) -> FakePool:
        return self.worker.pool  # type: ignore[return-value]

    @property
    def in_flight(self) -> InFlight:
        return self.worker.in_flight

    def beat(
        self,
        asked_at: float,
        *,
        renewed: bool = True,
        worker_id: int | None = None,
        drain: bool = False,
    ) -> None:
        me = self.worker.me if worker_id is None else WorkerRef(worker_id, 1)
        self.worker._take_beat(asked_at, me, Beat(renewed=renewed, drain=drain))

    def miss(self) -> None:
        """A heartbeat has failed."""
        self.worker.registration.note_miss()

    def loses(self) -> None:
        self.worker.registration.lose("for a test")


@pytest.fixture
async def stage():
    stage = Stage()
    await stage.worker.registration.register()
    yield stage
    if stage.worker.registration._reviving is not None:
        stage.worker.registration._reviving.cancel()
        await asyncio.wait([stage.worker.registration._reviving])
