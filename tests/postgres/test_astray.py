"""A worker's look on PostgreSQL finds orphans, and walks over no dead rows."""

from __future__ import annotations

import asyncpg
import pytest

from outlast.model.lifecycle import Transition
from outlast.store.postgres.store import PostgresStore
from outlast.store.statements import statements
from outlast.store.values import ClaimRequest, WorkerRef
from tests.conformance.kit import TASK, ended, job, new_worker
from tests.postgres.entries_kit import entries_read


async def take(store: PostgresStore, me: WorkerRef, jobs: int = 1) -> list[Transition]:
    """Enqueue and claim; return the ends to hand in."""
    await store.enqueue([job() for _ in range(jobs)])
    claimed = (await store.exchange(me, [], [ClaimRequest([TASK], jobs)])).claimed
    assert len(claimed) == jobs
    return [ended(each) for each in claimed]


@pytest.mark.parametrize("gone", [{0}, {1}, {2}, {0, 2}, {1, 2}, {0, 1, 2}])
async def test_gone_workers_are_found_before_between_and_after_live_ones(
    store: PostgresStore, pg_url: str, gone: set[int]
) -> None:
    workers = [await store.register(new_worker(name)) for name in "abc"]
    for me in workers:
        await take(store, me)
    assert not (await store.observe()).orphans
    connection = await asyncpg.connect(pg_url)
    for number in gone:
        if number == 1:  # no row at all
            await connection.execute(
                "DELETE FROM outlast_workers WHERE id = $1", workers[number].worker_id
            )
        else:
            await connection.execute(
                "UPDATE outlast_workers SET status = 'lost', stopped_at = 0 WHERE id = $1",
                workers[number].worker_id,
            )
    found = await connection.fetch("SELECT g.id FROM outlast_gone_v1() AS g (id) ORDER BY 1")
    await connection.close()
    assert [row[0] for row in found] == [workers[number].worker_id for number in sorted(gone)]
    assert (await store.observe()).orphans


async def test_a_look_does_not_walk_over_dead_rows_of_live_workers(
    store: PostgresStore, pg_url: str
) -> None:
    """An open transaction keeps all dead entries in the index."""
    me, other = [await store.register(new_worker(name)) for name in "ab"]
    holder = await asyncpg.connect(pg_url)
    await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await holder.fetch("SELECT count(*) FROM outlast_jobs")
    for _ in range(3):
        await store.exchange(me, await take(store, me, 300), [])
        await store.exchange(other, await take(store, other, 300), [])
    await take(store, me)
    before = await entries_read(store, "outlast_jobs_worker")
    assert not (await store.observe()).orphans
    assert await entries_read(store, "outlast_jobs_worker") - before < 100
    await holder.close()


async def test_a_look_makes_the_key_of_a_presence_without_a_call_for_each_worker(
    store: PostgresStore, pg_url: str
) -> None:
    """A function that reads the store's id is called for each row: most of a look at a thousand."""
    connection = await asyncpg.connect(pg_url)
    text = statements("postgres", "workers")["observe"].replace("$1::float8", "0.0")
    plan = await connection.fetch(f"EXPLAIN (VERBOSE, COSTS OFF) {text}")
    await connection.close()
    shown = "\n".join(row[0] for row in plan)
    assert "hashtextextended" in shown
    assert "outlast_presence_" not in shown.replace("outlast_presence_held_v1", "")
