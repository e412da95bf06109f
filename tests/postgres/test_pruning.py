"""Pruning goes on where it stopped: it does not walk again over all that it has deleted."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.store.postgres.store import PostgresStore
from tests.postgres.plans_kit import Session, by_index, session

ROWS, BATCH = 6_000, 200

# Ended some days ago, one each millisecond; $1: for how long each is kept by itself.
ENDED = """
INSERT INTO outlast_jobs (task, queue, state, run_at, enqueued_at, args, attempt_count, token,
                          started_at, ended_at, keep)
SELECT 't', 'default', 'completed', 0, 0, '{}', 1, n, date_part('epoch', now()), at, $1
FROM (SELECT n, date_part('epoch', now()) - 777600 + n * 0.001 AS at
      FROM generate_series(1, $2::integer) n) s"""
KEPT = {"jobs": None, "kept": 1.0}


GROWING = {"jobs", "attempts", "labels", "logs", "steps", "minutes"}
RELOPTIONS = """
SELECT c.relname, o.option_name, o.option_value::float8 AS value
FROM pg_class c CROSS JOIN pg_options_to_table(c.reloptions) o
WHERE c.relname LIKE 'outlast%' AND o.option_name LIKE 'autovacuum%scale_factor'"""


async def prune(store: PostgresStore, *, onward: bool, limit: int = BATCH) -> int:
    return await store.prune(
        jobs_older_than=86_400.0, workers_older_than=86_400.0, limit=limit, onward=onward
    )


async def pages_read(s: Session, *, onward: bool) -> int:
    """Prune one batch; return how many pages its look for old jobs has read."""
    await s.forget()
    assert await prune(s.store, onward=onward) == BATCH
    scans = await s.settled()
    by_index(scans)
    looks = [one for one in scans if one.get("Index Name") == "outlast_jobs_ended_at"]
    assert looks
    return max(one["Shared Hit Blocks"] + one["Shared Read Blocks"] for one in looks)


@pytest.mark.parametrize("verb", KEPT)
async def test_a_batch_reads_no_more_behind_a_long_transaction_however_much_was_pruned(
    pg_url: str, watcher: Any, verb: str
) -> None:
    async with session(pg_url) as s:
        await s.store.open()
        await watcher.execute(ENDED, KEPT[verb], ROWS)
        await s.run("SET auto_explain.log_buffers = on")
        async with watcher.transaction(isolation="repeatable_read"):
            await watcher.fetchval("SELECT count(*) FROM outlast_jobs")
            first = await pages_read(s, onward=False)
            for _ in range(10):
                await prune(s.store, onward=True)
            later = await pages_read(s, onward=True)
            again = await pages_read(s, onward=False)
    assert later <= 2 * first
    assert again >= 3 * first, "what was deleted is in the index, so this test can tell"


async def test_what_was_locked_is_passed_over_and_found_by_a_look_from_the_oldest(
    pg_url: str, watcher: Any
) -> None:
    store = PostgresStore(pg_url)
    await store.open()
    await watcher.execute(ENDED, None, 10)
    async with watcher.transaction():
        await watcher.execute("SELECT FROM outlast_jobs WHERE token = 3 FOR UPDATE")
        assert await prune(store, onward=False, limit=5) == 5
    assert await prune(store, onward=True, limit=10) == 4
    assert await prune(store, onward=True) == 0
    assert await prune(store, onward=False) == 1
    await store.close()


async def test_none_of_many_jobs_that_ended_at_once_is_left_behind(
    pg_url: str, watcher: Any
) -> None:
    store = PostgresStore(pg_url)
    await store.open()
    await watcher.execute(ENDED, None, 10)
    await watcher.execute("UPDATE outlast_jobs SET ended_at = floor(ended_at)")
    gone = [await prune(store, onward=number > 0, limit=4) for number in range(4)]
    assert gone == [4, 4, 2, 0]
    await store.close()


async def test_tables_that_grow_with_the_history_do_not_wait_until_a_fifth_is_dead(
    pg_url: str, watcher: Any
) -> None:
    store = PostgresStore(pg_url)
    await store.open()
    set_for = {(row["relname"], row["option_name"]) for row in await watcher.fetch(RELOPTIONS)}
    assert set_for == {
        (f"outlast_{table}", f"autovacuum_{what}_scale_factor")
        for table in GROWING
        for what in ("vacuum", "vacuum_insert", "analyze")
    }
    await store.close()
