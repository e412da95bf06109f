"""Interrupted is not failed: whatever a deploy does to processes, no job is charged for it."""

from __future__ import annotations

import asyncio
import os
import signal

import psutil
import pytest

from outlast.model.job import State
from tests.crash.harness import Scene
from tests.unkillable import held_at_its_exit


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_runner_that_was_asked_to_end_from_outside_is_no_failure(
    sqlite_stage: Scene, number: signal.Signals
) -> None:
    """Runners are deaf to these signals, but user code may have put back the default handler."""
    await sqlite_stage.worker()
    job = await sqlite_stage.enqueue("first_hears_again", number=int(number))

    async def hears() -> bool:
        return bool(sqlite_stage.entries("hears"))

    await sqlite_stage.until(hears, "a runner that hears the signal")
    (hearing,) = sqlite_stage.entries("hears")
    os.kill(hearing["pid"], number)
    row = await sqlite_stage.ended(job)
    assert (row.state, row.failures, row.losses) == (State.COMPLETED, 0, 1)
    (closed,) = await sqlite_stage.attempts(job)
    assert (closed.outcome, closed.charge) == ("bystander", "loss")
    assert closed.crash is not None
    assert closed.crash.signal == number.name


async def test_a_worker_ends_although_its_runner_cannot_be_killed(sqlite_stage: Scene) -> None:
    worker = await sqlite_stage.worker("--runners", "1", "--drain-timeout", "0.1")
    job = await sqlite_stage.enqueue("waits_deaf")
    runner = (await sqlite_stage.started(1))["pid"]
    with held_at_its_exit(runner):
        worker.signal(signal.SIGTERM)
        assert await asyncio.to_thread(worker.process.wait, 90) == 0
        assert psutil.pid_exists(runner)
    assert "runner_unkillable" in worker.log.read_text()
    (row,) = await sqlite_stage.worker_rows()
    assert row.status == "stopped"
    await sqlite_stage.worker()
    row_after = await sqlite_stage.started(2)
    assert row_after["still_alive"] == []
    assert (await sqlite_stage.job(job)).failures == 0
