"""Commands that signal all that they may, and what is left of their worker and its other jobs.

`test_shell.py` shows commands whose worker or runner is killed, floods of output and deaf ones.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import psutil
import pytest

from harness.scene import DEADLINE, Scene, WorkerProcess
from outlast.model.job import State
from tests.crash.test_shell import PATIENCE, SHELL, command, gone, pids

pytestmark = pytest.mark.timeout(4 * DEADLINE + 120)

OUTLAST = f"{sys.executable} -m outlast.cli"
NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--mount-proc", "--fork", "--")
# Never outside a namespace of its own: this script would end the machine's processes.
INSIDE = '[ "$(readlink /proc/self/ns/pid)" != "$OUTSIDE" ] || exit 99; '


@pytest.fixture(scope="module")
def namespace() -> tuple[str, ...]:
    """What starts a program in a pid namespace of its own."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare(1) here")
    tried = subprocess.run([*NAMESPACE, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"namespaces are not allowed here: {tried.stderr.strip()}")
    return NAMESPACE


async def in_namespace(stage: Scene, namespace: tuple[str, ...], *options: str) -> WorkerProcess:
    """Start a worker as the first process of a namespace, which no signal from inside ends."""
    outside = {"OUTSIDE": os.readlink("/proc/self/ns/pid")}
    return await stage.worker(*SHELL, *options, prefix=namespace, env=outside)


@pytest.mark.parametrize("number", ["KILL", "STOP"])
async def test_a_command_that_signals_every_process_ends_its_runner_and_not_its_worker(
    sqlite_stage: Scene, namespace: tuple[str, ...], number: str
) -> None:
    """The runner and the tether are gone, or stand still."""
    stage = sqlite_stage
    worker = await in_namespace(stage, namespace)
    job = await command(stage, f"{INSIDE}kill -{number} -1; sleep 1000", timeout=1.0, retries=0)
    row = await stage.ended(job, PATIENCE)
    assert row.state is State.DEAD, stage.logs()
    (closed,) = await stage.attempts(job)
    assert closed.outcome == ("signalled" if number == "KILL" else "timeout"), closed
    after = await command(stage, "echo well")
    assert (await stage.ended(after, PATIENCE)).state is State.COMPLETED
    assert worker.process.poll() is None


async def test_a_command_that_asks_every_process_to_end_drains_its_worker(
    sqlite_stage: Scene, namespace: tuple[str, ...]
) -> None:
    """The first process of a namespace gets no such signal, so this worker is another one."""
    stage = sqlite_stage
    under_init = (*namespace, "sh", "-c", '"$@"; exit $?', "sh")
    worker = await in_namespace(stage, under_init, "--drain-timeout", "0.1")
    job = await command(stage, f"{INSIDE}trap '' TERM; kill -TERM -1; sleep 1000")
    await worker.left()
    row = await stage.job(job)
    assert (row.state, row.failures, row.losses) == (State.QUEUED, 0, 0)


SESSION = "kill -TERM $(ps -o pid= -s $(ps -o sid= -p $$)); sleep 1000"


async def test_a_command_that_signals_its_whole_session_does_not_run_again_at_once(
    sqlite_stage: Scene,
) -> None:
    """Its runner cannot tell that from a signal to the whole service, so it is not charged; but
    its worker goes on, and would run it again and again as fast as it can."""
    stage = sqlite_stage
    await stage.worker(*SHELL)
    job = await command(stage, SESSION, backoff_first=600.0)

    async def waits() -> bool:
        return len(await stage.attempts(job)) == 2 and (await stage.job(job)).waiting

    await stage.until(waits, "the pause after its second attempt", PATIENCE)
    row = await stage.job(job)
    assert (row.state, row.failures, row.losses) == (State.QUEUED, 0, 2)
    for closed in await stage.attempts(job):
        assert closed.outcome == "bystander"
        assert "signal" in closed.message
    await stage.store.cancel([job])


GRANDCHILD = f"""
setsid sh -c '{OUTLAST} checkpoint early && {OUTLAST} report 0.5 half; echo $? > early;
    until [ -e enough ]; do sleep 0.1; done
    {OUTLAST} checkpoint late 2> late.said; echo $? > late' > /dev/null 2>&1 &
until [ -e early ]; do sleep 0.1; done
"""


async def test_what_a_command_has_left_behind_saves_while_it_runs_and_not_after(
    sqlite_stage: Scene,
) -> None:
    stage = sqlite_stage
    await stage.worker(*SHELL)
    job = await command(stage, GRANDCHILD)
    row = await stage.ended(job, PATIENCE)
    assert (row.state, row.checkpoint) == (State.COMPLETED, '"early"'), stage.logs()
    assert (stage.folder / "early").read_text() == "0\n"
    (stage.folder / "enough").touch()

    await stage.until(
        lambda: (stage.folder / "late").exists() and bool((stage.folder / "late").read_text()),
        "the late checkpoint",
        PATIENCE,
    )
    assert (stage.folder / "late").read_text() == "3\n"
    assert "the runner of this command is gone" in (stage.folder / "late.said").read_text()
    assert (await stage.job(job)).checkpoint == '"early"'


async def test_a_command_that_stops_its_runner_is_ended_at_its_limit(sqlite_stage: Scene) -> None:
    stage = sqlite_stage
    await stage.worker(*SHELL)
    job = await command(
        stage, "sleep 1000 & echo $$ $! > pids; kill -STOP $PPID; wait", timeout=1.0, retries=0
    )
    processes = await pids(stage)
    assert (await stage.ended(job, PATIENCE)).state is State.DEAD
    (closed,) = await stage.attempts(job)
    assert (closed.outcome, closed.charge) == ("timeout", "failure")
    await gone(stage, processes)


TREE = """
set -m
grow() { echo $BASHPID >> tree; [ "$1" -gt 0 ] && { grow $(($1 - 1)) & }; sleep 1000; }
grow 40 &
until [ "$(wc -l < tree)" -gt 40 ]; do sleep 0.1; done
"""


async def test_a_tree_of_processes_each_in_a_group_of_its_own_goes_with_its_command(
    sqlite_stage: Scene,
) -> None:
    stage = sqlite_stage
    await stage.worker(*SHELL)
    job = await command(stage, TREE)
    assert (await stage.ended(job, PATIENCE)).state is State.COMPLETED, stage.logs()
    grown = [int(pid) for pid in (stage.folder / "tree").read_text().split()]
    left = [pid for pid in grown if psutil.pid_exists(pid)]
    assert [pid for pid in left if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE] == []
