"""Ticks that a change, a pause or a delete passes over, as workers count them."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.model.schedule import Spec
from outlast.model.schedule_plan import Overlap
from tests.unit.worker.maintenance import scheduler_kit
from tests.unit.worker.maintenance.scheduler_kit import DAY, HOUR, Team, schedule

team = scheduler_kit.team


async def edit(team: Team) -> None:
    await team.store.put_schedules([schedule(spec=Spec(every=1_800))])


async def pause(team: Team) -> None:
    await team.store.pause_schedule("hourly", paused=True)
    team.clock.advance(2 * HOUR)
    await team.store.pause_schedule("hourly", paused=False)


@pytest.mark.parametrize(("change", "missed"), [(edit, 3), (pause, 5)])
async def test_ticks_that_a_change_passes_over_are_counted_as_missed(
    team: Team, change: Any, missed: int
) -> None:
    await team.store.put_schedules([schedule()])
    for _ in range(2):
        team.add()
    await team.work(HOUR)
    team.clock.advance(3 * HOUR)
    await change(team)
    await team.work()
    row = await team.row()
    assert (row.fired, row.missed) == (1, missed)
    await team.finish_all()
    await team.work(HOUR)
    assert (await team.row()).missed == missed


async def test_the_ticks_of_a_long_pause_are_counted_once_by_all_workers(team: Team) -> None:
    await team.store.put_schedules([schedule(spec=Spec(cron="* * * * *"))])
    for _ in range(3):
        team.add()
    await team.work()
    await team.store.pause_schedule("hourly", paused=True)
    team.clock.advance(DAY)
    await team.store.pause_schedule("hourly", paused=False)
    await team.work(10.0, step=1.0)
    assert (await team.row()).missed == 1_440
    assert await team.jobs() == []


async def test_a_schedule_that_is_deleted_and_put_again_while_the_clock_is_back_fires_once(
    team: Team,
) -> None:
    new = schedule(overlap=Overlap.ALLOW)
    await team.store.put_schedules([new])
    team.add()
    await team.work(2 * HOUR)
    team.clock.step_wall(-HOUR)
    await team.store.delete_schedule("hourly")
    await team.store.put_schedules([new])
    await team.work(3 * HOUR)
    assert await team.ticks() == [1.0, 2.0, 3.0, 4.0]
