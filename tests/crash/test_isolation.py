"""A worker cut off from its database keeps tasks that may run twice, and stops the rest."""

from __future__ import annotations

from pathlib import Path

from harness.journal import alive
from harness.scene import boot
from harness.servers import PostgresServer
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
            assert [each.outcome for each in await stage.attempts(ordinary)] == ["lost_lease"]
            assert "lease_kept" in worker.log.read_text()
            assert len(await stage.worker_rows()) == 1, "the registration is the same"
