"""Lock files and the beats in them: what a free lock proves, and what proves nothing."""

# ruff: noqa: ASYNC220  (these tests play with files and processes)

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.errors import ConfigError, StoreUnavailable
from outlast.insight.doctor.host import locks_of
from outlast.model.lease import Beating
from outlast.store import lockfile, open_store
from outlast.store.backend import file_of
from outlast.store.lockfile import LockFile, Probe
from outlast.store.rows import WorkerStatus
from outlast.store.sqlite.store import SqliteStore
from tests.conformance.kit import Hands, enqueued, eventually, lost_worker
from tests.manual_clock import ManualClock
from tests.sqlite import files_kit
from tests.sqlite.files_kit import registered

path = files_kit.path
url = files_kit.url
store = files_kit.store
lock = files_kit.lock
foreign = files_kit.foreign

STRANGER = 65_534


# --- beats


async def test_a_long_foreign_transaction_starves_no_beat(
    store: SqliteStore, lock: LockFile, path: Path
) -> None:
    hands = await registered(store, lock, heartbeat=20.0, lease=60.0)  # its row is fresh for 10 s
    store.lock = lock
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        before = (await hands.seen()).beat
        for count in range(1, 4):
            assert (await store.heartbeat(hands.me)).renewed
            assert (await hands.seen()).beat == before + count
        foreign.execute("ROLLBACK")
        await store.heartbeat(hands.me)
        (row,) = await store.inspector.workers()
        assert row.beat == before, "a commit wakes all workers: a row that is fresh stays as it is"
        foreign.execute("UPDATE outlast_workers SET heartbeat_at = heartbeat_at - lease / 5")
        (shown,) = await store.inspector.workers()
        assert shown.heartbeat_at >= row.heartbeat_at, "people are shown the beat of the file"
        age = (await hands.seen()).age
        assert max(shown.unheard or 0.0, age or 0.0) < row.lease / 5
    await store.heartbeat(hands.me)
    (row,) = await store.inspector.workers()
    assert row.beat == before + 5


async def test_an_observer_without_access_to_a_lock_file_sees_its_worker_beat_without_a_pause(
    url: str, lock: LockFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would never close an attempt that is far above its limit."""
    clock = ManualClock()
    store = SqliteStore(url, clock=clock)
    await store.open()
    hands = await registered(store, lock, heartbeat=2.0, lease=60.0)
    store.lock = lock
    monkeypatch.setattr("outlast.store.sqlite.store.directory_for", lambda _: tmp_path / "other")
    beating = Beating()
    for _ in range(60):
        assert (await store.heartbeat(hands.me)).renewed
        beating.look(clock.boot(), [await hands.seen()])
        clock.advance(2.0)
    assert clock.boot() - beating.last_beat(hands.me.worker_id, after=60.0) < 60.0
    await store.close()


async def test_a_beat_through_the_file_alone_saves_a_worker_from_the_reaper(
    store: SqliteStore, lock: LockFile
) -> None:
    hands = await registered(store, lock)
    seen = await hands.seen()
    lock.beat()
    assert not await store.reap(seen)
    assert await store.reap(await hands.seen())
    store.lock = lock
    assert not (await store.heartbeat(hands.me)).renewed


async def test_without_a_lock_file_a_beat_needs_the_row(
    store: SqliteStore, foreign: sqlite3.Connection
) -> None:
    foreign.execute("ROLLBACK")
    hands = await Hands.on(store)
    foreign.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="stayed locked"):
        await store.heartbeat(hands.me)
    foreign.execute("ROLLBACK")
    assert (await store.heartbeat(hands.me)).renewed


async def test_beats_go_on_through_the_row_when_the_file_was_unlinked(
    store: SqliteStore, lock: LockFile
) -> None:
    hands = await registered(store, lock)
    store.lock = lock
    for _ in range(3):
        await store.heartbeat(hands.me)
    lock.path.unlink()
    before = (await hands.seen()).beat
    assert (await store.heartbeat(hands.me)).renewed
    assert (await hands.seen()).beat > before


# --- lock files


HOLDER = """
import subprocess, sys, time
from pathlib import Path
from outlast.store.lockfile import LockFile
lock = LockFile.create(Path(sys.argv[1]), "w1")
child = subprocess.Popen(["sleep", "60"], pass_fds=[lock.fd])
print(lock.path, lock.device, lock.inode, child.pid, flush=True)
time.sleep(60)
"""


async def test_the_lock_stays_held_by_a_runner_after_its_worker_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        name, device, inode, runner = worker.stdout.readline().split()
        named = (name, int(device), int(inode))
        assert lockfile.probe(*named) is Probe.HELD
        worker.kill()
        worker.wait()
        assert lockfile.probe(*named) is Probe.HELD
        os.kill(int(runner), signal.SIGKILL)

    async def is_free() -> bool:
        return lockfile.probe(*named) is Probe.FREE

    assert await eventually(is_free)
    assert Path(name).exists()


def test_an_unlinked_file_is_no_proof(lock: LockFile) -> None:
    lock.path.unlink()
    assert lockfile.probe(lock.path, lock.device, lock.inode) is Probe.UNKNOWN
    assert lockfile.read_beat(lock.path, lock.device, lock.inode) is None
    assert not lock.valid()
    assert not lock.path.exists()


def test_a_new_file_under_the_old_name_is_no_proof(lock: LockFile) -> None:
    spare = lock.path.with_suffix(".spare")
    spare.write_text("7")
    spare.rename(lock.path)
    assert lockfile.probe(lock.path, lock.device, lock.inode) is Probe.UNKNOWN
    assert lockfile.read_beat(lock.path, lock.device, lock.inode) is None
    lock.release()
    assert lock.path.exists()


def test_another_boot_is_no_proof(lock: LockFile) -> None:
    named = (lock.path, lock.device, lock.inode)
    assert lockfile.probe(*named, "another-boot") is Probe.UNKNOWN
    assert lockfile.probe(None, None, None) is Probe.UNKNOWN


def test_no_permission_is_no_proof(lock: LockFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert lockfile.probe(lock.path, lock.device, lock.inode) is Probe.UNKNOWN


def test_each_worker_has_a_file_of_its_own_under_the_same_name(lock: LockFile) -> None:
    again = LockFile.create(lock.path.parent, "w1")
    assert again.path != lock.path
    again.release()
    assert not again.path.exists()
    again.release()


def test_a_directory_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / f"outlast-{os.getuid()}"
    shared.mkdir(mode=0o755)
    with pytest.raises(ConfigError, match="0700"):
        LockFile.create(shared, "w1")


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory for the lock files of a store that is another user's than this one."""
    directory = tmp_path / "jobs.db-locks"
    directory.mkdir()
    directory.chmod(0o2777)
    if os.getuid() == 0:
        os.chown(directory, STRANGER, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: STRANGER)
    return directory


def test_a_directory_that_another_user_has_prepared_is_refused(
    prepared: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"belongs to user \d+.* Remove it"):
        LockFile.create(prepared, "w1")
    assert list(prepared.iterdir()) == []
    assert not locks_of(f"sqlite:///{tmp_path}/jobs.db").writable


def test_a_directory_of_another_user_is_refused_where_every_user_may_make_one(
    prepared: Path, tmp_path: Path
) -> None:
    chosen = prepared.rename(tmp_path / "run")
    LockFile.create(chosen, "w1").release()
    tmp_path.chmod(0o1777)
    with pytest.raises(ConfigError, match=r"belongs to user \d+.* Remove it"):
        LockFile.create(chosen, "w1")
    assert list(chosen.iterdir()) == []


def test_a_directory_of_the_owner_of_the_store_s_file_is_used(
    prepared: Path, tmp_path: Path
) -> None:
    (tmp_path / "jobs.db").touch()
    os.chown(tmp_path / "jobs.db", prepared.stat().st_uid, -1)
    LockFile.create(prepared, "w1").release()
    assert locks_of(f"sqlite:///{tmp_path}/jobs.db").writable


def test_a_file_in_place_of_the_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("")
    with pytest.raises(ConfigError, match="no lock file in"):
        LockFile.create(tmp_path / "locks", "w1")


def test_lock_files_lie_beside_the_database_or_in_a_run_directory(
    monkeypatch: pytest.MonkeyPatch, path: Path, url: str
) -> None:
    postgres = "postgresql://h/d"
    monkeypatch.delenv("OUTLAST_RUN_DIR", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert lockfile.directory_for(file_of(url)) == path.parent / "jobs.db-locks"
    assert lockfile.directory_for(file_of(postgres)).name == f"outlast-{os.getuid()}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1")
    assert lockfile.directory_for(file_of(postgres)) == Path("/run/user/1/outlast")
    monkeypatch.setenv("OUTLAST_RUN_DIR", "/srv/run")
    assert lockfile.directory_for(file_of(postgres)) == Path("/srv/run")


@pytest.mark.parametrize("kind", ["nfs4", "fuse.sshfs", "cifs", "9p", "virtiofs"])
def test_network_and_fuse_file_systems_are_refused_unless_overridden(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nserver:/x {tmp_path}/my\\040share {kind} rw 0 0\n")
    monkeypatch.setattr(lockfile, "_MOUNTS", mounts)
    share = tmp_path / "my share"
    share.mkdir()
    assert lockfile.refuses(share / "jobs.db") == kind
    assert lockfile.refuses(tmp_path / "jobs.db") is None
    with pytest.raises(ConfigError, match="not safe on network"):
        open_store(f"sqlite:///{share}/jobs.db")
    open_store(f"sqlite:///{share}/jobs.db?unsafe_filesystem=1")
    with pytest.raises(ConfigError, match="cannot be trusted"):
        LockFile.create(share, "w1")


def test_the_lock_is_a_flock_not_a_record_lock(lock: LockFile) -> None:
    with lock.path.open("rb") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_a_dead_worker_is_found_by_its_free_lock_and_its_job_runs_again(
    store: SqliteStore, lock: LockFile
) -> None:
    hands = await registered(store, lock)
    await enqueued(store)
    claimed = await hands.claim_one()
    seen = await hands.seen()
    named = (seen.lock_path, seen.lock_device, seen.lock_inode, seen.boot_id)
    assert lockfile.probe(*named) is Probe.HELD
    lock.release(unlink=False)
    assert lockfile.probe(*named) is Probe.FREE
    assert await store.reap(seen)
    assert [end.token for end in await store.reclaim(lost_worker)] == [claimed.token]
    assert (await store.inspector.workers())[0].status is WorkerStatus.LOST
