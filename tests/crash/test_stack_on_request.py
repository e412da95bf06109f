"""A job that hangs is asked where it is, and goes on as if it had not been asked."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from harness.scene import DEADLINE, Scene
from outlast.client.app import App
from outlast.insight.acting import By
from outlast.insight.stacks import ask_for_stack, wait_for_stack
from outlast.model.job import Policy, State
from outlast.runner.shell.task import add_to
from outlast.store.stacks import Stack
from tests.crash.kit import STUCK
from tests.crash.test_stuck import line_with

FOR_EVER = Policy(retries=0)  # without a timeout


async def asked(stage: Scene, job: int) -> Stack:
    """Return where the job is, as its worker says."""
    request = await ask_for_stack(stage.store, job, By("ada"))
    row = await wait_for_stack(stage.store, request, DEADLINE)
    assert (row.state, row.stack is not None) == (State.RUNNING, True)
    assert row.stack is not None
    return row.stack


async def test_an_await_and_a_call_are_named_and_go_on(stage: Scene, tmp_path: Path) -> None:
    worker = await stage.worker("--runners", "2", env=STUCK)
    tasks = ("hangs_in_an_await", "hangs_in_a_call")
    jobs = {task: await stage.enqueue(task, policy=FOR_EVER) for task in tasks}
    flag = tmp_path / "flag"
    sound = await stage.enqueue("waits_for_a_flag", policy=FOR_EVER, flag=str(flag))

    await stage.until(lambda: len(stage.entries()) > len(jobs), "the beginning of all jobs")
    for task, job in jobs.items():
        stack = await asked(stage, job)
        assert line_with(task) in (stack.line or "")
        assert line_with(task) in stack.text.split("\n\n")[0]  # its own are first
    printed = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "outlast.cli", "stack", str(jobs["hangs_in_a_call"])),
        *("--url", stage.url, "--wait", str(DEADLINE), "--json"),
        stdout=asyncio.subprocess.PIPE,
    )
    told, _ = await printed.communicate()
    assert line_with("hangs_in_a_call") in json.loads(told)["stack"]["line"]
    assert "waits_for_a_flag" in (await asked(stage, sound)).text
    flag.touch()
    row = await stage.ended(sound)
    assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
    assert worker.process.poll() is None
    await stage.store.cancel(list(jobs.values()))
    for job in jobs.values():
        assert (await stage.ended(job)).state is State.CANCELLED


@pytest.mark.slow
@pytest.mark.parametrize("task", ["hangs_in_c", "blocks_in_c", "loops_in_python"])
async def test_one_that_keeps_its_process_from_running_is_named(
    sqlite_stage: Scene, task: str
) -> None:
    await sqlite_stage.worker(env=STUCK)
    more = {"seconds": 600} if task == "blocks_in_c" else {}
    job = await sqlite_stage.enqueue(task, policy=FOR_EVER, **more)
    await sqlite_stage.started(1)
    assert line_with(task) in ((await asked(sqlite_stage, job)).line or "")


@pytest.mark.slow
async def test_of_a_command_the_processes_are_shown(sqlite_stage: Scene) -> None:
    await sqlite_stage.worker("--shell")
    script = "sleep 1000 & touch begun; wait"
    call = add_to(App(sqlite_stage.url)).call(
        argv=["bash", "-c", script], cwd=str(sqlite_stage.folder)
    )
    job = (await sqlite_stage.store.enqueue([call.job]))[0].job_id

    await sqlite_stage.until((sqlite_stage.folder / "begun").exists, "the beginning of a command")
    stack = await asked(sqlite_stage, job)
    first, *lines = stack.text.split("\n\n")[1].splitlines()
    assert "bash -c sleep 1000" in first
    assert [" sleep 1000 (sleeping)" in each for each in lines] == [True]
