"""A peek shows the neighbours on a worker's host; what it costs depends on nothing that grows."""

from __future__ import annotations

from pathlib import Path

import asyncpg

from outlast.store.postgres.store import PostgresStore
from outlast.store.rows import WorkerStatus
from tests.conformance.kit import Hands, enqueued, job
from tests.conformance.test_peek import on_host, peek
from tests.postgres.entries_kit import entries_read

INDEX = "outlast_workers_live"


async def test_neighbours_are_the_next_three_live_workers_of_the_host(store: PostgresStore) -> None:
    workers = [await on_host(store, f"w{number}") for number in range(6)]
    await on_host(store, "other", boot_id="elsewhere")
    await Hands.on(store, "without", boot_id="here")

    async def neighbours(number: int) -> list[str]:
        shown = await peek(workers[number])
        return [Path(each.lock_path).name[1] for each in shown.neighbours]

    assert await neighbours(0) == ["1", "2", "3"]
    assert await neighbours(3) == ["4", "5", "0"]
    assert await neighbours(5) == ["0", "1", "2"]
    await store.set_status(workers[1].me, WorkerStatus.STOPPED)
    await workers[2].vanish()
    assert await neighbours(0) == ["3", "4", "5"]
    for each in (workers[3], workers[4]):
        await store.set_status(each.me, WorkerStatus.DRAINING)
    assert await neighbours(0) == ["3", "4", "5"], "one that drains still holds jobs"
    await store.set_status(workers[5].me, WorkerStatus.STOPPED)
    assert await neighbours(0) == ["3", "4"]


async def test_workers_whose_lock_files_one_cannot_see_are_no_neighbours(
    store: PostgresStore,
) -> None:
    """Containers of a host share its boot, users share its file systems. Three of those next to it
    would hide the only worker that this one can find dead."""
    own = await on_host(store, "own", lock_device=1)
    for number in range(4):
        await on_host(store, f"container-{number}", lock_device=2)
        await on_host(
            store, f"user-{number}", lock_device=1, lock_path=f"/other/{number}-abcdefgh.lock"
        )
        await on_host(store, f"deeper/{number}", lock_device=1)
    visible = await on_host(store, "visible", lock_device=1)
    for one, other in ((own, visible), (visible, own)):
        assert [each.worker_id for each in (await peek(one)).neighbours] == [other.me.worker_id]


async def test_a_beat_brings_a_peek_along(store: PostgresStore) -> None:
    hands, other = await on_host(store, "a"), await on_host(store, "b")
    await enqueued(store, job(), job())
    await store.keep_watch(1, 77)
    beat = await store.heartbeat(hands.me)
    shown = await peek(hands)
    assert beat.peek is not None
    assert beat.peek == shown
    assert beat.peek.drawn
    assert beat.peek.watches == (0, 77, 0)
    assert [each.worker_id for each in beat.peek.neighbours] == [other.me.worker_id]


async def test_a_beat_renews_the_lease_also_where_nothing_else_can_be_read(
    store: PostgresStore, pg_url: str
) -> None:
    hands = await on_host(store, "a")
    session = await asyncpg.connect(pg_url)
    for what in ("outlast_schedules", "outlast_pauses"):
        await session.execute(f"ALTER TABLE {what} RENAME TO away")
        beat = await store.heartbeat(hands.me)
        assert (beat.renewed, beat.peek) == (True, None)
        await session.execute(f"ALTER TABLE away RENAME TO {what}")
    assert (await store.heartbeat(hands.me)).peek is not None
    await session.close()


async def test_a_peek_reads_as_much_beside_a_hundred_workers_as_beside_ten(
    store: PostgresStore,
) -> None:
    costs = []
    for count in (10, 90):
        workers = [await on_host(store, f"{count}-{number}") for number in range(count)]
        before = await entries_read(store, INDEX)
        await peek(workers[count // 2])
        costs.append(await entries_read(store, INDEX) - before)
    assert costs[1] <= costs[0], costs


async def test_a_thousand_marks_cost_a_peek_nothing_behind_an_open_transaction(
    store: PostgresStore, pg_url: str
) -> None:
    """A row that was written as often would have a thousand versions, each in the way."""
    worker = await on_host(store, "w")
    holder = await asyncpg.connect(pg_url)
    await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await holder.fetch("SELECT count(*) FROM outlast_jobs")
    session = await asyncpg.connect(pg_url)
    await session.execute(
        "SELECT outlast_keep_watch_v1(1 + n % 3, 1000 + n) FROM generate_series(1, 1000) n"
    )
    assert (await peek(worker)).watches == (1999, 2000, 1998)
    size = await session.fetchval("SELECT pg_relation_size('outlast_watch_1_seq')")
    assert size == await session.fetchval("SELECT current_setting('block_size')::int")
    await session.close()
    await holder.close()


async def test_a_mark_waits_for_no_disk_and_no_standby(store: PostgresStore, pg_url: str) -> None:
    session = await asyncpg.connect(pg_url)
    async with session.transaction():
        await session.execute("SET LOCAL synchronous_commit = on")
        await session.execute("SELECT outlast_keep_watch_v1(1, 5)")
        assert await session.fetchval("SHOW synchronous_commit") == "off"
    assert await session.fetchval("SHOW synchronous_commit") == "on"
    await session.close()
