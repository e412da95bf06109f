"""A runner that hangs before it is ready is reported, and then ended."""

from __future__ import annotations

from outlast.worker.runners.supervisor import (
    LOOK_SECONDS,
    SLOW_SECONDS,
    START_BACKOFF_FIRST,
    START_SECONDS_MAX,
)
from tests.unit.worker.runners.pool_kit import Bench
from tests.unit.worker.worker_kit import heard


async def test_a_late_runner_is_reported_once_with_its_stacks():
    bench = Bench(size=1)
    assert await bench.pool.keeper.run_once() == LOOK_SECONDS
    ready = bench.runners[0]
    ready.greets()
    await bench.when_spare_is_due()
    late = bench.runners[1]
    late.started_at = bench.clock.boot()
    with heard() as names:
        bench.clock.advance(SLOW_SECONDS - 0.1)
        await bench.pool.keeper.run_once()
        assert names == []
        bench.clock.advance(0.1)
        for _ in range(3):
            assert await bench.pool.keeper.run_once() == LOOK_SECONDS
    assert names == ["runner_slow"]
    assert (late.asked, ready.asked) == (1, 0)
    assert late.kills == []
    late.greets()
    assert await bench.pool.keeper.run_once() is None


async def test_a_very_late_runner_is_killed_and_the_next_one_waits_for_the_back_off():
    bench = Bench(size=1)
    await bench.pool.keeper.run_once()
    ready = bench.runners[0]
    ready.greets()
    await bench.when_spare_is_due()
    late = bench.runners[1]
    bench.clock.advance(START_SECONDS_MAX)
    for _ in range(3):
        await bench.pool.keeper.run_once()
    assert (late.kills, ready.kills) == (["startup"], [])
    late.dies(signal="SIGKILL")
    assert await bench.pool.keeper.run_once() == START_BACKOFF_FIRST
    assert bench.owner.failures == []
    bench.clock.advance(START_BACKOFF_FIRST)
    await bench.pool.keeper.run_once()
    assert len(bench.runners) == 2
