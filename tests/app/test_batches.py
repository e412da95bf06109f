"""Batches on both stores, in process and in the test kit."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Any

import pytest

import outlast
from outlast.store.protocol import Store
from outlast.store.values import ClaimRequest
from outlast.testing import isolate
from tests.app import in_process_kit
from tests.app.in_process_kit import DEADLINE, has_state, row_of, until

app, store = in_process_kit.app, in_process_kit.store
SIZE = 25


async def test_a_hundred_jobs_run_in_few_calls_with_the_result_of_each(app: outlast.App) -> None:
    calls = []

    @app.task(batch=SIZE, batch_wait=5)
    async def double(items: list[int]) -> list[int]:
        calls.append(len(items))
        return [2 * item for item in items]

    @app.task
    async def other() -> str:
        return "beside them"

    jobs = await app.enqueue_many([double.call(n) for n in range(100)])
    async with app.worker(concurrency=2):
        assert await (await other.enqueue()).result(timeout=DEADLINE) == "beside them"
        results = [await job.result(timeout=DEADLINE) for job in jobs]
    assert results == [2 * n for n in range(100)]
    assert calls == [SIZE] * 4


@pytest.mark.parametrize("act", ["pause", "cancel"])
async def test_a_pause_and_a_cancel_take_a_gathered_job_back_at_once(
    app: outlast.App, act: str
) -> None:
    @app.task(batch=SIZE, batch_wait=60)
    async def never(items: list[int]) -> None:
        raise AssertionError(items)

    job = await never.using(tenant="ada").enqueue(1)
    async with asyncio.timeout(DEADLINE), app.worker(drain_timeout=DEADLINE):
        await until(lambda: has_state(job, "running"))
        if act == "pause":
            await app.pause(tenant="ada")
            await until(lambda: has_state(job, "queued"))
        else:
            await job.cancel()
            await until(lambda: has_state(job, "cancelled"))
    row = await row_of(job)
    assert (row.failures, row.losses) == (0, 0)


async def test_a_drain_gives_gathered_jobs_back_at_once(app: outlast.App) -> None:
    @app.task(batch=SIZE, batch_wait=60)
    async def never(items: list[int]) -> None:
        raise AssertionError(items)

    job = await never.enqueue(1)
    async with asyncio.timeout(DEADLINE):  # less than batch_wait
        async with app.worker(drain_timeout=DEADLINE):
            await until(lambda: has_state(job, "running"))
    row = await row_of(job)
    assert (row.state, row.failures, row.losses) == ("queued", 0, 0)


async def test_keys_limits_and_delays_are_those_of_each_job(app: outlast.App) -> None:
    limit = app.limit("index", running=3)
    sizes = []

    @app.task(batch=SIZE, batch_wait=0.05, limits=[limit])
    async def index(items: list[int]) -> list[int]:
        sizes.append(len(items))
        return items

    async with app.worker():
        first = await index.using(key="a", delay=2.0).enqueue(1)
        again = await index.using(key="a").enqueue(2)
        assert (again.id, again.created) == (first.id, False)
        jobs = await app.enqueue_many([index.call(n) for n in range(9)])
        assert [await job.result(timeout=DEADLINE) for job in jobs] == list(range(9))
        assert await first.result(timeout=DEADLINE) == 1
    assert max(sizes) <= 3, "each item holds its permit"


async def test_a_drained_batch_waits_for_nothing() -> None:
    made = outlast.App("sqlite:///never-opened.db")
    sizes = []

    @made.task(batch=SIZE, batch_wait=60)
    def index(items: list[int]) -> list[int]:
        sizes.append(len(items))
        return items

    with isolate(made) as jobs:
        stored = await made.enqueue_many([index.call(n) for n in range(30)])
        async with asyncio.timeout(40):  # less than batch_wait
            await jobs.drain()
        assert [await job.result(timeout=0) for job in stored] == list(range(30))
    assert sizes == [SIZE, 5]


async def test_a_batch_is_one_slot_and_asks_for_what_it_still_takes(app: outlast.App) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @app.task(batch=3, batch_wait=60)
    async def batch(items: list[int]) -> None:
        began.set()
        await go_on.wait()

    async with app.worker(concurrency=1) as worker:

        async def asks_for_two_more() -> bool:
            return bool(worker.pool.starter.make_requests(0) == [ClaimRequest(["batch"], 2)])

        first = await batch.enqueue(1)
        await until(asks_for_two_more)
        await app.enqueue_many([batch.call(n) for n in (2, 3)])
        await began.wait()
        assert worker.pool.starter.make_requests(0) == []
        go_on.set()
        await first.result(timeout=DEADLINE)


async def test_a_job_is_one_item_of_a_call_however_it_came(store_url: str, store: Store) -> None:
    """Delayed, after others, by its key, in a window, expiring, from a schedule, encrypted, under
    each kind of limit, made by a parent: it is in one call, and its end is its own."""
    encryption = outlast.Encryption({"k": outlast.Encryption.make_key()}, required=True)
    app = outlast.App(store_url, payloads=[encryption])
    orders = app.limit("orders", running=1, per="limit_key", ordered=True)
    rate = app.limit("rate", rate="50/s")
    calls: list[list[int]] = []

    def taken(items: list[int]) -> list[int]:
        calls.append(items)
        return [2 * item for item in items]

    options: dict[str, Any] = {"batch": SIZE, "batch_wait": 0.2}
    plain = app.task(name="plain", **options)(taken)
    ordered = app.task(name="ordered", limits=[orders], **options)(taken)
    fair = app.task(name="fair", limits=[rate], fair="tenant", **options)(taken)
    ages = app.task(name="ages", aging=60, **options)(taken)

    @app.task
    async def parent() -> Any:
        group = await outlast.current().spawn(outlast.group([plain.call(90), plain.call(91)]))
        return await outlast.current().wait_for(group)

    async with app.worker(concurrency=2):
        first = await plain.enqueue(1)
        jobs = [
            first,
            await plain.using(delay=0.1).enqueue(2),
            await plain.using(expires=60, priority=3, queue="other").enqueue(3),
            await plain.using(key="k", debounce=0.1).enqueue(4),
            await plain.using(key="w", once_per=3600).enqueue(5),
            await plain.using(after=first).enqueue(6),
            *[await ordered.using(limit_keys={"orders": "ada"}).enqueue(n) for n in (10, 11)],
            *[await fair.using(tenant=name).enqueue(20) for name in "ab"],
            *[await ages.using(priority=n).enqueue(30) for n in (0, 5)],
        ]
        again = await plain.using(key="w", once_per=3600).enqueue(99)
        assert (again.id, again.created) == (jobs[4].id, False)
        unkept = await plain.using(keep=0).enqueue(7)
        await app.schedules.put("tick", plain.call(8), every=1)
        made = await parent.enqueue()
        found = [await job.result(timeout=DEADLINE) for job in jobs]
        assert found == [2, 4, 6, 8, 10, 12, 20, 22, 40, 40, 60, 60]
        assert await made.result(timeout=DEADLINE) == [180, 182]

        async def are_called() -> bool:
            return {7, 8} <= {*chain(*calls)}

        await until(are_called)
    await app.close()
    assert await store.inspector.job(unkept.id) is None
    assert not [call for call in calls if {10, 11} <= {*call}], "an ordered key starts one"
    assert sorted(n for n in chain(*calls) if n < 8) == [*range(1, 8)], "each in one call"
