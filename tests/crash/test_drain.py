"""Twenty thousand jobs through two workers: all completed, none twice."""

from __future__ import annotations

from collections import Counter

import pytest

import outlast
from harness.scene import Scene
from outlast.model.job import State
from tests.crash import tasks

pytestmark = pytest.mark.xdist_group("examples")  # one after the other

JOBS = 20_000


@pytest.mark.timeout(600)
async def test_twenty_thousand_jobs_are_completed_and_none_twice(stage: Scene) -> None:
    app = outlast.App(stage.url)
    noted = app.task(tasks.noted.fn)
    jobs = await app.enqueue_many(noted.call(value) for value in range(JOBS))
    assert len({job.id for job in jobs}) == JOBS
    await app.close()
    for _ in range(2):
        await stage.worker("--concurrency", "100")

    async def drained() -> bool:
        return (await stage.store.inspector.counts()) == {("default", State.COMPLETED): JOBS}

    await stage.until(drained, "the end of all jobs", deadline=500)
    runs = Counter(entry["value"] for entry in stage.entries("noted"))
    assert len(runs) == JOBS
    assert set(runs.values()) == {1}
    rows = await stage.store.inspector.workers()
    assert [row.running for row in rows] == [0, 0]
