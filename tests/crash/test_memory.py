"""Memory really runs out: one runner dies of it, its worker and the other runners do not.

The cgroups are of version 1, made below this process's own; of version 2 only the reading of its
files is tested (tests/unit/worker/runners/test_memory.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.scene import DEADLINE, Scene
from outlast.model.crash import CrashKind
from outlast.model.job import State
from outlast.store.rows import StoredJob

MIB = 1024 * 1024
VICTIM = 40  # MiB
LIMIT = 300 * MIB  # of the cgroup: a worker, its tether, two runners, a spare, a victim, and EATEN
EATEN = 350  # MiB, above the limit
AT_START = 3  # runners, of two with a spare
JOBS = 60


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A memory cgroup of version 1 with a limit, for a worker; gone after the test."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    path = next((line.split(":", 2)[2] for line in lines if ":memory:" in line), None)
    own = Path(f"/sys/fs/cgroup/memory{path}")  # found without the code under test
    if path is None or not (own / "memory.oom_control").exists():
        pytest.skip("no memory cgroup of version 1 in its usual place")
    folder = own / f"outlast-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(LIMIT))
        with contextlib.suppress(OSError):  # without swap there is nothing to limit
            (folder / "memory.memsw.limit_in_bytes").write_text(str(LIMIT))
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        pytest.skip(f"a cgroup cannot be made here: {error}")
    yield folder
    _remove(folder)


def inside(cgroup: Path) -> tuple[str, ...]:
    """Return the wrapping command that puts a worker there."""
    return ("sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(cgroup))


def _remove(folder: Path) -> None:
    """End what is left in it, wait until it is empty, and remove it."""
    end = time.monotonic() + DEADLINE
    while pids := (folder / "cgroup.procs").read_text().split():
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(int(pid)).kill()
        assert time.monotonic() < end
        time.sleep(0.02)
    folder.rmdir()


async def a_neighbour(stage: Scene) -> tuple[int, Path]:
    """Start a job in a runner of its own that ends when the file is there.

    The kernel takes every other runner first.
    """
    gate = stage.folder / "gate"
    job = await stage.enqueue("waits_for", path=str(gate))
    pid = (await stage.started(1))["pid"]
    Path(f"/proc/{pid}/oom_score_adj").write_text("0")  # as low as it was: this needs no privilege
    return job, gate


@contextlib.contextmanager
def a_second_victim(cgroup: Path) -> Iterator[None]:
    """Have a process there that the kernel kills after the eating runner, before any other.

    Before the memory of the first that it has killed is free, the kernel kills once more where
    another process asks for some: here it would be the worker, if no spare runner has started.
    """
    kept = f"kept = bytearray(b'x') * ({VICTIM} << 20)"
    program = f"import time; {kept}; print(flush=True); time.sleep(600)"
    with subprocess.Popen(
        [*inside(cgroup), sys.executable, "-c", program], stdout=subprocess.PIPE
    ) as process:
        try:
            Path(f"/proc/{process.pid}/oom_score_adj").write_text("300")
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()


async def test_a_kill_by_the_oom_killer_is_reported_with_its_evidence(
    sqlite_stage: Scene, cgroup: Path
) -> None:
    stage = sqlite_stage
    worker = await stage.worker("--runners", "2", prefix=inside(cgroup))
    neighbour, gate = await a_neighbour(stage)
    with a_second_victim(cgroup):
        eater = await stage.enqueue("eats", megabytes=EATEN)
        closed, crash = await stage.death(eater)
    assert (closed.outcome, closed.charge) == ("out_of_memory", "failure")
    assert crash.kind is CrashKind.OUT_OF_MEMORY
    assert crash.signal == "SIGKILL"
    assert "for lack of memory" in crash.message
    seen = crash.memory
    assert seen is not None
    assert (seen.source, seen.cgroup, seen.limit_bytes) == ("cgroup", str(cgroup), LIMIT)
    assert seen.oom_kills_before is not None
    assert (seen.oom_kills_after or 0) > seen.oom_kills_before  # another may have been, too
    assert (seen.peak_bytes or 0) > LIMIT * 0.9
    assert (crash.rss_peak_bytes or 0) > 50 * MIB

    gate.touch()
    row = await stage.ended(neighbour)
    assert (row.state, row.failures, row.losses) == (State.COMPLETED, 0, 0)
    assert await stage.attempts(neighbour) == []
    assert worker.process.poll() is None


async def test_a_kill_by_hand_in_a_limited_cgroup_is_no_lack_of_memory(
    sqlite_stage: Scene, cgroup: Path
) -> None:
    await sqlite_stage.worker(prefix=inside(cgroup))
    job = await sqlite_stage.enqueue("first_hangs_in_python")
    os.kill((await sqlite_stage.started(1))["pid"], 9)
    await sqlite_stage.ended(job)
    (closed,) = await sqlite_stage.attempts(job)
    assert closed.outcome == "signalled"
    assert closed.crash is not None
    assert closed.crash.memory is None


async def test_a_worker_that_is_killed_with_all_its_processes_under_a_limit_is_recovered_from(
    sqlite_stage: Scene, cgroup: Path
) -> None:
    """As a kernel that kills a whole cgroup: no process is left to report the cause."""
    worker = await sqlite_stage.worker(prefix=inside(cgroup))
    job = await sqlite_stage.enqueue("first_hangs_in_python")
    await sqlite_stage.started(1)
    worker.kill_tree()
    await sqlite_stage.worker()
    assert (await sqlite_stage.ended(job)).state is State.COMPLETED
    (closed,) = await sqlite_stage.attempts(job)
    assert (closed.outcome, closed.charge) == ("lost_worker", "loss")


@pytest.mark.short("out_of_memory")
async def test_only_the_runner_far_above_max_rss_is_killed(sqlite_stage: Scene) -> None:
    stage = sqlite_stage
    worker = await stage.worker("--runners", "2", "--max-rss", "100M")
    neighbour, gate = await a_neighbour(stage)
    eater = await stage.enqueue("eats", megabytes=EATEN)
    closed, crash = await stage.death(eater)
    assert (closed.outcome, closed.charge) == ("out_of_memory", "failure")
    assert crash.memory is not None
    assert crash.memory.source == "max_rss"
    assert crash.memory.limit_bytes == 100 * MIB
    assert "above 1.5 times its max_rss of 100 MiB" in (crash.message or "")
    assert (crash.memory.rss_bytes or 0) > 150 * MIB
    if crash.stacks is not None:  # a busy machine may give none within STACKS_SECONDS
        assert "take" in crash.stacks or "eats" in crash.stacks

    gate.touch()
    row = await stage.ended(neighbour)
    assert (row.state, row.failures, row.losses) == (State.COMPLETED, 0, 0)
    assert worker.process.poll() is None


async def test_far_above_max_rss_the_others_in_that_runner_are_not_charged(
    sqlite_stage: Scene,
) -> None:
    await sqlite_stage.worker("--max-rss", "100M")
    neighbour = await sqlite_stage.enqueue("first_hangs")
    await sqlite_stage.started(1)
    await sqlite_stage.enqueue("eats_with_neighbours", megabytes=EATEN)
    row = await sqlite_stage.ended(neighbour)
    assert (row.state, row.failures) == (State.COMPLETED, 0)
    (closed,) = await sqlite_stage.attempts(neighbour)
    assert (closed.outcome, closed.charge) == ("bystander", "loss")
    assert closed.crash is not None
    assert closed.crash.memory is not None


async def test_above_max_rss_a_runner_finishes_its_job_and_is_replaced(
    sqlite_stage: Scene,
) -> None:
    """Between the limit and half as much again."""
    stage = sqlite_stage
    gate = stage.folder / "gate"
    worker = await stage.worker("--max-rss", "100M")
    resting = (await stage.ended(await stage.enqueue("says_where"))).result or "0"
    at_rest = psutil.Process(int(resting)).memory_info().rss
    eaten = 10 * round((120 * MIB - at_rest) / MIB / 10)
    leak = await stage.ended(await stage.enqueue("leaks", megabytes=eaten))
    worn = int(leak.result or 0)

    await stage.until(
        lambda: "runner_recycled" in worker.log.read_text(), "a worn runner to be replaced"
    )
    gate.touch()
    after = await stage.ended(await stage.enqueue("waits_for", path=str(gate)))
    assert after.result != str(worn)
    assert await stage.attempts(leak.id) == []

    await stage.until(lambda: not psutil.pid_exists(worn), "the worn runner to leave")


async def test_runners_are_replaced_after_their_attempts_while_jobs_flow(stage: Scene) -> None:
    worker = await stage.worker("--runners", "2", "--max-jobs-per-runner", "3")
    ended: list[StoredJob] = []

    async def replaced() -> bool:  # how soon depends on the machine: a new one has to start
        jobs = [await stage.enqueue("says_where", seconds=0.1) for _ in range(20)]
        ended.extend([await stage.ended(job) for job in jobs])
        return len(ended) >= JOBS and len({row.result for row in ended}) > AT_START

    await stage.until(replaced, "more runners than there were at the start")
    for row in ended:
        assert (row.state, row.failures, row.losses) == (State.COMPLETED, 0, 0)
        taken_back = {one.message for one in await stage.attempts(row.id)}
        assert taken_back <= {"no runner that knows it was free"}  # where a new one starts slowly
    assert worker.process.poll() is None
    assert "runner_died" not in worker.log.read_text()


async def test_a_limit_below_what_the_application_needs_is_refused(sqlite_stage: Scene) -> None:
    with pytest.raises(AssertionError, match="before its first attempt"):
        await sqlite_stage.worker("--max-rss", "16M")
    (worker,) = sqlite_stage.workers
    assert await asyncio.to_thread(worker.process.wait, DEADLINE) == 2


async def test_the_kernel_takes_a_runner_before_its_worker(sqlite_stage: Scene) -> None:
    """Also where the worker itself has a high score, as in a pod."""
    raised = ("sh", "-c", 'echo 400 > /proc/self/oom_score_adj && exec "$@"', "-")
    worker = await sqlite_stage.worker(prefix=raised)
    pid = (await sqlite_stage.ended(await sqlite_stage.enqueue("says_where"))).result
    scores = [int(Path(f"/proc/{each}/oom_score_adj").read_text()) for each in (pid, worker.pid)]
    assert scores == [900, 400]
