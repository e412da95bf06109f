"""A worker that is killed alone: its tether tells workers of other hosts, and of no living one."""

from __future__ import annotations

import signal

import psutil
import pytest

from harness.other_host import as_on
from harness.scene import Scene, WorkerProcess
from outlast.model.job import State
from outlast.model.lease import DeathCause
from outlast.store.rows import WorkerStatus
from tests.crash.kit import row_of

LONG = ("--heartbeat", "60", "--lease", "180")  # what is noticed at all was told, or seen on a file


async def on_host(stage: Scene, name: str, *options: str) -> WorkerProcess:
    """Start a worker as on a host of its own, which notices the others' deaths by no other means:
    without presence, and with a lease that outlasts the test."""
    own = as_on(name, stage.folder)
    return await stage.worker(*LONG, "--no-presence", *options, env=own)


def tether_of(worker: WorkerProcess) -> psutil.Process:
    (found,) = [each for each in worker.tree() if "tether.py" in " ".join(each.cmdline())]
    return found


@pytest.mark.short("tether")
async def test_the_job_of_a_worker_that_was_killed_alone_starts_on_another_host(
    pg_stage: Scene,
) -> None:
    dead = await on_host(pg_stage, "one")
    job = await pg_stage.enqueue("first_hangs_in_python")
    await pg_stage.started(1)
    await on_host(pg_stage, "two")
    dead.signal(signal.SIGKILL)
    second = await pg_stage.started(2)
    assert second["still_alive"] == [], "runner and grandchild are gone before the second start"
    row = await row_of(pg_stage, dead)
    assert (row.status, row.cause) == (WorkerStatus.LOST, DeathCause.TETHER)
    (closed,) = await pg_stage.attempts(job)
    assert (closed.outcome, closed.charge) == ("lost_worker", "loss")
    assert DeathCause.TETHER.sentence in closed.message
    assert (await pg_stage.ended(job)).state is State.COMPLETED


async def test_of_a_stopped_worker_and_of_a_tether_that_was_killed_nothing_is_told(
    pg_stage: Scene,
) -> None:
    """And of one that leaves by itself, neither."""
    one = await on_host(pg_stage, "one")
    stopped = await on_host(pg_stage, "two")
    await pg_stage.stop(stopped.signal)
    tether_of(one).kill()
    killed = await on_host(pg_stage, "three")
    killed.signal(signal.SIGKILL)

    async def told() -> bool:
        return (await row_of(pg_stage, killed)).status is WorkerStatus.LOST

    await pg_stage.until(told, "the death of which is told")
    for worker in (one, stopped):
        row = await row_of(pg_stage, worker)
        assert (row.status, row.cause) == (WorkerStatus.ACTIVE, None)
    await one.left(signal.SIGTERM)
    row = await row_of(pg_stage, one)
    assert (row.status, row.cause) == (WorkerStatus.STOPPED, None)
