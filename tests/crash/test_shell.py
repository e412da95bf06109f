"""Commands as jobs, with real workers: no process of a command outlives its attempt."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.scene import DEADLINE, Scene
from outlast.client.app import App
from outlast.model.crash import OUTPUT_LINES_MAX
from outlast.model.job import State
from outlast.runner.shell.task import add_to

pytestmark = pytest.mark.timeout(4 * DEADLINE + 120)

SHELL = ("--shell",)
OUTLAST = f"{sys.executable} -m outlast.cli"
PATIENCE = 3 * DEADLINE  # these start many processes on a busy machine
FLOOD_BYTES = 200_000_000
MEMORY_MAX = 60_000_000  # bytes that a flood may add to the largest size of a process

# The first attempt saves, and then waits for a child in a process group of its own; later ones
# look whether anything of the first is left.
TWO_ATTEMPTS = f"""
set -m
if [ "${{OUTLAST_CHECKPOINT:-none}}" = none ]; then
    {OUTLAST} checkpoint 'page 4' || exit 9
    trap '' TERM
    sleep 1000 & echo "$$ $!" > pids
    wait
else
    echo "from $OUTLAST_CHECKPOINT"
    for pid in $(cat pids); do
        grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$pid/status" && echo "$pid is left"
    done
    exit 0
fi
"""


async def command(stage: Scene, script: str, **options: Any) -> int:
    """Enqueue a script for bash, to run in the stage's folder; return the job's id."""
    task = add_to(App(stage.url), **options)
    call = task.call(argv=["bash", "-c", script], cwd=str(stage.folder))
    return (await stage.store.enqueue([call.job]))[0].job_id


async def pids(stage: Scene) -> list[psutil.Process]:
    """Wait for the pids that a script has written."""
    file = stage.folder / "pids"

    await stage.until(
        lambda: file.exists() and file.read_text().endswith("\n"), "the pids of a command", PATIENCE
    )
    return [psutil.Process(int(pid)) for pid in file.read_text().split()]


def runner_of(processes: list[psutil.Process]) -> psutil.Process:
    runner = processes[0].parent()
    assert runner is not None
    return runner


async def gone(stage: Scene, processes: list[psutil.Process]) -> None:
    await stage.until(
        lambda: not any(lives(process) for process in processes),
        "the end of a command's processes",
        PATIENCE,
    )


def lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def went_on(stage: Scene, job: int) -> None:
    """Check that the second attempt began where the first one had saved, alone."""
    row = await stage.ended(job, PATIENCE)
    assert row.state is State.COMPLETED, stage.logs()
    assert row.result == '{"exit_code":0,"output":["from page 4"]}'


@pytest.mark.short
async def test_a_command_ends_with_its_killed_worker_and_resumes_from_its_checkpoint(
    stage: Scene,
) -> None:
    worker = await stage.worker(*SHELL)
    job = await command(stage, TWO_ATTEMPTS)
    processes = await pids(stage)
    worker.signal(signal.SIGKILL)
    await gone(stage, processes)
    await stage.worker(*SHELL)
    await went_on(stage, job)


async def test_a_command_ends_with_its_killed_runner_and_is_released_at_a_drain(
    sqlite_stage: Scene,
) -> None:
    stage = sqlite_stage
    worker = await stage.worker(*SHELL, "--drain-timeout", "0.1")
    job = await command(stage, TWO_ATTEMPTS)
    processes = await pids(stage)
    runner_of(processes).kill()
    await went_on(stage, job)
    (closed,) = await stage.attempts(job)
    assert (closed.outcome, closed.charge) == ("signalled", "failure")
    assert not any(lives(process) for process in processes)

    (stage.folder / "pids").unlink()
    job = await command(stage, 'trap "echo bye; exit 0" TERM; sleep 1000 & echo $$ > pids; wait')
    await pids(stage)
    await worker.left(signal.SIGTERM)
    row = await stage.job(job)
    assert (row.state, row.failures, row.losses) == (State.QUEUED, 0, 0)


@pytest.mark.parametrize("trap", ["", "trap 'exit 0' TERM; "], ids=["dies", "exits with 0"])
async def test_a_command_that_a_signal_to_the_whole_group_ends_runs_again_uncharged(
    sqlite_stage: Scene, trap: str
) -> None:
    """It may have done a part of its work; no exit code could tell."""
    stage = sqlite_stage
    worker = await stage.worker(*SHELL, "--drain-timeout", "30")
    job = await command(stage, f"{trap}sleep 1000 & echo $$ > pids; wait")
    await pids(stage)
    worker.signal_tree(signal.SIGTERM)
    await worker.left()
    row = await stage.job(job)
    assert (row.state, row.failures, row.losses) == (State.QUEUED, 0, 0)
    assert [one.outcome for one in await stage.attempts(job)] == ["released"]


async def test_a_command_is_asked_to_stop_and_killed_with_its_group_where_it_does_not(
    sqlite_stage: Scene,
) -> None:
    stage = sqlite_stage
    await stage.worker(*SHELL)
    deaf = 'trap "" TERM; echo deaf; sleep 1000 & echo "$$ $!" > pids; wait; wait'
    job = await command(stage, deaf, timeout=0.5, cancel_grace=0.5, retries=0)
    processes = await pids(stage)
    assert (await stage.ended(job, PATIENCE)).state is State.DEAD
    assert not any(lives(process) for process in processes)
    (closed,) = await stage.attempts(job)
    assert closed.outcome == "timeout"
    assert "did not stop when asked" in closed.message
    assert closed.crash is not None
    assert (closed.crash.output, closed.crash.stacks) == (["deaf"], None)

    (stage.folder / "pids").unlink()
    job = await command(
        stage, 'trap "echo bye > cleaned; exit 3" TERM; sleep 1000 & echo "$$ $!" > pids; wait'
    )
    processes = await pids(stage)
    runner = runner_of(processes)
    await stage.store.cancel([job])
    assert (await stage.ended(job, PATIENCE)).state is State.CANCELLED
    assert (stage.folder / "cleaned").read_text() == "bye\n"
    await gone(stage, processes)
    assert lives(runner), "a command that stops when asked costs no runner"


async def test_a_flood_of_output_takes_bounded_memory(sqlite_stage: Scene) -> None:
    stage = sqlite_stage
    worker = await stage.worker(*SHELL, "--log-format", "text")  # of few bytes for each line
    assert (
        await stage.ended(await command(stage, "echo first"), PATIENCE)
    ).state is State.COMPLETED
    tree = [process.pid for process in worker.tree()]
    before = {pid: largest(pid) for pid in tree}
    job = await command(stage, f"yes | head -c {FLOOD_BYTES}; echo last")
    row = await stage.ended(job, PATIENCE)
    assert row.state is State.COMPLETED
    assert row.result is not None
    assert row.result.count('"y"') == OUTPUT_LINES_MAX - 1
    assert row.result.endswith('"last"]}')
    assert {pid: largest(pid) - before[pid] > MEMORY_MAX for pid in tree} == dict.fromkeys(
        tree, False
    )
    worker.log.write_bytes(b"")  # drop the flood, which takes space


def largest(pid: int) -> int:
    """Return the most bytes of memory that a process has had."""
    lines = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return int(lines["VmHWM"].split()[0]) * 1024
