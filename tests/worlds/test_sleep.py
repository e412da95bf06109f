"""A worker and its runners that all stand still, as in a suspended laptop or a paused container.

The machine of the tests cannot be suspended: SIGSTOP for all processes is what they see of it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.scene import Scene, scene
from outlast.model.job import State
from tests.worlds.kit_sleep import TIMEOUT, app

NAP_SECONDS = TIMEOUT + 1  # more than either limit; no event tells how long one has slept


@pytest.fixture
async def stage(store_url: str, tmp_path: Path) -> AsyncIterator[Scene]:
    """A scene on each store."""
    async with scene(
        store_url, tmp_path, app="tests.worlds.kit_sleep:app", tasks=app.tasks
    ) as opened:
        yield opened


@pytest.mark.parametrize("task", ["works", "waits"])
async def test_time_in_which_all_of_a_worker_stood_still_is_not_charged(
    stage: Scene, task: str
) -> None:
    worker = await stage.worker()
    flag = stage.folder / "flag"
    job = await stage.enqueue(task, flag=str(flag))
    await stage.until(lambda: stage.checkpoint(job), "the worker to know that it has begun")
    for nap in range(2):
        await stage.stop(worker.signal_tree)
        await asyncio.sleep(NAP_SECONDS)
        worker.signal_tree(signal.SIGCONT)

        async def is_judged(before: int = nap) -> bool:
            told = len(worker.told("runner_stood_still")) > before
            return told or (await stage.job(job)).state is not State.RUNNING

        await stage.until(is_judged, "the worker to see that it has slept")

        async def is_moved(slept: float = (nap + 1) * (NAP_SECONDS - 1)) -> bool:
            row = await stage.job(job)
            assert row.state is State.RUNNING, stage.logs()
            assert row.started_at is not None
            assert row.hard_deadline is not None
            return row.hard_deadline - row.started_at >= TIMEOUT + slept

        await stage.until(is_moved, "the deadline on the row to move")
    flag.touch()
    row = await stage.ended(job)
    assert (row.state, row.attempt_count, row.failures) == (State.COMPLETED, 1, 0), stage.logs()


async def test_a_worker_that_is_stopped_alone_gives_its_attempts_no_time(stage: Scene) -> None:
    worker = await stage.worker()
    job = await stage.enqueue("waits", flag=str(stage.folder / "flag"))
    await stage.until(lambda: stage.checkpoint(job), "the attempt to begin")
    await stage.stop(worker.signal)
    await asyncio.sleep(NAP_SECONDS)
    worker.signal(signal.SIGCONT)
    (closed,) = await stage.tried(job)
    assert closed.outcome == "timeout", stage.logs()
    given = sum(each["seconds"] for each in worker.told("runner_stood_still"))
    assert given < NAP_SECONDS / 2  # where the machine is busy, the runner may stand still as well
