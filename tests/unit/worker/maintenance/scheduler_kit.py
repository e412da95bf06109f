"""Schedulers of some workers on one real file, and a clock of the test's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outlast.model.schedule import Spec
from outlast.store.limits import CodeLimits
from outlast.store.rows import JobFilter, StoredJob
from outlast.store.schedules import NewSchedule, ScheduleRow
from outlast.store.sqlite.store import SqliteStore
from outlast.store.values import NewJob
from outlast.worker.base import Declared
from outlast.worker.maintenance.scheduler import Scheduler
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import FakeOwner

NOON = 1_795_348_800.0
HOUR, DAY = 3_600.0, 86_400.0


def schedule(name: str = "hourly", spec: Spec | None = None, **fields: Any) -> NewSchedule:
    text = msgspec.json.encode(spec or Spec(every=3_600)).decode()
    values: dict[str, Any] = {"name": name, "call": NewJob(task="t"), "spec": text}
    return NewSchedule(**(values | fields))


class Team:
    """Some workers' schedulers on one store, which counts what is asked of it."""

    def __init__(self, store: SqliteStore, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.asked: list[str] = []
        self.workers: list[Scheduler] = []

    def add(self, *declared: NewSchedule) -> Scheduler:
        """A worker whose code declares these schedules."""
        code = Code(list(declared))
        store = Counting(self.store, self.asked)
        worker = Scheduler(FakeOwner(), store, code, self.clock)  # type: ignore[arg-type]
        self.workers.append(worker)
        return worker

    async def work(self, seconds: float = 0.0, step: float = 20.0) -> None:
        """Let them look and fire, time and again."""
        end = self.clock.boot() + seconds
        while True:
            for worker in self.workers:
                worker.take_look(await self.store.observe())
                await worker.run_once()
            if self.clock.boot() >= end:
                return
            self.clock.advance(min(step, end - self.clock.boot()))

    async def jobs(self) -> list[StoredJob]:
        """All jobs, first first."""
        return (await self.store.inspector.jobs(JobFilter(limit=10_000)))[::-1]

    async def ticks(self) -> list[float]:
        """The ticks that have jobs, in hours from noon."""
        return [((job.policy.tick or 0.0) - NOON) / HOUR for job in await self.jobs()]

    async def row(self, name: str = "hourly") -> ScheduleRow:
        row = await self.store.inspector.schedule(name)
        assert row is not None
        return row

    async def finish_all(self) -> None:
        """End every job."""
        await self.store.cancel([job.id for job in await self.jobs()])


class Code:
    """What a worker's code declares."""

    def __init__(self, schedules: list[NewSchedule], limits: CodeLimits | None = None) -> None:
        self.schedules, self.limits = schedules, limits or CodeLimits()

    def declared(self) -> Declared:
        return Declared({}, self.schedules, self.limits)


class Counting:
    """A store that notes the verbs that are asked of it."""

    def __init__(self, store: SqliteStore, asked: list[str]) -> None:
        self._store = store
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        self._asked.append(name)
        return getattr(self._store, name)


@pytest.fixture
async def team(tmp_path: Path) -> AsyncIterator[Team]:
    clock = ManualClock(wall=NOON + 1)
    store = SqliteStore(f"sqlite:///{tmp_path}/jobs.db", clock=clock)
    await store.open()
    yield Team(store, clock)
    await store.close()
