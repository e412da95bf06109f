"""``outlast workers drain``: the first SIGTERM, from wherever the store can be reached."""

from __future__ import annotations

import asyncio
import sys

from harness.scene import DEADLINE, ROOT, Scene
from outlast.model.job import State


async def outlast(stage: Scene, *arguments: str, until: str = "") -> tuple[int | None, str]:
    """Return exit code and output of a command; once it has said ``until``, it is enough."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "outlast", *arguments, "--url", stage.url, cwd=ROOT,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout
    said = b""
    async with asyncio.timeout(2 * DEADLINE):
        while until.encode() not in said and (line := await process.stdout.readline()):
            said += line
        stage.enough()
        rest, _ = await process.communicate()
    return process.returncode, (said + rest).decode()


async def test_a_drained_worker_finishes_running_jobs_claims_no_more_and_ends(stage: Scene) -> None:
    worker = await stage.worker("--name", "leaver", "--heartbeat", "0.5", "--concurrency", "1")
    job = await stage.enqueue("counts")
    await stage.started(1)
    waiting = await stage.enqueue("noop")
    drains = "worker leaver (1) is draining and runs 1 job"
    code, said = await outlast(stage, "workers", "drain", "leaver", "--wait", until=drains)
    assert code == 0, said
    assert "worker leaver (1) was asked to drain; it runs 1 job" in said
    assert drains in said
    assert said.endswith("worker leaver (1) has left\n")
    await worker.left()
    row = await stage.job(job)
    assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
    assert (await stage.job(waiting)).state is State.QUEUED
    code, said = await outlast(stage, "workers", "drain", "leaver")
    assert (code, "has already ended: it is stopped" in said) == (1, True)
