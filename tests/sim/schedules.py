"""Schedules in the simulation: a tick has one job at most, and each is counted.

``steady`` is left alone, so that its ticks can be counted; ``busy`` skips ticks; ``restless`` is
changed, paused, deleted and put again all the time.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from outlast.errors import StoreError
from outlast.model.schedule import Spec
from outlast.model.schedule_plan import CatchUp, Overlap
from outlast.store.rows import JobFilter
from outlast.store.schedules import NewSchedule, ScheduleRow
from outlast.store.values import NewJob
from tests.sim.tasks import app

SETTLE_SECONDS = 20.0  # virtual, in which what is due is fired
LATE_SECONDS = 15.0  # by which the longest due schedule may be late afterwards


def schedule(name: str, every: int, **fields: Any) -> NewSchedule:
    """A schedule of short jobs."""
    args = '{"steps":1,"pause":0.1,"ending":"complete","saves":false}'
    call = NewJob(task="work", args=args, policy=app.tasks["work"].policy)
    spec = msgspec.json.encode(Spec(every=every)).decode()
    return NewSchedule(name=name, call=call, spec=spec, **fields)


class Timetable:
    """The schedules of a world."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._begun: dict[
            str, tuple[float, int]
        ] = {}  # since when ticks are counted, and how many were

    async def put(self) -> None:
        """Put them, as an operator does who tries until it is done."""
        allow = {"overlap": Overlap.ALLOW}
        every = 2 + int(5 * self._world.chance())
        await self._put(schedule("steady", every, **allow, catch_up=CatchUp.ALL))
        await self._put(schedule("busy", 1))
        await self._put(schedule("restless", every, **allow))

    async def _put(self, new: NewSchedule) -> None:
        while True:
            try:
                await self._world.client.put_schedules([new])
                row = await self._world.client.inspector.schedule(new.name)
            except StoreError:
                await asyncio.sleep(0.3)
                continue
            self._begun.setdefault(new.name, (row.since, _counted(row)))
            return

    def change(self) -> bool:
        """Change the restless one somehow."""
        self._world.loop.create_task(self._change(int(5 * self._world.chance())))
        return True

    async def _change(self, how: int) -> None:
        client = self._world.client
        every = 2 + int(5 * self._world.chance())
        new = schedule("restless", every, overlap=Overlap.ALLOW)
        try:
            if how == 0:
                await client.pause_schedule("restless", paused=True)
            elif how == 1:
                await client.pause_schedule("restless", paused=False)
            else:
                if how == 2:
                    await client.delete_schedule("restless")
                await client.put_schedules([new])
        except StoreError:
            return

    async def settle(self) -> None:
        """Without faults: what is due is fired, then nothing more; judge what is left."""
        await asyncio.sleep(SETTLE_SECONDS)
        client = self._world.client
        rows = await client.inspector.schedules()
        due = await client.due_schedules()
        for each in due.schedules:
            if due.now - each.next_tick > LATE_SECONDS:
                self._wrong(f"{each.name} is due for {due.now - each.next_tick:.1f} s")
        for row in rows:
            if row.next_tick is None:
                self._wrong(f"{row.name} has no next tick")
            await client.pause_schedule(row.name, paused=True)
        await self._judge()
        await self._until_idle()

    async def _until_idle(self) -> None:
        for _ in range(300):
            jobs = await self._world.client.inspector.jobs(JobFilter(limit=10_000))
            if all(job.ended_at is not None for job in jobs):
                return
            await asyncio.sleep(1.0)
        self._wrong("its jobs do not end")

    async def _judge(self) -> None:
        jobs = await self._world.client.inspector.jobs(JobFilter(limit=10_000))
        for row in await self._world.client.inspector.schedules():
            ticks = [job.policy.tick for job in jobs if job.policy.schedule == row.name]
            if len(ticks) != len(set(ticks)):
                twice = sorted({tick for tick in ticks if ticks.count(tick) > 1})
                self._wrong(f"{row.name} has more than one job for {twice}")
            if row.fired != len(ticks) and row.name != "restless":  # a new one counts from 0
                self._wrong(f"{row.name} counts {row.fired} jobs, and has {len(ticks)}")
        for name in ("steady", "busy"):
            await self._count(name)

    async def _count(self, name: str) -> None:
        row = await self._world.client.inspector.schedule(name)
        every = msgspec.json.decode(row.spec, type=Spec).every or 1
        since, before = self._begun[name]
        there, counted = int(row.since // every - since // every), _counted(row) - before
        if there != counted:
            self._wrong(f"{name} had {there} ticks, and counts {counted}")

    def _wrong(self, what: str) -> None:
        self._world.witness.wrong("one job for a tick", what)


def _counted(row: ScheduleRow) -> int:
    return row.fired + row.skipped + row.missed


def change_a_schedule(world: Any) -> bool:
    """Change one while it fires, if there are any."""
    return world.timetable is not None and world.timetable.change()
