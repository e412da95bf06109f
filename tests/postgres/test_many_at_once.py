"""Many sessions on PostgreSQL at once: nothing is done twice, and none waits forever."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from harness.stores import opened
from outlast.model.job import State
from outlast.store.postgres.store import PostgresStore
from outlast.store.rows import JobFilter
from tests.conformance.kit import Hands, ended, enqueued, job

DEADLOCK_SECONDS = 30.0


async def test_bulk_cancels_and_exchanges_do_not_deadlock(
    store: PostgresStore, hands: Hands
) -> None:
    ids = await enqueued(store, *[job() for _ in range(300)])
    stores = [PostgresStore(store.url) for _ in range(4)]

    async def cancel(each: PostgresStore, seed: int) -> None:
        shuffled = list(ids)
        Random(seed).shuffle(shuffled)
        for start in range(0, 300, 60):
            await each.cancel(shuffled[start : start + 60])

    async def drain(each: PostgresStore, name: str) -> None:
        worker = await Hands.on(each, name)
        claimed = await worker.claim(7)
        while claimed:
            claimed = await worker.follow(*map(ended, claimed), limit=7)

    async with asyncio.timeout(DEADLOCK_SECONDS):
        await asyncio.gather(
            *[cancel(each, seed) for seed, each in enumerate(stores[:2])],
            *[drain(each, f"d{n}") for n, each in enumerate(stores[2:])],
        )
    rows = await store.inspector.jobs(JobFilter(limit=500))
    assert {row.state for row in rows} <= {State.COMPLETED, State.CANCELLED}
    for each in stores:
        await each.close()


@pytest.mark.parametrize("unknown", [0, 1])
async def test_workers_that_empty_a_queue_together_never_claim_a_job_twice(
    unknown: int, store: PostgresStore
) -> None:
    """Also where a job of an unknown task stands in the line, which is then read another way."""
    await enqueued(store, job(), *[job(task="unknown", priority=9)] * unknown)
    ids = [1, *await enqueued(store, *[job() for _ in range(400)])]
    seen: list[tuple[int, int]] = []

    async def drain(name: str) -> None:
        async with opened(store.url) as each:
            worker = await Hands.on(each, name)
            while claimed := await worker.claim(9) or await worker.claim(9):
                seen.extend((c.job_id, c.token) for c in claimed)
                await worker.follow(*map(ended, claimed), limit=0)

    await asyncio.gather(*[drain(f"w{n}") for n in range(5)])
    assert sorted(job_id for job_id, _ in seen) == sorted(ids)
    assert len({token for _, token in seen}) == len(ids)


async def test_batches_with_the_same_keys_in_any_order_do_not_deadlock(
    store: PostgresStore,
) -> None:
    keys = [f"k{n}" for n in range(60)]
    others = [PostgresStore(store.url) for _ in range(4)]

    async def enqueue(each: PostgresStore, seed: int) -> list[int]:
        shuffled = list(keys)
        Random(seed).shuffle(shuffled)
        made = await each.enqueue([job(key=key) for key in shuffled])
        return sorted(one.job_id for one in made)

    async with asyncio.timeout(DEADLOCK_SECONDS):
        ids = await asyncio.gather(*[enqueue(each, n) for n, each in enumerate(others)])
    assert all(each == ids[0] for each in ids)
    for each in others:
        await each.close()


async def test_a_key_whose_job_ends_meanwhile_makes_a_new_job(
    store: PostgresStore, hands: Hands
) -> None:
    """Enqueue and completion of one key at once: each enqueue returns a job of that key."""
    other = PostgresStore(store.url)
    ids: set[int] = set()

    async def finish() -> None:
        for _ in range(60):
            for claimed in await hands.claim(5):
                await hands.follow(ended(claimed), limit=0)

    async def enqueue() -> None:
        for _ in range(60):
            ids.update(await enqueued(other, job(key="k"), job()))

    await asyncio.gather(finish(), enqueue())
    for job_id in ids:
        assert await store.inspector.job(job_id) is not None
    await other.close()


async def test_many_jobs_are_requeued_in_one_transaction_but_for_those_with_keys(
    store: PostgresStore, session: Any
) -> None:
    """More than 64 subtransactions of one transaction slow each look at a row of it down."""
    ids = await enqueued(store, *[job() for _ in range(200)], job(key="k"), job(key="l"))
    assert len(await store.cancel(ids)) == len(ids)
    drawn = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
    before = await session.fetchval(drawn)
    await store.requeue(ids)
    assert await session.fetchval(drawn) - before == 2
    rows = await store.inspector.jobs(JobFilter(limit=500))
    assert {row.state for row in rows} == {State.QUEUED}
