"""How many workers a queue could use."""

from __future__ import annotations

import pytest

from outlast.insight.queues import read_scale
from outlast.model.pause import PauseKind
from outlast.store.protocol import Store
from outlast.store.rows import WorkerStatus
from outlast.store.values import NewPause
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import TASK, Hands, enqueued, job


async def wanted(store: Store, queue: str = "default") -> int:
    return await store.inspector.wanted(queue)


async def test_nothing_is_wanted_of_an_empty_store(store: Store) -> None:
    assert await read_scale(store, "default") == {
        "schema": 1, "queue": "default", "wanted": 0, "at_least": False,
    }  # fmt: skip


async def test_what_is_due_and_what_runs_is_wanted(store: Store) -> None:
    await enqueued(store, *[job()] * 5, job(queue="other"), job(delay=600.0))
    assert await wanted(store) == 5
    hands = await Hands.on(store)
    await hands.claim(2)
    assert (await wanted(store), await wanted(store, "other")) == (5, 1)
    await store.set_status(hands.me, WorkerStatus.DRAINING)
    assert await wanted(store) == 5


async def test_jobs_that_fall_due_count_before_they_are_in_line(store: Store) -> None:
    await enqueued(store, job(run_at=1_000.0), job(delay=-5.0))
    assert await wanted(store) == 2


async def test_a_fleet_of_none_comes_back_for_any_task(store: Store) -> None:
    await enqueued(store, job(task="unknown to all"))
    assert await wanted(store) == 1
    await Hands.on(store, queues=["another"])
    assert await wanted(store) == 1  # no worker serves this queue


@pytest.mark.parametrize("queues", [[], ["default", "more"]])
async def test_jobs_that_no_worker_of_the_queue_knows_are_not_wanted(
    store: Store, queues: list[str]
) -> None:
    await enqueued(store, job(), job(task="unknown to all"), job(task="app"))
    await Hands.on(store, queues=queues)
    assert await wanted(store) == 1


async def test_a_task_of_workers_that_have_gone_is_wanted_still(store: Store) -> None:
    gone = await Hands.on(store, "gone", tasks=["rare"])
    await store.set_status(gone.me, WorkerStatus.STOPPED)
    await Hands.on(store)
    await enqueued(store, job(task="rare"))
    assert await wanted(store) == 1


@pytest.mark.parametrize(
    ("kind", "name", "left"),
    [
        (PauseKind.ALL, "", 1),
        (PauseKind.QUEUE, "default", 1),
        (PauseKind.TASK, TASK, 1),
        (PauseKind.QUEUE, "another", 4),
        (PauseKind.TASK, "another", 4),
    ],
)
async def test_what_is_paused_wants_no_worker(
    store: Store, kind: PauseKind, name: str, left: int
) -> None:
    await enqueued(store, *[job()] * 4)
    await (await Hands.on(store)).claim_one()
    await store.pause(NewPause(kind=kind, name=name))
    assert await wanted(store) == left


async def test_suspects_that_are_due_are_wanted(store: Store, store_url: str) -> None:
    ids = await enqueued(store, job(), job())
    async with raw(store_url) as file:
        await file.run(f"UPDATE outlast_jobs SET solo = 1, position = NULL WHERE id = {ids[0]}")
    assert await wanted(store) == 2


async def test_a_hostile_name_is_a_name(store: Store) -> None:
    name = 'it\'s "a\\queue" </script> ключ'
    await enqueued(store, job(queue=name, task=name))
    await Hands.on(store, queues=[name], tasks=[name])
    assert await wanted(store, name) == 1
    assert await wanted(store, name[:-1]) == 0


@pytest.mark.parametrize("column", ["queues", "tasks", "lacks"])
async def test_no_row_of_a_worker_stops_the_count(
    store: Store, store_url: str, column: str
) -> None:
    await enqueued(store, job())
    await Hands.on(store)
    async with raw(store_url) as file:
        for value in file.values:
            await file.run(f"UPDATE outlast_workers SET {column} = {value}")
            assert await wanted(store) in {0, 1}


@pytest.mark.slow_on("sqlite")
async def test_the_count_stops_at_its_bound(store: Store) -> None:
    for _ in range(3):
        await store.enqueue([job()] * 4_000)
    assert await wanted(store) == 10_000
    assert (await read_scale(store, "default"))["at_least"]
