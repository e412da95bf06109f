"""The way to the store breaks, hangs or comes back late."""

from __future__ import annotations

import signal
from pathlib import Path

import asyncpg
import pytest

from harness.proxy import proxied
from harness.scene import BY_LEASE, Scene, boot
from harness.servers import PostgresServer
from outlast.model.job import State
from tests.crash.kit import goes_on, scene

SHORT = ("--heartbeat", "1", "--lease", "3")
WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND query LIKE '%outlast_exchange%'
"""
NEW_JOB = """
SELECT outlast_add_lanes_v1('{noop}', '{default}', '{0}');
INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args, position)
VALUES ('noop', 'default', 0, 0, '{}', nextval('outlast_position_seq'))
"""


async def test_a_claim_whose_reply_was_cut_runs_within_seconds(pg_stage: Scene) -> None:
    """The claim waits for a lock; its connection is cut; then the server commits it."""
    direct = pg_stage.url
    async with proxied(direct) as (proxy, through):
        pg_stage.url = through
        worker = await pg_stage.worker()
        saboteur, onlooker = await asyncpg.connect(direct), await asyncpg.connect(direct)
        transaction = saboteur.transaction()
        await transaction.start()
        await saboteur.execute("LOCK TABLE outlast_jobs IN ACCESS EXCLUSIVE MODE")
        await saboteur.execute(NEW_JOB)

        await pg_stage.until(
            lambda: onlooker.fetchval(WAITING), "an exchange that waits for the lock"
        )
        await proxy.cut()
        await transaction.commit()  # now the server goes on with a claim whose client is gone
        job = await onlooker.fetchval("SELECT max(id) FROM outlast_jobs")
        row = await pg_stage.ended(job, deadline=25.0)  # reconciled by chance: 30 s
        assert row.state is State.COMPLETED
        assert row.failures == 0
        (unheard,) = await pg_stage.attempts(job)
        assert (unheard.outcome, unheard.charge) == ("released", "none")
        assert worker.process.poll() is None
        for connection in (saboteur, onlooker):
            await connection.close()


async def test_a_slow_link_carries_large_arguments_and_results(pg_stage: Scene) -> None:
    """Many more bytes than the link carries in the time for one trip, a third of the lease."""
    async with proxied(pg_stage.url) as (proxy, through):
        proxy.bytes_per_second = 2e6
        pg_stage.url = through
        options = ("--heartbeat", "2", "--lease", "9", "--concurrency", "40")
        data = "x" * 900_000
        jobs = [await pg_stage.enqueue("echoes", data=data) for _ in range(24)]
        await pg_stage.worker(*options)
        rows = [await pg_stage.ended(job) for job in jobs]
        assert {(row.state, row.failures) for row in rows} == {(State.COMPLETED, 0)}
        assert {len(row.result or "") for row in rows} == {len(data) + 2}
        again = [row.id for row in rows if row.attempt_count > 1]
        assert len(again) <= 2, (
            "one trip that broke off on a busy machine, and not one after another"
        )


@pytest.mark.short
async def test_cut_connections_cost_no_attempt(pg_stage: Scene) -> None:
    async with proxied(pg_stage.url) as (proxy, through):
        pg_stage.url = through
        await pg_stage.worker()
        job = await pg_stage.enqueue("counts")
        await pg_stage.started(1)
        for _ in range(3):
            await proxy.cut()
            await goes_on(pg_stage, job)
        pg_stage.enough()
        row = await pg_stage.ended(job)
        assert (row.state, row.attempt_count) == (State.COMPLETED, 1)


async def test_a_worker_in_a_black_hole_stops_before_its_lease_and_comes_back(
    pg_stage: Scene,
) -> None:
    direct = pg_stage.url
    async with proxied(direct) as (proxy, through):
        pg_stage.url = through
        cut_off = await pg_stage.worker(*SHORT, env={"OUTLAST_RUN_DIR": "/dev/null/cut-off"})
        job = await pg_stage.enqueue("first_hangs_in_python")
        await pg_stage.started(1)
        pg_stage.url = direct
        await pg_stage.worker(*SHORT)
        proxy.hold()
        second = await pg_stage.started(2)
        assert second["still_alive"] == [], "the cut-off worker had ended its runner"
        row = await pg_stage.ended(job)
        assert row.result == '"attempt 2"'
        proxy.release()

        async def registered_again() -> bool:
            rows = await pg_stage.store.inspector.workers()
            mine = [each for each in rows if each.pid == cut_off.pid]
            return len(mine) == 2 and mine[-1].status == "active"

        await pg_stage.until(registered_again, "the cut-off worker to register again")
        assert (await pg_stage.job(job)).result == '"attempt 2"'


async def test_a_database_outage_charges_and_loses_no_job(tmp_path: Path) -> None:
    with PostgresServer() as server:
        url = server.create_database("outage")
        async with scene(url, tmp_path) as stage:
            await stage.worker("--heartbeat", "1", "--lease", "20")
            await stage.worker("--heartbeat", "1", "--lease", "20")
            job = await stage.enqueue("counts", upto=60)
            await stage.started(1)
            server.kill()
            down_at = boot()
            server.start()
            row = await stage.ended(job)
            assert (row.state, row.attempt_count) == (State.COMPLETED, 1), boot() - down_at
            assert {each.status for each in await stage.store.inspector.workers()} == {"active"}


async def test_terminated_connections_charge_and_lose_no_job(pg_stage: Scene) -> None:
    await pg_stage.worker()
    job = await pg_stage.enqueue("counts")
    await pg_stage.started(1)
    hangman = await asyncpg.connect(pg_stage.url)
    for _ in range(3):
        await hangman.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
        await goes_on(pg_stage, job)
    pg_stage.enough()
    row = await pg_stage.ended(job)
    assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
    await hangman.close()


async def test_a_worker_that_ends_in_an_outage_leaves_a_free_lock_file(tmp_path: Path) -> None:
    with PostgresServer() as server:
        async with scene(server.create_database("goodbye"), tmp_path) as stage:
            worker = await stage.worker()
            server.stop("fast")
            worker.signal(signal.SIGTERM)
            worker.process.wait(60)
            assert len(stage.lock_files()) == 1
            server.start()
            await stage.worker()

            async def found_gone() -> bool:
                return {row.status for row in await stage.worker_rows()} == {"lost", "active"}

            await stage.until(found_gone, "the first worker to be found gone", BY_LEASE)


async def test_an_end_kept_through_an_outage_longer_than_the_lease_is_not_repeated(
    tmp_path: Path,
) -> None:
    with PostgresServer() as server:
        async with scene(server.create_database("long_outage"), tmp_path) as stage:
            worker = await stage.worker(*SHORT)
            job = await stage.enqueue("waits", seconds=0.5)
            await stage.started(1)
            server.kill()

            await stage.told(worker, "lease_lost")
            server.start()
            row = await stage.ended(job)
            assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
