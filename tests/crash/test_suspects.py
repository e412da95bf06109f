"""One job kills the process that others share: it alone is charged, and they complete."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from harness.scene import ROOT, Scene
from outlast.model.job import State

SOURCE = (ROOT / "tests/crash/deadly.py").read_text().splitlines()
IN_A_CROWD = next(n for n, text in enumerate(SOURCE, 1) if "def in_a_crowd" in text)
CROWD = 8
CHARGED = 4  # retries + 1


async def crowd(stage: Scene, how: str, *, size: int = CROWD, waits: int = 1) -> list[int]:
    """Enqueue the culprit, then the innocents; return their ids in that order."""
    culprit = await stage.enqueue("in_a_crowd", how=how, crowd=size, waits=waits)
    rest = [await stage.enqueue("in_a_crowd", crowd=size, waits=waits) for _ in range(size - 1)]
    return [culprit, *rest]


async def charged(stage: Scene, job_id: int) -> list[str]:
    return [one.outcome for one in await stage.attempts(job_id) if one.charge == "failure"]


async def shared_deaths(stage: Scene, job_id: int) -> int:
    return sum(one.outcome == "bystander" for one in await stage.attempts(job_id))


async def completed_uncharged(stage: Scene, ids: list[int], deadline: float = 60.0) -> None:
    for job_id in ids:
        row = await stage.ended(job_id, deadline)
        assert (row.state, row.failures) == (State.COMPLETED, 0), stage.logs()


@pytest.mark.short
async def test_a_segfaulting_job_is_identified_by_its_stack_and_isolated(
    stage: Scene,
) -> None:
    worker = await stage.worker("--concurrency", str(CROWD))
    culprit, *others = await crowd(stage, "null")
    await completed_uncharged(stage, others)
    row = await stage.ended(culprit, 60.0)
    assert (row.state, row.failures, row.losses) == (State.DEAD, CHARGED, 1)
    assert await charged(stage, culprit) == ["signalled"] * CHARGED
    for other in others:
        assert await shared_deaths(stage, other) == 1, "the first death has identified the culprit"
        (closed,) = await stage.attempts(other)
        assert closed.crash is not None
        assert culprit in closed.crash.neighbours
    last = (await stage.attempts(culprit))[-1]
    assert last.crash is not None
    assert (last.crash.signal, last.crash.neighbours) == ("SIGSEGV", [])
    line = next(n for n, text in enumerate(SOURCE, 1) if "string_at(0)" in text and n > IN_A_CROWD)
    assert f"line {line} in in_a_crowd" in (last.crash.stacks or "")
    assert worker.process.poll() is None


async def test_an_exiting_job_is_found_by_bisection_and_charged_only_when_alone(
    stage: Scene,
) -> None:
    await stage.worker("--concurrency", str(CROWD))
    culprit, *others = await crowd(stage, "exit")
    await completed_uncharged(stage, others)
    row = await stage.ended(culprit, 60.0)
    assert (row.state, row.failures) == (State.DEAD, CHARGED)
    assert await charged(stage, culprit) == ["exited"] * CHARGED
    assert 1 <= await shared_deaths(stage, culprit) <= 2, (
        "eight shared the first death, at most four the second"
    )
    for other in others:
        assert await shared_deaths(stage, other) <= 2


async def test_suspects_are_not_starved_by_long_jobs_in_all_runners(stage: Scene) -> None:
    await stage.worker("--concurrency", "2")
    culprit, other = await crowd(stage, "exit", size=2)
    long = [await stage.enqueue("waits") for _ in range(2)]
    row = await stage.ended(culprit, 60.0)
    assert (row.state, row.failures) == (State.DEAD, CHARGED)
    for job_id in long:
        row = await stage.in_state(job_id, State.RUNNING)
        assert row.attempt_count == 1
    await stage.store.cancel(long)  # the other one is in the line again, behind them
    await completed_uncharged(stage, [other])


@contextlib.asynccontextmanager
async def supervised(stage: Scene, *options: str) -> AsyncIterator[None]:
    """Start a worker again whenever there is none, as a service manager does."""

    async def supervise() -> None:
        while True:
            if all(worker.process.poll() is not None for worker in stage.workers):
                with contextlib.suppress(AssertionError):  # it was killed before it was seen
                    await stage.worker(*options)
            await asyncio.sleep(0.02)

    supervisor = asyncio.create_task(supervise())
    try:
        yield
    finally:
        supervisor.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await supervisor


async def test_a_job_that_kills_its_whole_worker_ends_dead_and_its_neighbours_complete(
    stage: Scene,
) -> None:
    async with supervised(stage, "--concurrency", "3"):
        culprit, *others = await crowd(stage, "worker", size=3, waits=2)
        await completed_uncharged(stage, others, 120.0)
        row = await stage.ended(culprit, 120.0)
    assert (row.state, row.failures, row.losses, row.solo) == (State.DEAD, CHARGED, 2, 2)
    assert await charged(stage, culprit) == ["lost_worker"] * CHARGED
    for other in others:
        row = await stage.job(other)
        assert row.losses == 2, "and then it ran alone in its worker"
