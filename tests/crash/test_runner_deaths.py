"""A runner dies by itself or is killed: noticed at once, charged to the culprit."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys

import psutil
import pytest

from harness.scene import BY_LEASE, ROOT, Scene, boot
from outlast.model.job import State
from tests.crash.kit import STUCK


async def test_a_killed_runner_s_job_starts_again_at_once(stage: Scene) -> None:
    await stage.worker()
    job = await stage.enqueue("first_hangs_in_python")
    first = await stage.started(1)
    killed_at = boot()
    os.kill(first["pid"], signal.SIGKILL)
    second = await stage.started(2)
    assert second["at"] - killed_at < BY_LEASE
    assert second["still_alive"] == [], "the runner and its child are gone before the second start"
    assert (await stage.ended(job)).state is State.COMPLETED
    (closed,) = await stage.attempts(job)
    assert closed.outcome == "signalled"
    assert closed.crash is not None
    assert closed.crash.signal == "SIGKILL"
    assert closed.charge == "failure"


async def test_deaths_are_noticed_by_a_worker_that_inherited_an_ignored_sigchld(
    sqlite_stage: Scene,
) -> None:
    """The kernel would then reap children by itself, and no process could wait for them."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        worker = await sqlite_stage.worker()
    finally:
        signal.signal(signal.SIGCHLD, before)
    job = await sqlite_stage.enqueue("first_hangs_in_python")
    os.kill((await sqlite_stage.started(1))["pid"], signal.SIGKILL)
    assert (await sqlite_stage.ended(job)).state is State.COMPLETED
    await worker.left(signal.SIGTERM)


@pytest.mark.skipif(sys.platform != "linux", reason="sets a limit of another process")
async def test_a_death_is_noticed_by_a_worker_without_a_free_descriptor(
    sqlite_stage: Scene,
) -> None:
    """At the first death wait4() imported a module, which could not be opened then."""
    worker = await sqlite_stage.worker()
    job = await sqlite_stage.enqueue("first_hangs_in_python")
    pid = (await sqlite_stage.started(1))["pid"]
    limit = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (8, limit[1]))
    os.kill(pid, signal.SIGKILL)
    await sqlite_stage.until(lambda: not psutil.pid_exists(pid), "the worker to wait for it")
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, limit)
    assert (await sqlite_stage.ended(job)).state is State.COMPLETED
    (closed,) = await sqlite_stage.attempts(job)
    assert closed.message == "the runner died of SIGKILL"


@pytest.mark.slow
@pytest.mark.short("exited")
async def test_a_task_that_exits_is_dead_after_four_attempts_and_can_be_revived(
    stage: Scene,
) -> None:
    worker = await stage.worker("--runners", "2")
    flag = stage.folder / "flag"
    job = await stage.enqueue("exits_unless", path=str(flag))
    row = await stage.ended(job)
    assert row.state is State.DEAD
    attempts = await stage.attempts(job)
    assert [each.outcome for each in attempts] == ["exited"] * 4
    assert all(each.crash is not None and each.crash.exit_code == 1 for each in attempts)
    assert [each.number for each in attempts] == [1, 2, 3, 4]
    assert worker.process.poll() is None

    flag.touch()
    revived = await stage.store.requeue([job])
    assert revived[job] == "requeued"
    row = await stage.in_state(job, State.COMPLETED)
    assert row.token is not None
    assert row.token > max(each.token for each in attempts)


DEATHS = {  # what is told of it, and the outcomes that it may have
    "dereferences_null": ("dereferences_null", "signalled"),
    "speaks_and_dies": ("last words", "exited"),
    "writes_a_bad_frame": ("frame", "exited", "signalled"),
    "too_long": ("too_long", "timeout"),
    "too_long_and_deaf": ("too_long_and_deaf", "timeout"),
    "stalls": ("_inner_await", "stalled"),
}


@pytest.mark.short("signalled", "timeout", "stalled")
async def test_each_death_of_a_runner_is_told_with_its_cause_and_harms_nothing_else(
    stage: Scene,
) -> None:
    worker = await stage.worker("--concurrency", "1", env=STUCK)
    for task, (words, *outcomes) in DEATHS.items():
        closed, crash = await stage.death(await stage.enqueue(task))
        assert closed.outcome in outcomes, task
        assert closed.charge == "failure", task
        told = "\n".join([crash.message, crash.stacks or "", *crash.output])
        assert words in told, task
        assert "\x00" not in told, task
    after = await stage.enqueue("noop", value=3)
    assert (await stage.ended(after)).result == "3"
    assert worker.process.poll() is None


@pytest.mark.slow
@pytest.mark.short("bystander")
async def test_neighbours_of_a_killed_runner_are_bystanders(sqlite_stage: Scene) -> None:
    await sqlite_stage.worker()
    jobs = [await sqlite_stage.enqueue("first_hangs") for _ in range(3)]

    (pid,) = {entry["pid"] for entry in await sqlite_stage.noted(3)}
    os.kill(pid, signal.SIGKILL)
    for job in jobs:
        row = await sqlite_stage.ended(job)
        assert row.state is State.COMPLETED
        assert row.failures == 0
        (closed,) = await sqlite_stage.attempts(job)
        assert (closed.outcome, closed.charge) == ("bystander", "loss")
        assert closed.crash is not None
        assert sorted(closed.crash.neighbours) == sorted(set(jobs) - {job})


@pytest.mark.parametrize("how", ["exit", "stop", "cancel"])
async def test_a_task_that_ends_the_loop_of_its_runner_charges_no_neighbour(
    sqlite_stage: Scene, how: str
) -> None:
    await sqlite_stage.worker()
    neighbour = await sqlite_stage.enqueue("first_hangs")
    await sqlite_stage.started(1)
    culprit = await sqlite_stage.enqueue("ends_its_loop", how=how)
    assert (await sqlite_stage.ended(neighbour)).state is State.COMPLETED
    (closed,) = await sqlite_stage.attempts(neighbour)
    assert (closed.outcome, closed.charge) == ("bystander", "loss")
    assert (await sqlite_stage.ended(culprit)).state is State.DEAD
    last = (await sqlite_stage.attempts(culprit))[-1]
    assert (last.outcome, last.charge) == ("exited", "failure")
    assert last.crash is not None
    assert any("stopped the event loop" in line for line in last.crash.output)


async def test_a_job_claimed_before_a_death_is_noticed_is_not_charged(
    sqlite_stage: Scene,
) -> None:
    """A process that left the runner's group holds its output open and delays the report."""
    worker = await sqlite_stage.worker()
    await sqlite_stage.ended(await sqlite_stage.enqueue("leaves_a_daemon"))
    (started,) = sqlite_stage.entries()
    os.kill(started["pid"], signal.SIGKILL)
    await asyncio.sleep(0.1)  # it is dead, but reported only half a second later
    job = await sqlite_stage.enqueue("noop")
    assert (await sqlite_stage.ended(job)).state is State.COMPLETED
    assert await sqlite_stage.attempts(job) == []
    assert worker.process.poll() is None


async def test_cancelling_a_running_job_ends_it(stage: Scene) -> None:
    await stage.worker()
    job = await stage.enqueue("waits")
    await stage.started(1)
    assert (await stage.store.cancel([job]))[job] == "requested"
    row = await stage.ended(job)
    assert row.state is State.CANCELLED
    assert [each.outcome for each in await stage.attempts(job)] == ["cancelled"]


@pytest.mark.short
async def test_cancelling_a_function_that_does_not_react_kills_its_runner(
    sqlite_stage: Scene,
) -> None:
    await sqlite_stage.worker()
    job = await sqlite_stage.enqueue("waits_deaf")
    first = await sqlite_stage.started(1)
    await sqlite_stage.store.cancel([job])
    assert (await sqlite_stage.ended(job)).state is State.CANCELLED
    (closed,) = await sqlite_stage.attempts(job)
    assert (closed.outcome, closed.charge) == ("cancelled", "none")
    assert closed.crash is not None
    assert "in waits_deaf" in (closed.crash.stacks or "").splitlines()[1]
    assert closed.message.startswith("it did not stop when asked; it was at File ")

    await sqlite_stage.until(
        lambda: not os.path.exists(f"/proc/{first['pid']}"), "the end of the deaf runner"
    )


@pytest.mark.short("error", "rejected_result")
async def test_odd_texts_end_only_their_own_job(stage: Scene) -> None:
    await stage.worker()
    nul = await stage.enqueue("nul_result")
    bad = await stage.enqueue("bad_result")
    surrogate = await stage.enqueue("surrogate_result")
    odd = await stage.enqueue("odd_message")
    good = await stage.enqueue("noop", value=1)
    assert (await stage.ended(nul)).result == '"a\\u0000b"'
    assert (await stage.ended(good)).state is State.COMPLETED
    for job, outcome in ((bad, "rejected_result"), (surrogate, "rejected_result"), (odd, "error")):
        assert (await stage.ended(job)).state is State.DEAD
        assert [each.outcome for each in await stage.attempts(job)] == [outcome]


async def test_a_task_enqueues_into_the_store_of_its_worker(sqlite_stage: Scene) -> None:
    await sqlite_stage.worker(env={"OUTLAST_URL": "sqlite:///elsewhere.db"})
    parent = await sqlite_stage.enqueue("enqueues")
    child = int((await sqlite_stage.ended(parent)).result or 0)
    assert (await sqlite_stage.ended(child)).result == "7"
    assert not (ROOT / "elsewhere.db").exists()
