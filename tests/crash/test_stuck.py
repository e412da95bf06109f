"""A stuck attempt is ended at its limit, and its report names the line where it stood."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.journal import alive
from harness.scene import Scene
from outlast.model.crash import CrashKind
from outlast.model.job import Policy, State
from tests.crash import stuck
from tests.crash.kit import IMPATIENT, STUCK

SOURCE = Path(stuck.__file__).read_text().splitlines()


def line_with(words: str) -> str:
    """Return how a report names the line of tests/crash/stuck.py with this comment."""
    (number,) = (n for n, line in enumerate(SOURCE, 1) if line.endswith(f"# the line of {words}"))
    return f'stuck.py", line {number} in '


async def test_a_report_names_the_line_where_the_task_stood(sqlite_stage: Scene) -> None:
    await sqlite_stage.worker("--concurrency", "1", env=STUCK)
    tasks = ("hangs_in_an_await", "hangs_in_a_call", "loops_in_python", "hangs_in_c")
    for task in (*tasks, "hangs_and_ignores", "looks_and_obeys"):
        closed, crash = await sqlite_stage.death(await sqlite_stage.enqueue(task))
        assert (crash.kind, closed.charge) == (CrashKind.TIMEOUT, "failure"), task
        line = line_with("hangs_in_an_await" if task == "hangs_and_ignores" else task)
        assert line in (crash.stacks or ""), task
        assert line in crash.message, task


@pytest.mark.parametrize(
    ("task", "said"),
    [("looks_and_obeys", "it ran longer"), ("looks_and_goes_on", "did not stop when asked")],
)
async def test_a_plain_function_is_asked_with_the_reason_before_it_is_killed(
    sqlite_stage: Scene, task: str, said: str
) -> None:
    await sqlite_stage.worker(env=STUCK)
    job = await sqlite_stage.enqueue(task)
    _, crash = await sqlite_stage.death(job)
    assert [entry["reason"] for entry in sqlite_stage.entries("asked")] == ["timeout"]
    assert said in crash.message


@pytest.mark.parametrize(
    "task",
    ["blocks_in_python", pytest.param("blocks_in_c", marks=pytest.mark.short("unresponsive"))],
)
async def test_the_attempt_that_blocks_its_runner_is_ended_and_neighbours_are_released(
    sqlite_stage: Scene, task: str
) -> None:
    worker = await sqlite_stage.worker(env=STUCK)
    neighbour = await sqlite_stage.enqueue("first_waits")
    await sqlite_stage.started(1)
    policy = Policy(retries=0, unresponsive_timeout=6.0, cancel_grace=60.0)
    job = await sqlite_stage.enqueue(task, policy=policy, seconds=600)
    closed, crash = await sqlite_stage.death(job)
    assert (closed.outcome, closed.charge) == ("unresponsive", "failure")
    assert line_with(task) in crash.message
    (told,) = worker.told("loop_blocked")
    assert (told["job_id"], told["token"]) == (job, closed.token)
    assert line_with(task) in told["line"]
    assert (await sqlite_stage.ended(neighbour)).state is State.COMPLETED
    (released,) = await sqlite_stage.attempts(neighbour)
    assert (released.outcome, released.charge) == ("released", "none")


async def test_a_limit_that_passes_behind_a_blocked_loop_charges_the_one_that_blocks(
    sqlite_stage: Scene,
) -> None:
    await sqlite_stage.worker(env=STUCK)
    policy = Policy(retries=0, timeout=3.0)
    innocent = await sqlite_stage.enqueue("first_waits", policy=policy)
    await sqlite_stage.started(1)
    culprit = await sqlite_stage.enqueue("blocks_in_python", policy=Policy(retries=0), seconds=600)
    closed, _ = await sqlite_stage.death(culprit)
    assert (closed.outcome, closed.charge) == ("unresponsive", "failure")
    row = await sqlite_stage.ended(innocent)
    assert (row.state, row.failures, row.losses) == (State.COMPLETED, 0, 0)
    assert [each.outcome for each in await sqlite_stage.attempts(innocent)] == ["released"]


async def test_a_limit_counts_from_the_start_of_the_code_behind_a_blocked_loop(
    sqlite_stage: Scene,
) -> None:
    await sqlite_stage.worker(env=STUCK)
    culprit = await sqlite_stage.enqueue("blocks_in_python", seconds=4)
    await sqlite_stage.started(1)
    innocent = await sqlite_stage.enqueue("waits", policy=Policy(retries=0, timeout=3.0), seconds=1)
    for job in (innocent, culprit):
        row = await sqlite_stage.ended(job)
        assert (row.state, row.failures) == (State.COMPLETED, 0)


async def test_a_briefly_blocked_loop_is_reported_and_no_attempt_is_stopped(
    sqlite_stage: Scene,
) -> None:
    worker = await sqlite_stage.worker(env=STUCK)
    neighbour = await sqlite_stage.enqueue("waits", seconds=0.1)
    job = await sqlite_stage.enqueue("blocks_in_python", seconds=7, after=1)
    for each in (neighbour, job):
        row = await sqlite_stage.ended(each)
        assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
    assert len(worker.told("loop_blocked")) == 1


async def test_another_worker_ends_attempts_whose_watchdog_is_stuck(
    stage: Scene,
) -> None:
    """Any worker enforces the deadline on the row; the runner of the former holder is ended."""
    no_watchdog = {**STUCK, "OUTLAST_TEST_MODULE": "tests.crash.no_watchdog"}
    # A third of the lease is the tolerance.
    stuck_too = await stage.worker("--lease", "15", env=no_watchdog)
    job = await stage.enqueue(
        "first_hangs_in_python", policy=Policy(timeout=1.0, cancel_grace=0.1, backoff_first=0.1)
    )
    first = await stage.started(1)
    await stage.worker(env=STUCK | IMPATIENT)
    row = await stage.ended(job)
    assert (row.state, row.failures) == (State.COMPLETED, 1)
    (closed,) = await stage.attempts(job)
    assert (closed.outcome, closed.charge) == ("timeout", "failure")
    assert "its own worker" in closed.message
    await stage.until(
        lambda: not any(alive(pid) for pid in first["pids"]),
        "the end of the loser and of its child",
    )
    assert stuck_too.process.poll() is None
