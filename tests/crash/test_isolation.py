"""A worker cut off from its database keeps tasks that may run twice, and stops the rest. Its jobs
are not charged."""

from __future__ import annotations

from pathlib import Path

from harness.journal import alive
from harness.scene import boot
from harness.servers import PostgresServer
from outlast.model.crash import Charge
from outlast.model.job import State
from tests.crash.kit import scene

LEASE = 6.0


async def test_an_outage_longer_than_the_lease_ends_only_tasks_that_must_not_run_twice(
    tmp_path: Path,
) -> None:
    flag = tmp_path / "flag"
    with PostgresServer() as server:
        async with scene(server.create_database("isolated"), tmp_path) as stage:
            env = {"OUTLAST_TEST_APP": "tests.crash.stuck:app"}
            worker = await stage.worker("--heartbeat", "1", "--lease", f"{LEASE:g}", env=env)
            kept = await stage.enqueue("waits_though_isolated", flag=str(flag))
            ordinary = await stage.enqueue("waits_for_a_flag", flag=str(flag))

            await stage.until(
                lambda: {entry["job"] for entry in stage.entries()} == {kept, ordinary},
                "both attempts",
            )
            server.stop("fast")
            down_at = boot()

            async def lease_is_over() -> bool:
                lost = "lease_lost" in worker.log.read_text()
                return lost and boot() > down_at + 1.5 * LEASE

            await stage.until(lease_is_over, "the end of the lease")
            pids = {entry["job"]: entry["pid"] for entry in stage.entries()}
            assert alive(pids[kept])
            server.start()
            assert (await stage.started(2))["job"] == ordinary
            flag.touch()
            row = await stage.ended(kept)
            assert (row.state, row.attempt_count, row.result) == (
                State.COMPLETED,
                1,
                '"attempt 1"',
            )
            row = await stage.ended(ordinary)
            assert (row.state, row.attempt_count) == (State.COMPLETED, 2)
            ends = [(each.outcome, each.charge) for each in await stage.attempts(ordinary)]
            assert ends == [("released", Charge.NONE)]
            assert "lease_kept" in worker.log.read_text()
            assert len(await stage.worker_rows()) == 1, "the registration is the same"


async def test_a_database_that_is_read_only_beyond_the_lease_costs_no_job(
    tmp_path: Path,
) -> None:
    """Reads are answered all the time: no worker may take that for the silence of another."""
    flag = tmp_path / "flag"
    with PostgresServer() as server:
        async with scene(server.create_database("refuses"), tmp_path) as stage:
            env = {"OUTLAST_TEST_APP": "tests.crash.stuck:app"}
            options = ("--heartbeat", "1", "--lease", f"{LEASE:g}", "--concurrency", "2")
            workers = [await stage.worker(*options, env=env) for _ in range(2)]
            jobs = [await stage.enqueue("waits_for_a_flag", flag=str(flag)) for _ in range(4)]
            await stage.noted(len(jobs))

            server.sql("ALTER SYSTEM SET default_transaction_read_only = on")
            server.sql("SELECT pg_reload_conf()")
            refused_at = boot()

            async def leases_are_over() -> bool:
                lost = all(each.told("lease_lost") for each in workers)
                return lost and boot() > refused_at + 2 * LEASE

            await stage.until(leases_are_over, "the end of each lease")
            server.sql("ALTER SYSTEM RESET default_transaction_read_only")
            server.sql("SELECT pg_reload_conf()")
            await stage.noted(2 * len(jobs))
            flag.touch()
            for job in jobs:
                assert (await stage.ended(job)).state is State.COMPLETED
                ends = [(each.outcome, each.charge) for each in await stage.attempts(job)]
                assert ends == [("released", Charge.NONE)]
            causes = {row.cause for row in await stage.worker_rows()}
            assert causes == {None}, "no worker takes another one for dead"
