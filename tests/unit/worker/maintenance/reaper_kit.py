"""A reaper with a store of workers and orphans, for its tests."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.errors import StoreUnavailable
from outlast.model.crash import Progress
from outlast.model.job import JobFacts
from outlast.model.lease import DeathCause
from outlast.store.lockfile import LockFile, boot_id
from outlast.store.protocol import ORPHANS_MAX
from outlast.store.values import Orphan, Snapshot, WorkerRef, WorkerSeen
from outlast.worker.claims.counters import Counters
from outlast.worker.maintenance.reaper import Reaper
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import FakeOwner, lease_of

OWN = 1


def seen(worker_id: int, beat: int = 1, **fields: Any) -> WorkerSeen:
    values: dict[str, Any] = {
        "worker_id": worker_id,
        "name": f"w{worker_id}",
        "host": "h",
        "boot_id": boot_id(),
        "beat": beat,
        "heartbeat": 2.0,
        "lease": 60.0,
        **fields,
    }
    return WorkerSeen(**values)


def orphan(
    job_id: int, worker_id: int = 2, cause: DeathCause | None = None, **facts: Any
) -> Orphan:
    values: dict[str, Any] = {"job_id": job_id, "token": 100 + job_id, **facts}
    return Orphan(
        facts=JobFacts(**values),
        worker_id=worker_id,
        worker=f"w{worker_id}",
        host="h",
        progress=Progress(0.5),
        checkpoint_age=3.0,
        cause=cause,
    )


class Rows:
    """A store of workers and orphans."""

    def __init__(self) -> None:
        self.workers: list[WorkerSeen] = []
        self.orphans: list[Orphan] = []
        self.reaped: list[int] = []
        self.causes: list[DeathCause] = []
        self.begun: list[int | None] = []
        self.beats_on = False  # a worker that beats between the look and the reap
        self.fails = False
        self.locked: set[int] = set()  # workers whose row another session holds
        self.reclaim_fails = False
        self.incarnation = "a"
        self.errors: list[Exception] = []
        self.decided: list[Any] = []
        self.reclaims = 0

    async def observe(self, slack: float) -> Snapshot:
        if self.fails:
            raise StoreUnavailable("away")
        if self.errors:
            raise self.errors.pop()
        return Snapshot(
            workers=list(self.workers),
            orphans=bool(self.orphans),
            overdue=False,
            now=0.0,
            incarnation=self.incarnation,
        )

    async def reap(self, gone: WorkerSeen, cause: DeathCause) -> bool:
        self.begun.append(gone.begun)
        if gone.worker_id in self.locked:
            raise StoreUnavailable("another session holds its row")
        if self.beats_on:
            return False
        self.reaped.append(gone.worker_id)
        self.causes.append(cause)
        self.workers = [each for each in self.workers if each.worker_id != gone.worker_id]
        return True

    async def reclaim(self, decide, limit=ORPHANS_MAX, only=None):
        self.reclaims += 1
        if self.reclaim_fails:
            raise StoreUnavailable("too slow")
        batch, self.orphans = self.orphans[:limit], self.orphans[limit:]
        decided = [decide(each) for each in batch]
        self.decided += decided
        return decided


async def fail_once(reaper: Reaper, rows: Rows, how: str) -> None:
    """Let one run of the reaper fail by what ``rows`` calls so."""
    setattr(rows, how, True)
    with pytest.raises(StoreUnavailable):
        await reaper.run_once()
    setattr(rows, how, False)


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock(boot=0.0)
        self.rows = Rows()
        self.owner = FakeOwner()
        self.counters = Counters()
        self.reaper = Reaper(
            self.owner,
            self.rows,  # type: ignore[arg-type]
            clock=self.clock,
            own=lease_of(WorkerRef(OWN, 1)),
            counters=self.counters,
        )

    async def looks(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.reaper.run_once()
            self.clock.advance(1.0)


@pytest.fixture
def scene():
    return Scene()


@pytest.fixture
def lock(tmp_path):
    lock = LockFile.create(tmp_path / "locks", "w2")
    yield lock
    lock.release()


def with_lock(lock: LockFile, **fields: Any) -> WorkerSeen:
    values = {
        "lock_path": str(lock.path),
        "lock_device": lock.device,
        "lock_inode": lock.inode,
        **fields,
    }
    return seen(2, **values)
