"""What real workers count is what the store holds."""

from __future__ import annotations

import pytest

import outlast
from outlast.store.minutes import BOUNDS, CountKind
from outlast.store.protocol import Store
from tests.app import in_process_kit
from tests.app.in_process_kit import DEADLINE

app = in_process_kit.app
JOBS = 30


@pytest.mark.slow_on("sqlite")
async def test_a_worker_that_leaves_has_handed_in_what_it_has_counted(
    app: outlast.App, store: Store
) -> None:
    @app.task(name="add")
    async def add(a: int) -> int:
        return a

    @app.task(name="fail", retries=1, queue="odd")
    async def fail() -> None:
        raise ValueError

    async with app.worker():
        jobs = [await add.enqueue(n) for n in range(JOBS)]
        failing = [await fail.enqueue() for _ in range(3)]
        for job in jobs:
            await job.result(timeout=DEADLINE)
        for broken in failing:
            try:
                await broken.result(timeout=DEADLINE)
            except outlast.JobFailed:
                continue
            raise AssertionError
    added, failed = await store.inspector.totals()
    assert (added.kind, added.queue, added.task) == (CountKind.ATTEMPT, "default", "add")
    assert (added.outcome, added.jobs, added.firsts) == ("completed", JOBS, JOBS)
    assert (failed.task, failed.queue, failed.outcome) == ("fail", "odd", "error")
    assert (failed.jobs, failed.firsts) == (6, 3)
    for each in (added, failed):
        assert sum(each.durations) == sum(each.waits) == each.jobs
        assert 0 < each.seconds < each.jobs * BOUNDS[-1]
        assert 0 <= each.waited < each.jobs * BOUNDS[-1]


async def test_a_worker_with_nothing_to_count_writes_nothing(
    app: outlast.App, store: Store
) -> None:
    async with app.worker():
        pass
    assert await store.inspector.totals() == []
