"""What the crash tests share: a scene whose workers run the tasks of this folder."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import harness.scene
from harness.scene import Scene, WorkerProcess
from outlast.errors import StoreUnavailable
from outlast.store.rows import JobFilter, WorkerRow
from tests.conformance.hostile_kit import raw
from tests.crash import changes, odd_ends, payments, ported, stuck

APP = "tests.crash.tasks:app"
STUCK = {"OUTLAST_TEST_APP": "tests.crash.stuck:app"}
IMPATIENT = {"OUTLAST_TEST_MODULE": "tests.crash.impatient"}
TASKS = payments.tasks | stuck.tasks | changes.tasks | odd_ends.tasks | ported.tasks


@contextlib.asynccontextmanager
async def scene(url: str, folder: Path) -> AsyncIterator[Scene]:
    """Open a scene; end all its processes."""
    async with harness.scene.scene(url, folder, app=APP, tasks=TASKS) as opened:
        yield opened


async def shown(stage: Scene) -> set[str]:
    """Return the outcomes of attempts and the causes of workers' deaths, from rows and logs."""
    seen = {end["outcome"] for worker in stage.workers for end in worker.told("attempt_ended")}
    with contextlib.suppress(StoreUnavailable):  # the test may have closed it
        seen |= {str(row.cause) for row in await stage.store.inspector.workers()}
        for row in await stage.store.inspector.jobs(JobFilter()):
            seen |= {closed.outcome for closed in await stage.attempts(row.id)}
    return seen


async def all_rows(url: str) -> str:
    """Return all rows of all tables of a database, as text."""
    async with raw(url) as file:
        tables = await file.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        rows = [await file.rows(f"SELECT t::text FROM {name} AS t") for (name,) in tables]
    assert len(rows) >= 10
    return "\n".join(row for each in rows for (row,) in each)


async def row_of(stage: Scene, worker: WorkerProcess) -> WorkerRow:
    """Return the row of the worker that runs as this process."""
    await stage.told(worker, "worker_registered")
    ids = {entry["worker_id"] for entry in worker.told("worker_registered")}
    return next(row for row in await stage.worker_rows() if row.id in ids)


async def goes_on(stage: Scene, job: int, times: int = 1) -> None:
    """Wait until the job has saved ``times`` more checkpoints: its attempt still holds it."""
    for _ in range(times):
        before = await stage.checkpoint(job)

        async def saved(before: str | None = before) -> bool:
            return await stage.checkpoint(job) not in (None, before)

        await stage.until(saved, "another checkpoint")
