"""What a store says of jobs to announce, and of the jobs of messages."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from harness.stores import held_open
from outlast.store.postgres.store import PostgresStore
from tests.conformance.kit import Hands, ended, enqueued, job

FAR = 2**63 - 1


@pytest.fixture
async def store(pg_url: str) -> AsyncIterator[PostgresStore]:
    async with held_open(PostgresStore(pg_url)) as store:
        yield store


async def test_the_worker_of_a_named_running_job_is_returned(store: PostgresStore) -> None:
    taken, own, waits = await enqueued(store, job(), job(), job())
    one, two = await Hands.on(store, "one"), await Hands.on(store, "two")
    (held,) = await one.claim(1)
    assert [each.job_id for each in await two.claim(1)] == [own]
    asked = [FAR, waits, own, taken]
    assert await store.list_run_elsewhere(two.me, asked) == [
        (taken, held.token, "one", one.me.worker_id)
    ]
    await one.hand_in(ended(held))
    assert await store.list_run_elsewhere(two.me, asked) == []


async def test_unpublished_jobs_are_returned_in_the_order_of_the_line(store: PostgresStore) -> None:
    small = await enqueued(store, job(), job(task="app.other"), job(priority=-1))
    large = await enqueued(store, job(task="app.last", priority=7), job(priority=7))
    await Hands.on(store)
    told = [each.job_id for each in (await store.waiting(0.0, 4)).jobs]
    assert sorted(told) == sorted([*large, *small])
    assert told.index(large[1]) < told.index(small[0]) < told.index(small[2])


async def test_jobs_of_a_paused_task_hide_no_others_of_their_queue(store: PostgresStore) -> None:
    await enqueued(store, *[job(task="app.held")] * 6)
    (behind,) = await enqueued(store, job())
    await Hands.on(store)
    found = (await store.waiting(0.0, 5)).jobs
    assert [each.job_id for each in found if each.task != "app.held"] == [behind]
    assert len(found) == 6


async def test_unpublished_jobs_are_returned_after_a_minimum_wait(store: PostgresStore) -> None:
    waits, later = await enqueued(store, job(queue="mail"), job(delay=50.0))
    await Hands.on(store)
    found = await store.waiting(0.0, 10)
    assert [(each.job_id, each.queue, each.token) for each in found.jobs] == [(waits, "mail", 0)]
    assert found.workers == 1
    assert found.next_due is not None
    assert 0 < found.next_due <= 50
    assert (await store.waiting(3_600.0, 10)).jobs == []
    assert later
