"""The clock for tests: it moves only when advanced, and wakes sleepers at their times."""

from __future__ import annotations

import asyncio

from tests.manual_clock import ManualClock


async def test_a_sleeper_wakes_when_the_clock_has_gone_on_far_enough():
    clock = ManualClock()
    task = asyncio.create_task(clock.sleep(60))
    await clock.run_for(59.9)
    assert not task.done()
    assert clock.sleepers == 1
    await clock.run_for(0.1)
    assert task.done()
    assert clock.sleepers == 0


async def test_each_sleeper_wakes_at_its_own_time_also_one_that_sleeps_again():
    clock = ManualClock(boot=0.0)
    woke = []

    async def ticks(every: float) -> None:
        while True:
            await clock.sleep(every)
            woke.append((every, clock.boot()))

    tasks = [asyncio.create_task(ticks(every)) for every in (2.0, 3.0)]
    await clock.run_for(6.0)
    assert sorted(woke) == [(2.0, 2.0), (2.0, 4.0), (2.0, 6.0), (3.0, 3.0), (3.0, 6.0)]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert clock.sleepers == 0


async def test_the_wall_clock_can_step_and_the_boot_clock_cannot():
    clock = ManualClock(wall=100.0, boot=10.0)
    clock.step_wall(-50.0)
    clock.advance(1.0)
    assert (clock.wall(), clock.boot()) == (51.0, 11.0)
    await clock.sleep(0.0)


def test_its_random_numbers_are_the_same_in_each_run():
    first, second = ManualClock(seed=7), ManualClock(seed=7)
    numbers = [first.random() for _ in range(5)]
    assert numbers == [second.random() for _ in range(5)]
    assert all(0.0 <= number < 1.0 for number in numbers)
    assert numbers != [ManualClock(seed=8).random()] * 5
