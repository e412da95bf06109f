"""The crash report of a real death has everything that the docs promise."""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
from importlib import metadata

import pytest

from harness.scene import Scene
from outlast.model.crash import CrashKind, Progress
from outlast.model.job import State

CHANGES = {"OUTLAST_TEST_APP": "tests.crash.changes:app"}


@pytest.mark.short
async def test_a_death_leaves_a_complete_report(stage: Scene) -> None:
    worker = await stage.worker("--name", "w-1", env={"OUTLAST_RELEASE": "2026.11"})
    job = await stage.enqueue("dies_with_all_its_evidence")
    await stage.ended(job)
    (entry,) = stage.entries()
    (closed,) = await stage.attempts(job)
    crash = closed.crash
    assert crash is not None
    assert (crash.kind, crash.signal, crash.exit_code) == (CrashKind.SIGNALLED, "SIGSEGV", None)
    assert "SIGSEGV" in crash.message
    assert 5_000_000 < (crash.rss_peak_bytes or 0) < 500_000_000
    assert 0.3 <= (crash.cpu_seconds or 0) < 60
    assert "dies_with_all_its_evidence" in (crash.stacks or "")
    assert (crash.stacks or "").count("hread 0x") > 1, "of all threads"
    printed = [line for line in crash.output if line.startswith("line ")]
    assert len(crash.output) == 50
    assert printed[-1] == "line 59 with password=hunter2"
    assert crash.progress == Progress(0.25, "rendering", "page 1 of 4")
    assert 0.3 <= (crash.checkpoint_age_seconds or 0) < 60
    assert crash.neighbours == []
    assert (crash.worker, crash.host) == ("w-1", socket.gethostname())
    assert crash.pid == entry["pid"] != worker.pid
    assert crash.release == "2026.11"
    assert crash.python == platform.python_version()
    assert crash.outlast == metadata.version("outlast")


async def test_progress_reported_just_before_the_return_is_kept(stage: Scene) -> None:
    await stage.worker()
    jobs = [await stage.enqueue("tells", lines=3) for _ in range(10)]
    told = [(await stage.ended(job)).progress for job in jobs]
    assert told == [Progress(1.0, message="line 3")] * 10


@pytest.mark.parametrize("kind", ["", "_async"], ids=["plain", "async"])
async def test_changes_of_the_process_by_one_task_are_undone_for_the_next(
    sqlite_stage: Scene, kind: str
) -> None:
    stage = sqlite_stage
    worker = await stage.worker(env=CHANGES)
    first = await stage.enqueue(f"changes_the_process{kind}")
    before = json.loads((await stage.ended(first)).result or "")
    second = await stage.enqueue(f"looks_at_the_process{kind}")
    assert json.loads((await stage.ended(second)).result or "") == before, "and in the same process"
    told = await stage.told(worker, "runner_restored")
    names = ["OUTLAST_TEST_JOURNAL", "LEFT_BEHIND"]
    wanted = {"umask", "working directory", "descriptor 0", "timer"}
    wanted |= {f"variable {name}" for name in names}
    wanted |= {"handler of SIGTERM"} if kind else set()
    assert (told["job_id"], told["task"]) == (first, f"changes_the_process{kind}")
    assert set(told["changes"]) == wanted
    assert "hunter4" not in worker.log.read_text()


async def test_a_coroutine_that_is_never_awaited_is_told_and_not_tried_again(
    sqlite_stage: Scene,
) -> None:
    stage = sqlite_stage
    await stage.worker(env=CHANGES)
    _, crash = await stage.death(await stage.enqueue("is_wrapped_for_plain_functions"))
    assert "was never awaited" in crash.message


async def test_children_of_an_attempt_inherit_nothing_of_its_runner(sqlite_stage: Scene) -> None:
    await sqlite_stage.worker(env=CHANGES)
    row = await sqlite_stage.ended(await sqlite_stage.enqueue("lists_what_children_inherit"))
    assert row.result == "[]"


async def test_where_runners_run_one_job_no_two_attempts_share_a_process(
    sqlite_stage: Scene,
) -> None:
    stage = sqlite_stage
    jobs = [await stage.enqueue(f"looks_at_the_process{k}") for k in ("", "_async") * 8]
    await stage.worker("--runners", "2", "--max-jobs-per-runner", "1", env=CHANGES)
    rows = [await stage.ended(job) for job in jobs]
    assert {(row.state, row.failures, row.losses) for row in rows} == {(State.COMPLETED, 0, 0)}
    pids = [json.loads(row.result or "")[0] for row in rows]
    assert len({*pids}) == len(jobs)
    assert {row.attempt_count for row in rows} == {1}  # none was claimed too early


@pytest.mark.parametrize("how", ["enable", "disable"])
@pytest.mark.parametrize("by", ["task", "application"])
async def test_stacks_reach_the_report_of_a_death_though_user_code_took_or_stopped_them(
    sqlite_stage: Scene, by: str, how: str
) -> None:
    stage = sqlite_stage
    worker = await stage.worker(env={**CHANGES, "OUTLAST_TEST_STACKS": how * (by != "task")})
    if by == "task":
        first = await stage.ended(await stage.enqueue("takes_the_stacks", how=how))
        told = await stage.told(worker, "runner_restored")
        assert (told["job_id"], told["changes"]) == (first.id, ["faulthandler"])
    _, crash = await stage.death(await stage.enqueue("dereferences_null_there"))
    assert "dereferences_null_there" in (crash.stacks or "")


@pytest.mark.parametrize("kind", ["", "_async"], ids=["plain", "async"])
async def test_a_task_that_makes_greenlets_of_threads_costs_the_next_ones_nothing(
    sqlite_stage: Scene, kind: str
) -> None:
    """Their runner is replaced: none of that can be set back."""
    stage = sqlite_stage
    worker = await stage.worker(env=CHANGES)
    first = await stage.enqueue(f"patches_the_threads{kind}")
    spoiled, threads = json.loads((await stage.ended(first)).result or "")
    for _ in range(3):
        row = await stage.ended(await stage.enqueue("looks_at_the_threads"))
        assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
        pid, threads_now = json.loads(row.result or "")
        assert pid != spoiled
        assert threads_now == threads
    told = await stage.told(worker, "runner_restored")
    assert told["job_id"] == first
    assert "gevent" in told["changes"][0]
    assert (await stage.told(worker, "runner_recycled"))["pid"] == spoiled
    assert (await stage.told(worker, "runner_stopped"))["pid"] == spoiled


async def test_a_report_of_a_shared_death_names_the_neighbours(sqlite_stage: Scene) -> None:
    await sqlite_stage.worker()
    jobs = [await sqlite_stage.enqueue("first_hangs") for _ in range(2)]

    await sqlite_stage.noted(2)
    os.kill(sqlite_stage.entries()[0]["pid"], signal.SIGKILL)
    for job, other in (jobs, reversed(jobs)):
        await sqlite_stage.ended(job)
        first, *_ = await sqlite_stage.attempts(job)
        assert first.crash is not None
        assert (first.crash.signal, first.crash.neighbours) == ("SIGKILL", [other])


async def test_a_redact_pattern_also_cleans_reports(sqlite_stage: Scene) -> None:
    await sqlite_stage.worker("--redact", r"password=\w+")
    raised = await sqlite_stage.enqueue("raises_a_secret")
    died = await sqlite_stage.enqueue("dies_with_all_its_evidence")
    for job in (raised, died):
        await sqlite_stage.ended(job)
        (closed,) = await sqlite_stage.attempts(job)
        assert "hunter2" not in repr(closed)
        assert "[redacted]" in repr(closed.crash)
    assert "no login with [redacted]" in (await sqlite_stage.attempts(raised))[0].message
