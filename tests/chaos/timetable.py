"""Schedules of a chaos run: put before the faults, paused after them, and counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from outlast.errors import StoreUnavailable
from outlast.model.schedule import Spec
from outlast.model.schedule_plan import CatchUp, Overlap
from outlast.store.protocol import Store
from outlast.store.rows import StoredJob
from outlast.store.schedules import NewSchedule, ScheduleRow
from tests.chaos.tasks import KEYED, quick

EVERY_MAX = 10  # seconds
KINDS = [(Overlap.ALLOW, CatchUp.ALL), (Overlap.SKIP, CatchUp.LAST), (Overlap.ALLOW, CatchUp.NONE)]
TRIES = 100


class Timetable:
    """The schedules of a run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._begun: dict[str, ScheduleRow] = {}
        self._ended: list[ScheduleRow] = []

    async def put(self, number: int) -> None:
        """Put this many, of 1 to EVERY_MAX seconds."""
        for n in range(number):
            overlap, catch_up = KINDS[n % len(KINDS)]
            spec = msgspec.json.encode(Spec(every=1 + n % EVERY_MAX)).decode()
            call = quick.using(limit_keys={KEYED.name: "ticks"}).call(0.01).job
            new = NewSchedule(
                name=f"s{n:03}", call=call, spec=spec, overlap=overlap, catch_up=catch_up
            )
            await self._store.put_schedules([new])
        self._begun = {row.name: row for row in await self._store.inspector.schedules()}

    async def pause(self) -> None:
        """Pause all, and note how far they have come; the store may be away for a moment."""
        for name in self._begun:
            await self._pause(name)
        self._ended = await self._store.inspector.schedules()

    async def _pause(self, name: str) -> None:
        for _ in range(TRIES):
            try:
                await self._store.pause_schedule(name, paused=True)
            except StoreUnavailable:
                await asyncio.sleep(0.2)
            else:
                return

    def violations(self, jobs: Sequence[StoredJob]) -> Iterator[str]:
        """Return what is wrong: a tick with two jobs, without its job, or not counted."""
        made = Counter((job.policy.schedule, job.policy.tick) for job in jobs)
        for (name, tick), number in made.items():
            if name is not None and number > 1:
                yield f"TWICE the tick {tick} of {name} has {number} jobs"
        for row in self._ended:
            there = sum(name == row.name for name, _ in made)
            if row.fired != there:
                yield f"LOST {row.name} has fired {row.fired} ticks, and has {there} jobs"
            every = msgspec.json.decode(row.spec, type=Spec).every or 1
            ticks = int(row.since // every - self._begun[row.name].since // every)
            if _counted(row) - _counted(self._begun[row.name]) != ticks:
                yield f"LOST {row.name} had {ticks} ticks: {row}"
            if ticks == 0:
                yield f"LOST {row.name} has never fired: {row}"


def _counted(row: ScheduleRow) -> int:
    return row.fired + row.skipped + row.missed
