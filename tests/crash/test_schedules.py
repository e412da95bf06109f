"""Workers die by kill -9 while schedules fire: no tick has two jobs, none is lost uncounted."""

from __future__ import annotations

import asyncio
import json
import random

import msgspec
import pytest

import outlast
from harness.scene import Scene, WorkerProcess
from outlast.model.schedule import Spec
from outlast.model.schedule_plan import CatchUp, Overlap
from outlast.store.rows import JobFilter
from outlast.store.schedules import NewSchedule, ScheduleRow
from outlast.store.values import NewJob
from tests.crash.releases import EVERY

SCHEDULES = 20
KILLS = 6
SEED = 15
OVERLAPS = [Overlap.ALLOW, Overlap.SKIP]
CATCH_UPS = [CatchUp.ALL, CatchUp.LAST, CatchUp.NONE]


def schedules() -> list[NewSchedule]:
    """Schedules of one tick a second, of each kind."""
    call = NewJob(task="noop")
    return [
        NewSchedule(
            name=f"s{n:02}",
            call=call,
            spec=msgspec.json.encode(Spec(every=1)).decode(),
            overlap=OVERLAPS[n % 2],
            catch_up=CATCH_UPS[n % 3],
        )
        for n in range(SCHEDULES)
    ]


async def rows(stage: Scene) -> list[ScheduleRow]:
    return await stage.store.inspector.schedules()


async def fires_on(stage: Scene, jobs: int) -> None:
    """Wait until this many more ticks have a job."""
    before = sum(row.fired for row in await rows(stage))

    async def fired() -> bool:
        return sum(row.fired for row in await rows(stage)) >= before + jobs

    await stage.until(fired, f"{jobs} ticks that are fired")


@pytest.mark.timeout(300)
async def test_no_tick_is_fired_twice_or_lost_while_workers_are_killed(stage: Scene) -> None:
    chance = random.Random(SEED)
    await stage.store.put_schedules(schedules())
    begun = {row.name: row for row in await rows(stage)}
    workers = [await stage.worker(), await stage.worker()]
    for _ in range(KILLS):
        await fires_on(stage, chance.randint(1, SCHEDULES))
        await asyncio.sleep(chance.random() / 10)  # in the middle of something else each time
        workers.pop(chance.randrange(2)).kill_tree()
        workers.append(await stage.worker())
    await fires_on(stage, 2 * SCHEDULES)
    for name in begun:
        assert await stage.store.pause_schedule(name, paused=True)
    await judge(stage, begun)


async def judge(stage: Scene, begun: dict[str, ScheduleRow]) -> None:
    """Each tick is counted once, and has a job if it counts as fired."""
    found = await stage.store.inspector.jobs(JobFilter(limit=100_000))
    for row in await rows(stage):
        ticks = [job.policy.tick for job in found if job.policy.schedule == row.name]
        assert ticks == sorted(set(ticks), key=lambda tick: -(tick or 0)), row.name
        assert len(ticks) == row.fired > 0, row
        there = int(row.since // 1) - int(begun[row.name].since // 1)
        assert row.fired + row.skipped + row.missed == there, row


async def release(stage: Scene, name: str) -> WorkerProcess:
    """Start a worker of this release."""
    env = {"OUTLAST_TEST_APP": "tests.crash.releases:app", "OUTLAST_TEST_RELEASE": name}
    return await stage.worker(env=env)


async def ticks_of(stage: Scene, name: str) -> list[float]:
    """Return the ticks that have a job as this release declares it."""
    found = await stage.store.inspector.jobs(JobFilter(limit=100_000))
    return [job.policy.tick or 0 for job in found if json.loads(job.args)["release"] == name][::-1]


async def comes(stage: Scene, name: str) -> None:
    """Wait for another tick of this release."""
    before = len(await ticks_of(stage, name))

    async def more() -> bool:
        return len(await ticks_of(stage, name)) > before

    await stage.until(more, f"a tick as the {name} release declares it")


@pytest.mark.timeout(400)
async def test_during_a_rolling_deploy_only_the_newest_declaration_fires(pg_stage: Scene) -> None:
    stage = pg_stage
    old = await release(stage, "old")
    await comes(stage, "old")
    new = await release(stage, "new")
    await comes(stage, "new")
    for _ in range(2):
        another = await release(stage, "new")
        new.kill_tree()
        new = another
        old.kill_tree()
        old = await release(stage, "old")
        await comes(stage, "new")
    assert await stage.store.pause_schedule("nightly", paused=True)
    before, after = await ticks_of(stage, "old"), await ticks_of(stage, "new")
    assert before[-1] < after[0], "the old release fires no more"
    assert after == sorted(set(after))
    assert {tick % EVERY["new"] for tick in after} == {0}
    row = await stage.store.inspector.schedule("nightly")
    assert row is not None
    assert row.fired == len(before) + len(after)


@pytest.mark.timeout(300)
async def test_a_worker_of_the_command_line_fires_what_its_code_declares(
    sqlite_stage: Scene,
) -> None:
    stage = sqlite_stage
    await stage.worker(env={"OUTLAST_TEST_APP": "tests.crash.timetable:app"})

    async def declared() -> bool:
        row = await stage.store.inspector.schedule("each-second")
        return row is not None and row.fired >= 2

    await stage.until(declared, "two ticks of a schedule of the code")
    row = await stage.store.inspector.schedule("each-second")
    assert row is not None
    assert (row.origin, row.declared) == ("code", True)
    app = outlast.App(stage.url)
    with pytest.raises(outlast.UsageError):
        await app.schedules.delete("each-second")
    await app.close()
