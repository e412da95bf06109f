"""Jobs of a task that requires tags run where the tags are, wait where they are not."""

from __future__ import annotations

import signal

from harness.scene import Scene
from outlast.insight.availability import Served, phase_of
from outlast.model.job import State
from outlast.store.values import NewJob

JOBS = 40


async def phases(stage: Scene, jobs: list[int]) -> set[str]:
    served = Served(await stage.store.inspector.workers())
    return {phase_of(await stage.job(job), served) for job in jobs}


async def enqueue_many(stage: Scene) -> list[int]:
    rows = await stage.store.enqueue([NewJob(task="on_gpu")] * JOBS)
    return [row.job_id for row in rows]


async def all_ran_on(stage: Scene, jobs: list[int], worker: str) -> None:
    for job in jobs:
        row = await stage.ended(job)
        assert (row.state, row.worker, row.attempt_count) == (State.COMPLETED, worker, 1)


async def test_jobs_wait_for_a_worker_with_their_tags_without_delaying_others(stage: Scene) -> None:
    await stage.worker("--name", "plain", "--concurrency", "2")
    tagged = await stage.worker("--name", "tagged", "--tags", "eu,gpu")
    await all_ran_on(stage, await enqueue_many(stage), "tagged")

    await tagged.left(signal.SIGTERM)
    waiting = await enqueue_many(stage)
    row = await stage.ended(await stage.enqueue("noop"))  # was enqueued behind all of them
    assert (row.state, row.worker) == (State.COMPLETED, "plain")
    assert await phases(stage, waiting) == {"unservable"}
    lacks = [row.lacks for row in await stage.worker_rows() if row.name == "plain"]
    assert lacks == [{"on_gpu": ["gpu"]}]

    await stage.worker("--name", "back", "--tags", "gpu")
    await all_ran_on(stage, waiting, "back")
