"""The SQLite file is deleted under a worker, and another one takes its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.scene import Scene
from harness.stores import opened
from outlast.model.job import State


@pytest.mark.short("lost_lease")
async def test_a_worker_leaves_a_file_that_was_deleted_and_works_on_the_new_one(
    sqlite_stage: Scene,
) -> None:
    stage = sqlite_stage
    worker = await stage.worker()
    await stage.enqueue("counts")
    await stage.started(1)
    await stage.store.close()
    for each in ("", "-wal", "-shm"):
        Path(stage.url.removeprefix("sqlite:///") + each).unlink()

    async with opened(stage.url):
        pass  # it is there again
    job = await stage.enqueue("counts", upto=3)
    row = await stage.ended(job)
    assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
    assert len(stage.entries()) == 2
    assert (await stage.told(worker, "attempt_ended"))["outcome"] == "lost_lease"
    await stage.told(worker, "lease_lost")
    said = [entry["error"] for entry in worker.told("store_unavailable")]
    assert any("another file has taken its place" in error for error in said)
    assert len(worker.told("worker_registered")) == 2
    assert worker.process.poll() is None
