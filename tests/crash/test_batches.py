"""Batches in real runners: few calls, and deaths that charge the culprit alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from harness.scene import Scene
from outlast.model.job import State
from tests.crash.batches import tasks

HUNDRED = 100
POISON = -1  # the item that kills its process
CHARGED = 2  # retries + 1
DEATHS_MAX = 8  # until the culprit is certain


async def enqueue(stage: Scene, name: str, items: list[int]) -> list[int]:
    task: Any = tasks[name]
    return [each.job_id for each in await stage.store.enqueue([task.call(i).job for i in items])]


@pytest.mark.short
@pytest.mark.slow_but("-indexes")
@pytest.mark.parametrize("name", ["indexes", "indexes_in_a_thread"])
async def test_a_poison_item_in_a_hundred_is_found_and_charged_alone(
    stage: Scene, name: str
) -> None:
    items = list(range(HUNDRED))
    items[37] = POISON
    ids = await enqueue(stage, name, items)
    worker = await stage.worker()
    for item, job_id in zip(items, ids, strict=True):
        row = await stage.ended(job_id)
        if item == POISON:
            assert (row.state, row.failures) == (State.DEAD, CHARGED), stage.logs()
        else:
            assert (row.state, row.failures) == (State.COMPLETED, 0), stage.logs()
    deadly = [call["items"] for call in stage.entries("batch") if POISON in call["items"]]
    assert deadly[0] == items, "the first call had all of them"
    assert deadly.index([POISON]) + 1 <= DEATHS_MAX
    ran = Counter(item for call in stage.entries("batch") for item in call["items"])
    assert ran[POISON] == max(ran.values())
    assert worker.process.poll() is None
    await stage.verify()


async def test_all_items_of_a_killed_worker_run_again_and_end_once(stage: Scene) -> None:
    items = list(range(20))
    ids = await enqueue(stage, "waits_in_a_batch", items)
    worker = await stage.worker("--lease", "6", "--heartbeat", "0.5")
    await stage.noted(1, "batch")
    worker.kill_tree()
    await stage.worker("--lease", "6", "--heartbeat", "0.5")
    for item, job_id in zip(items, ids, strict=True):
        row = await stage.ended(job_id)
        assert (row.state, row.result, row.failures) == (State.COMPLETED, str(item), 0)
        (lost,) = await stage.attempts(job_id)
        assert lost.outcome == "lost_worker"
    ran = Counter(item for call in stage.entries("batch") for item in call["items"])
    assert set(ran.values()) == {2}
    await stage.verify()


async def test_a_cancelled_item_ends_so_and_its_batch_goes_on(stage: Scene) -> None:
    first, *others = await enqueue(stage, "goes_on_without_one", [1, 2, 3])
    await stage.worker()
    await stage.noted(1, "batch")
    await stage.store.cancel([first])
    assert (await stage.ended(first)).state is State.CANCELLED
    for job_id in others:
        assert (await stage.ended(job_id)).state is State.COMPLETED
    assert len(stage.entries("batch")) == 1


async def test_a_batch_whose_items_are_all_cancelled_stops(stage: Scene) -> None:
    ids = await enqueue(stage, "waits_in_a_batch", [1, 2, 3])
    await stage.worker()
    await stage.noted(1, "batch")
    await stage.store.cancel(ids)
    for job_id in ids:
        assert (await stage.ended(job_id)).state is State.CANCELLED


async def test_a_call_that_blocks_its_loop_beyond_its_timeout_charges_each_job(
    stage: Scene,
) -> None:
    ids = await enqueue(stage, "blocks_in_a_batch", [1, 2, 3])
    await stage.worker()
    for job_id in ids:
        closed, crash = await stage.death(job_id)
        assert (closed.outcome, closed.charge) == ("timeout", "failure")
        assert "blocks_in_a_batch" in (crash.stacks or "")
    assert len(stage.entries("batch")) == 1
