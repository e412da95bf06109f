"""The log of real workers reports each dead job, for every place that decides it."""

from __future__ import annotations

import signal

from harness.scene import Scene
from outlast.model.job import Policy


async def test_a_job_that_fails_for_good_is_an_error_in_the_log(sqlite_stage: Scene) -> None:
    worker = await sqlite_stage.worker()
    job_id = await sqlite_stage.enqueue("raises_a_secret", Policy(retries=1, backoff_first=0.01))
    await sqlite_stage.ended(job_id)
    dead = await sqlite_stage.told(worker, "job_dead")
    assert (dead["job_id"], dead["level"], dead["attempts"]) == (job_id, "error", 2)
    assert (dead["task"], dead["queue"], dead["kind"]) == ("raises_a_secret", "default", "error")
    assert "no login" in dead["message"]
    failed = worker.told("attempt_failed")
    assert [(each["state"], each["level"]) for each in failed] == [
        ("queued", "warning"),
        ("dead", "warning"),
    ]


async def test_a_job_that_dies_with_its_worker_is_logged_by_another_worker(stage: Scene) -> None:
    first = await stage.worker("--queues", "default")
    job_id = await stage.enqueue("first_hangs", Policy(max_losses=0))
    await stage.started(1)
    other = await stage.worker("--queues", "other")
    first.signal(signal.SIGKILL)
    await stage.ended(job_id)
    dead = await stage.told(other, "job_dead")
    assert (dead["job_id"], dead["task"], dead["kind"]) == (job_id, "first_hangs", "lost_worker")
    assert "is gone" in dead["message"]
