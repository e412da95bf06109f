"""Interrupted is not failed: no job is charged for what a deploy does to processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess

import psutil
import pytest

from harness.scene import Scene
from outlast.model.job import State
from outlast.store.values import NewJob
from tests.conformance.hostile_kit import raw
from tests.crash.kit import IMPATIENT
from tests.unkillable import held_at_its_exit

LONG = 300  # steps of 0.02 s in the first attempt: more than a drain waits for
ROLLING = ("--runners", "2", "--drain-timeout", "1")


@pytest.mark.timeout(600)
async def test_a_rolling_restart_under_load_charges_loses_and_doubles_nothing(
    stage: Scene,
) -> None:
    workers = [await stage.worker(*ROLLING) for _ in range(3)]
    long = [await stage.enqueue("counts") for _ in range(4)]
    long += [await stage.enqueue("counts_while_wanted") for _ in range(2)]
    short: list[int] = []
    restarted = asyncio.Event()
    load = asyncio.create_task(enqueue_until(restarted, stage, short))
    for old in workers:
        old.signal(signal.SIGTERM)
        await stage.worker(*ROLLING)
        await old.left()
    restarted.set()
    stage.enough()
    await load
    assert len(short) > len(workers), "there was load"
    for job in [*short, *long]:
        row = await stage.ended(job, deadline=90)
        assert (row.state, row.failures, row.losses) == (State.COMPLETED, 0, 0)
        assert {(one.outcome, one.charge) for one in await stage.attempts(job)} <= RELEASED
    interrupted = [job for job in long if await stage.attempts(job)]
    assert interrupted, "some were longer than the drain"
    once = [entry["value"] for entry in stage.entries("noted")]
    assert sorted(once) == list(range(len(short)))
    assert sorted(entry["job"] for entry in stage.entries("counted")) == sorted(long)


RELEASED = {("released", "none")}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_no_deploy_ends_a_job_that_has_begun_in_time(stage: Scene, number: int) -> None:
    (job,) = await stage.store.enqueue([NewJob(task="counts", expires=3_600.0)])
    old = await stage.worker(*ROLLING)
    await stage.started(1)
    async with raw(stage.url) as file:
        assert await file.run("UPDATE outlast_jobs SET expires_at = enqueued_at")
    old.signal(number)
    await asyncio.to_thread(old.process.wait, 60)
    await stage.worker(*ROLLING)
    await stage.started(2)
    stage.enough()
    row = await stage.ended(job.job_id)
    assert (row.state, row.expires_at, row.failures) == (State.COMPLETED, None, 0)


async def enqueue_until(over: asyncio.Event, stage: Scene, jobs: list[int]) -> None:
    while not over.is_set():
        jobs.append(await stage.enqueue("noted", value=len(jobs)))
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "task",
    ["returns_when_it_is_to_stop", "swallows_its_cancellation", "gives_up_when_it_is_to_stop"],
)
async def test_a_task_that_a_deploy_stops_midway_does_not_complete(stage: Scene, task: str) -> None:
    worker = await stage.worker("--drain-timeout", "0.1")
    job = await stage.enqueue(task, upto=LONG)
    await stage.started(1)
    await worker.left(signal.SIGTERM)
    assert worker.told("drain_timed_out")
    row = await stage.job(job)
    assert (row.state, row.failures, row.losses) == (State.QUEUED, 0, 0)
    assert {(one.outcome, one.charge) for one in await stage.attempts(job)} == RELEASED
    await stage.worker()
    row = await stage.ended(job)
    assert (row.state, row.result, row.attempt_count) == (State.COMPLETED, str(LONG), 2)


async def test_a_signal_to_the_whole_group_is_a_drain_of_the_worker(stage: Scene) -> None:
    """As systemd sends it: to the worker, the tether, each runner and what they have started."""
    worker = await stage.worker("--runners", "2", "--drain-timeout", "3")
    # or the plain function may be given back before it begins
    await stage.until(lambda: len(worker.told("runner_ready")) >= 2, "two runners")
    finishes = await stage.enqueue("counts", upto=5)
    goes_on = [await stage.enqueue(task) for task in ("waits", "first_hangs_in_python")]
    await stage.noted(3)
    worker.signal_tree(signal.SIGTERM)
    await worker.left()
    row = await stage.job(finishes)
    assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
    for job in goes_on:
        await is_released(stage, job)
    assert "tether_restarted" not in worker.log.read_text()


async def test_a_signal_to_the_whole_group_charges_no_task_whose_child_it_has_ended(
    stage: Scene,
) -> None:
    worker = await stage.worker("--drain-timeout", "6")
    job = await stage.enqueue("waits_for_its_child")

    await stage.noted(1, "child")
    worker.signal_tree(signal.SIGTERM)
    await worker.left()
    await is_released(stage, job)


async def test_a_task_whose_runner_is_signalled_again_and_again_is_bounded(
    sqlite_stage: Scene,
) -> None:
    """As by its own doing: its worker goes on, and is not told who it was."""
    await sqlite_stage.worker()
    job = await sqlite_stage.enqueue("waits_for_its_child")
    for number in (1, 2):
        seen = (await sqlite_stage.noted(number, "child"))[-1]
        os.kill(seen["pid"], signal.SIGTERM)
        os.kill(seen["child"], signal.SIGTERM)
    row = await sqlite_stage.ended(job)
    assert (row.state, row.failures, row.losses) == (State.DEAD, 0, 2)
    assert {one.outcome for one in await sqlite_stage.attempts(job)} == {"bystander"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_runner_that_was_asked_to_end_from_outside_is_no_failure(
    sqlite_stage: Scene, number: signal.Signals
) -> None:
    """Runners ignore these signals, but user code may have restored the default handler."""
    await sqlite_stage.worker()
    job = await sqlite_stage.enqueue("first_hears_again", number=int(number))

    (hearing,) = await sqlite_stage.noted(1, "hears")
    os.kill(hearing["pid"], number)
    row = await sqlite_stage.ended(job)
    assert (row.state, row.failures, row.losses) == (State.COMPLETED, 0, 1)
    (closed,) = await sqlite_stage.attempts(job)
    assert (closed.outcome, closed.charge) == ("bystander", "loss")
    assert closed.crash is not None
    assert closed.crash.signal == number.name


async def test_a_worker_ends_although_its_runner_cannot_be_killed(sqlite_stage: Scene) -> None:
    options = ("--drain-timeout", "0.1")
    worker = await sqlite_stage.worker(*options, env=IMPATIENT)
    job = await sqlite_stage.enqueue("waits_deaf")
    runner = (await sqlite_stage.started(1))["pid"]
    with held_at_its_exit(runner):
        await worker.left(signal.SIGTERM)
        assert psutil.pid_exists(runner)
    assert "runner_unkillable" in worker.log.read_text()
    (row,) = await sqlite_stage.worker_rows()
    assert row.status == "stopped"
    await sqlite_stage.worker()
    row_after = await sqlite_stage.started(2)
    assert row_after["still_alive"] == []
    assert (await sqlite_stage.job(job)).failures == 0


async def test_a_worker_that_lost_its_lease_comes_back_although_its_runner_cannot_be_killed(
    sqlite_stage: Scene,
) -> None:
    worker = await sqlite_stage.worker(env=IMPATIENT)
    job = await sqlite_stage.enqueue("first_hangs_in_python")
    runner = (await sqlite_stage.started(1))["pid"]

    async def reaped() -> bool:
        (seen,) = (await sqlite_stage.store.observe()).workers
        return await sqlite_stage.store.reap(seen)

    with held_at_its_exit(runner):
        await sqlite_stage.until(reaped, "a reap between two beats")
        row = await sqlite_stage.ended(job, deadline=120)
        assert (row.state, row.attempt_count) == (State.COMPLETED, 2)
        assert psutil.pid_exists(runner)
    assert "runner_unkillable" in worker.log.read_text()
    assert [row.status for row in await sqlite_stage.worker_rows()] == ["lost", "active"]


async def test_ctrl_c_in_a_terminal_is_a_drain_and_a_second_one_stops_at_once(
    stage: Scene,
) -> None:
    """The terminal sends SIGINT to its whole foreground group."""
    keyboard, terminal = os.openpty()
    try:
        worker = await stage.worker(
            *("--runners", "2", "--drain-timeout", "600"),
            prefix=("setsid", "--ctty"),
            stdin=terminal,
        )
        finishes = await stage.enqueue("counts", upto=20)
        deaf = await stage.enqueue("waits_deaf")

        await stage.noted(2)
        os.write(keyboard, CTRL_C)
        row = await stage.ended(finishes)
        assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
        assert (await stage.job(deaf)).state is State.RUNNING
        os.write(keyboard, CTRL_C)
        await worker.left()
    finally:
        os.close(keyboard)
        os.close(terminal)
    await is_released(stage, deaf)


CTRL_C = b"\x03"
DEFAULT_SIGHUP = ("env", "--default-signal=HUP")  # also where the tests run under nohup
TO_TERMINAL = (*DEFAULT_SIGHUP, "setsid", "--ctty", "sh", "-c", 'exec "$@" >/dev/tty 2>&1', "sh")


async def test_a_closing_terminal_is_one_drain_also_after_several_sighups(stage: Scene) -> None:
    """The kernel signals the foreground group, a shell its jobs once more; the log is not read."""
    keyboard, terminal = os.openpty()
    try:
        worker = await stage.worker("--drain-timeout", "600", prefix=TO_TERMINAL, stdin=terminal)
        job = await stage.enqueue("counts", upto=20)
        await stage.started(1)
    finally:
        os.close(terminal)
        os.close(keyboard)
    worker.signal_tree(signal.SIGHUP)
    await worker.left()
    row = await stage.job(job)
    assert (row.state, row.attempt_count) == (State.COMPLETED, 1)
    assert [row.status for row in await stage.worker_rows()] == ["stopped"]


async def test_under_nohup_a_worker_goes_on_when_its_terminal_closes(sqlite_stage: Scene) -> None:
    worker = await sqlite_stage.worker(prefix=("nohup",))
    worker.signal(signal.SIGHUP)
    job = await sqlite_stage.enqueue("counts", upto=3)
    assert (await sqlite_stage.ended(job)).state is State.COMPLETED
    assert [row.status for row in await sqlite_stage.worker_rows()] == ["active"]


async def test_a_second_signal_stops_at_once(stage: Scene) -> None:
    worker = await stage.worker("--runners", "2", "--drain-timeout", "600")
    jobs = [await stage.enqueue(task) for task in ("waits_deaf", "waits")]

    async def draining() -> bool:
        (row,) = await stage.worker_rows()
        return row.status == "draining"

    await stage.noted(2)
    worker.signal(signal.SIGTERM)
    await stage.until(draining, "the drain")
    await worker.left(signal.SIGTERM)
    for job in jobs:
        await is_released(stage, job)


async def is_released(stage: Scene, job: int) -> None:
    row = await stage.job(job)
    assert (row.state, row.failures, row.losses) == (State.QUEUED, 0, 0)
    assert {(one.outcome, one.charge) for one in await stage.attempts(job)} == RELEASED


CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc")


@pytest.fixture
def container() -> tuple[str, ...]:
    """What starts a command as process 1 of a pid namespace of its own."""
    if (
        shutil.which("unshare") is None
        or subprocess.run([*CONTAINER, "true"], check=False).returncode
    ):
        pytest.skip("a pid namespace needs unshare and the right to use it")
    return CONTAINER


async def test_a_worker_as_process_1_reaps_adopted_and_own_children(
    sqlite_stage: Scene, container: tuple[str, ...]
) -> None:
    worker = await sqlite_stage.worker(prefix=container)
    (row,) = await sqlite_stage.worker_rows()
    assert row.pid == 1
    orphan = (await sqlite_stage.ended(await sqlite_stage.enqueue("leaves_an_orphan"))).result

    async def is_buried() -> bool:
        job = await sqlite_stage.enqueue("is_in_the_table", pid=int(str(orphan)))
        return (await sqlite_stage.ended(job)).result == "false"

    await sqlite_stage.until(is_buried, "the burial of the orphan")
    dies = await sqlite_stage.enqueue("dereferences_null")
    _, crash = await sqlite_stage.death(dies)
    assert crash.signal == "SIGSEGV", "the worker itself waits for its own children"
    (first,) = psutil.Process(worker.pid).children()
    first.send_signal(signal.SIGTERM)
    await worker.left()
