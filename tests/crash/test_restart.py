"""A killed worker is started again in place; one that only looks like it is left alone."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from harness.scene import Scene, WorkerProcess
from outlast.model.job import State
from outlast.model.lease import DeathCause
from outlast.store.lockfile import LockFile, boot_id, directory_for
from outlast.store.rows import WorkerStatus
from outlast.store.values import NewWorker
from tests.crash.kit import goes_on, row_of

CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts")


async def reconciled(stage: Scene, worker: WorkerProcess) -> int:
    """Wait for the first look of a worker; return the number of orphans found."""

    return int((await stage.told(worker, "reconciliation_complete"))["orphaned_count"])


# ---------------------------------------------------------------------------- restarted


@pytest.mark.short("lock_file", "lost_worker")
async def test_the_only_worker_started_again_finds_its_lock_file_free_at_its_first_look(
    stage: Scene,
) -> None:
    first = await stage.worker()
    job = await stage.enqueue("first_hangs_in_python")
    await stage.started(1)
    first.kill_tree()
    again = await stage.worker()
    assert await reconciled(stage, again) == 1
    second = await stage.started(2)
    assert second["still_alive"] == []
    row = await row_of(stage, first)
    assert (row.status, row.cause) == (WorkerStatus.LOST, DeathCause.LOCK_FILE)
    assert (await stage.told(again, "worker_reaped"))["worker_id"] == row.id
    assert (await stage.ended(job)).state is State.COMPLETED


@pytest.mark.slow
@pytest.mark.short("restarted")
async def test_an_instance_takes_over_as_it_registers_where_no_lock_file_is_left(
    stage: Scene,
) -> None:
    first = await stage.worker("--instance", "pod-0")
    job = await stage.enqueue("first_hangs")
    await stage.started(1)
    for lock in stage.lock_files():
        lock.unlink()  # the pod's disk is new
    first.kill_tree()
    again = await stage.worker(env={"OUTLAST_INSTANCE": "pod-0"})
    assert (await stage.told(again, "worker_registered"))["replaced"] == 1
    assert await reconciled(stage, again) == 1
    await stage.started(2)
    row = await row_of(stage, first)
    assert (row.status, row.cause) == (WorkerStatus.LOST, DeathCause.RESTARTED)
    (closed,) = await stage.attempts(job)
    assert (closed.outcome, closed.charge) == ("lost_worker", "loss")
    assert DeathCause.RESTARTED.sentence in closed.message


# -------------------------------------------------------------------------- not restarted


@pytest.mark.parametrize("instances", [(None, None), ("pod-0", "pod-1")], ids=str)
async def test_a_live_worker_on_the_same_host_keeps_its_jobs(
    stage: Scene, instances: tuple[str | None, str | None]
) -> None:
    mine, other = (("--instance", name) if name else () for name in instances)
    sibling = await stage.worker(*mine)
    job = await stage.enqueue("counts")
    await stage.started(1)
    started = await stage.worker(*other)
    assert (await stage.told(started, "worker_registered"))["replaced"] == 0
    assert await reconciled(stage, started) == 0
    await goes_on(stage, job, 2)
    assert (await row_of(stage, sibling)).status is WorkerStatus.ACTIVE
    assert (await stage.job(job)).attempt_count == 1


async def test_a_reused_process_id_misleads_no_reaper(stage: Scene, tmp_path: Path) -> None:
    """Three rows on one host show the id of the one worker that runs."""
    worker = await stage.worker()
    file = stage.url.removeprefix("sqlite:///") if stage.url.startswith("sqlite") else None
    directory = tmp_path / "run" if file is None else directory_for(Path(file))
    locks = [LockFile.create(directory, name) for name in ("dead", "living")]
    for lock, name in zip(locks, ("dead", "living"), strict=True):
        await stage.store.register(_twin(name, worker.pid, lock))
    locks[0].release(unlink=False)

    async def found() -> bool:
        return any(row.status is WorkerStatus.LOST for row in await stage.worker_rows())

    await stage.until(found, "the dead one to be found")
    rows = {row.name: row for row in await stage.worker_rows()}
    assert (rows["dead"].status, rows["dead"].cause) == ("lost", DeathCause.LOCK_FILE)
    assert rows["living"].status is WorkerStatus.ACTIVE
    assert (await row_of(stage, worker)).status is WorkerStatus.ACTIVE
    locks[1].release()


def _twin(name: str, pid: int, lock: LockFile) -> NewWorker:
    return NewWorker(
        name=name,
        host=socket.gethostname(),
        pid=pid,
        boot_id=boot_id(),
        heartbeat=30.0,
        lease=600.0,
        lock_path=str(lock.path),
        lock_device=lock.device,
        lock_inode=lock.inode,
    )


async def test_containers_with_equal_host_names_where_each_worker_is_process_1(
    stage: Scene, tmp_path: Path
) -> None:
    if not _can_contain():
        pytest.skip("needs the right to make a namespace for processes")
    one = await contained(stage, tmp_path / "one")
    job = await stage.enqueue("counts")
    await stage.started(1)
    two = await contained(stage, tmp_path / "two")
    rows = [await row_of(stage, worker) for worker in (one, two)]
    assert [(row.host, row.pid) for row in rows] == [("app", 1)] * 2
    assert await reconciled(stage, two) == 0
    await goes_on(stage, job, 2)
    assert (await row_of(stage, one)).status is WorkerStatus.ACTIVE
    assert (await stage.job(job)).attempt_count == 1


async def contained(stage: Scene, run_dir: Path) -> WorkerProcess:
    """A worker that is process 1 on a host called "app", with its own folder for lock files."""
    command = (*CONTAINER, "sh", "-c", 'hostname app && exec "$@"', "sh")
    return await stage.worker(env={"OUTLAST_RUN_DIR": str(run_dir)}, prefix=command)


def _can_contain() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    done = subprocess.run([*CONTAINER, "hostname", "app"], capture_output=True, check=False)
    return done.returncode == 0
