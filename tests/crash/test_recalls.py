"""What lies in a runner whose loop is blocked has not begun: it can be taken back at any time."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from harness.scene import Scene, WorkerProcess
from outlast.model.job import State
from outlast.store.values import NewJob

SOON = 4.0  # seconds until a job expires: it is claimed before


class Blocked:
    """A worker with one runner, whose loop is blocked until ``gate`` is there."""

    def __init__(self, stage: Scene, worker: WorkerProcess, job: int, gate: Path) -> None:
        self.stage = stage
        self.worker = worker
        self.job = job
        self.gate = gate

    async def put(self, task: str = "waits", **fields: object) -> int:
        """Enqueue a job, and wait until it lies in the runner."""
        (new,) = await self.stage.store.enqueue([NewJob(task=task, **fields)])  # type: ignore[arg-type]
        await self.stage.in_state(new.job_id, State.RUNNING)
        return new.job_id

    async def goes_on(self) -> None:
        """Let the loop turn again: what blocked it completes in its first attempt, and nothing
        else has begun."""
        self.gate.touch()
        row = await self.stage.ended(self.job)
        assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
        assert len(self.stage.entries()) == 1


@pytest.fixture
async def blocked(stage: Scene) -> Blocked:
    worker = await stage.worker("--drain-timeout", "60")
    gate = stage.folder / "gate"
    job = await stage.enqueue("blocks_its_loop_until", path=str(gate))
    await stage.started(1)
    return Blocked(stage, worker, job, gate)


async def test_a_cancel_of_what_has_not_begun_harms_no_neighbour(blocked: Blocked) -> None:
    job = await blocked.put()
    await blocked.stage.store.cancel([job])
    row = await blocked.stage.ended(job)
    assert (row.state, row.failures, row.losses) == (State.CANCELLED, 0, 0)
    await blocked.goes_on()


async def test_a_drain_hands_back_what_has_not_begun(blocked: Blocked) -> None:
    jobs = [await blocked.put() for _ in range(3)]
    blocked.worker.signal(signal.SIGTERM)
    for job in jobs:
        row = await blocked.stage.in_state(job, State.QUEUED)
        assert (row.failures, row.losses) == (0, 0)
    await blocked.goes_on()
    assert await asyncio.to_thread(blocked.worker.process.wait, 60) == 0


async def test_a_key_is_free_once_its_holder_has_expired_where_it_lies(blocked: Blocked) -> None:
    job = await blocked.put("noop", args='{"value":1}', key="k", expires=SOON)
    row = await blocked.stage.in_state(job, State.CANCELLED)
    assert (row.reason, row.failures, row.losses) == ("expired", 0, 0)
    (new,) = await blocked.stage.store.enqueue([NewJob(task="noop", args='{"value":2}', key="k")])
    assert new.job_id != job
    await blocked.goes_on()
    assert (await blocked.stage.ended(new.job_id)).state is State.COMPLETED
