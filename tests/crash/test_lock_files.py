"""What the lock file of a gone worker tells about its attempts, with real processes."""

from __future__ import annotations

import signal

import outlast
from harness.proxy import proxied
from harness.scene import Scene
from outlast.base.clock import SYSTEM
from outlast.model.job import State
from outlast.model.lease import DeathCause
from outlast.store.rows import WorkerStatus
from outlast.worker.maintenance.reaper import Reaper
from tests.crash import tasks
from tests.unit.worker.worker_kit import FakeOwner

JOBS = 3_000


async def test_jobs_released_by_a_drain_during_an_outage_are_not_charged(
    pg_stage: Scene,
) -> None:
    direct = pg_stage.url
    async with proxied(direct) as (proxy, through):
        pg_stage.url = through
        leaver = await pg_stage.worker("--drain-timeout", "0.5")
        job = await pg_stage.enqueue("counts")
        await pg_stage.started(1)
        proxy.lead_to("127.0.0.1", 1)  # where nothing listens
        await proxy.cut()
        leaver.signal(signal.SIGTERM)

        await pg_stage.until(lambda: leaver.process.poll() is not None, "the end of the worker")
        assert (await pg_stage.job(job)).state is State.RUNNING, "it could not write that it left"
        pg_stage.url = direct
        await pg_stage.worker()
        await pg_stage.started(2)
    rows = {row.pid: row for row in await pg_stage.worker_rows()}
    assert rows[leaver.pid].status is WorkerStatus.LOST
    assert rows[leaver.pid].cause == DeathCause.LOCK_FILE
    (closed,) = await pg_stage.attempts(job)
    assert (closed.outcome, closed.charge) == ("released", "none")
    assert (await pg_stage.job(job)).losses == 0


async def test_jobs_that_a_killed_worker_had_not_begun_are_released_uncharged(
    stage: Scene,
) -> None:
    """What has begun is a loss. How much was prefetched at that instant is random."""
    app = outlast.App(stage.url)
    noted = app.task(tasks.noted.fn)
    jobs = await app.enqueue_many(noted.call(value) for value in range(JOBS))
    await app.close()
    holder = await stage.worker("--queues", "default")

    await stage.until(lambda: len(stage.entries("noted")) > JOBS // 10, "some of them")
    holder.kill_tree()
    (file,) = stage.lock_files()
    begun = {entry["token"] for entry in stage.entries("noted")}
    await stage.worker()

    async def drained() -> bool:
        return (await stage.store.inspector.counts()) == {("default", State.COMPLETED): JOBS}

    await stage.until(drained, "the end of all jobs")
    closed = [each for job in jobs for each in await stage.attempts(job.id)]
    outcomes = {each.token: (each.outcome, each.charge) for each in closed}
    assert set(outcomes.values()) <= {("lost_worker", "loss"), ("released", "none")}
    released = {token for token, (outcome, _) in outcomes.items() if outcome == "released"}
    assert not released & begun, "what has begun is never taken for what has not"
    assert not file.exists()


async def test_a_task_that_unlocks_the_lock_file_does_not_make_its_worker_look_dead(
    sqlite_stage: Scene,
) -> None:
    stage = sqlite_stage
    await stage.worker(env={"OUTLAST_TEST_APP": "tests.crash.odd_ends:app"})
    flag = stage.folder / "go on"
    job = await stage.enqueue("unlocks_the_lock_file", flag=str(flag))

    await stage.noted(1, "unlocked")
    assert len(stage.entries("unlocked")[0]["fds"]) == 1, "its runner has inherited it"
    await Reaper(FakeOwner(), stage.store, clock=SYSTEM).run_once()
    flag.touch()
    assert (await stage.ended(job)).attempt_count == 1
    assert [row.status for row in await stage.worker_rows()] == [WorkerStatus.ACTIVE]
