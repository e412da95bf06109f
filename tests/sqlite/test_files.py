"""Tests of files: lock files, foreign locks, forks, and files that cannot be used."""

# ruff: noqa: ASYNC220, ASYNC222  (these tests play with files and processes)

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from outlast.errors import ConfigError, StoreCorrupt, StoreUnavailable
from outlast.model.job import State
from outlast.store import lockfile, open_store
from outlast.store.backend import file_of
from outlast.store.lockfile import LockFile, Probe
from outlast.store.rows import WorkerStatus
from outlast.store.sqlite import connection as sqlite_connection
from outlast.store.sqlite import library
from outlast.store.sqlite.store import SqliteStore, complete_on, enqueue_on, store_id_on
from outlast.store.values import NewJob
from tests.conformance.kit import Hands, enqueued, eventually, job, lost_worker


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(url, busy_timeout=0.2)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def lock(url: str) -> Iterator[LockFile]:
    lock = LockFile.create(lockfile.directory_for(file_of(url)), "w1")
    yield lock
    lock.release()


@pytest.fixture
def foreign(path: Path, store: SqliteStore) -> Iterator[sqlite3.Connection]:
    """Another program that holds the write lock."""
    assert store.created_file
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


async def registered(store: SqliteStore, lock: LockFile) -> Hands:
    return await Hands.on(
        store,
        boot_id=lockfile.boot_id(),
        lock_path=str(lock.path),
        lock_device=lock.device,
        lock_inode=lock.inode,
    )


# --- beats


async def test_a_long_foreign_transaction_starves_no_beat(
    store: SqliteStore, lock: LockFile, path: Path
) -> None:
    hands = await registered(store, lock)
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
    assert row.beat == before + 4


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


async def test_a_foreign_lock_is_reported_with_the_remedy(
    store: SqliteStore, foreign: sqlite3.Connection
) -> None:
    with pytest.raises(StoreUnavailable, match=r"stayed locked.*transaction"):
        await enqueued(store)
    foreign.execute("ROLLBACK")
    assert len(await enqueued(store)) == 1


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


def test_a_live_lock_is_seen_as_held_and_stays_intact(lock: LockFile) -> None:
    named = (lock.path, lock.device, lock.inode)
    for _ in range(3):
        assert lockfile.probe(*named, lockfile.boot_id()) is Probe.HELD
    assert lock.valid()


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


def test_the_beat_is_read_from_the_locked_file(lock: LockFile) -> None:
    assert [lock.beat() for _ in range(3)] == [1, 2, 3]
    assert lockfile.read_beat(lock.path, lock.device, lock.inode) == 3
    assert lockfile.read_beat(lock.path, lock.device, lock.inode + 1) is None


def test_a_directory_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / f"outlast-{os.getuid()}"
    shared.mkdir(mode=0o755)
    with pytest.raises(ConfigError, match="0700"):
        LockFile.create(shared, "w1")


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
    with pytest.raises(ConfigError, match="not to be trusted"):
        LockFile.create(share, "w1")


def test_the_lock_is_a_flock_not_a_record_lock(lock: LockFile) -> None:
    with lock.path.open("rb") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


# --- files that cannot be used


async def test_open_returns_whether_it_created_the_file(url: str) -> None:
    for made in (True, False):
        store = SqliteStore(url)
        await store.open()
        assert store.created_file is made
        await store.close()
        await store.close()


async def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path}/none/jobs.db")
    with pytest.raises(StoreUnavailable, match=r"directory .*none does not exist"):
        await store.open()
    await store.close()


async def test_a_directory_is_no_database(tmp_path: Path) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path}")
    with pytest.raises(ConfigError, match="is a directory"):
        await store.open()
    await store.close()


async def test_a_file_that_is_no_database_is_reported_and_left_alone(path: Path, url: str) -> None:
    path.write_text("this is a letter to my aunt, not a database at all\n" * 50)
    before = path.read_bytes()
    store = SqliteStore(url)
    with pytest.raises(StoreCorrupt, match="not a SQLite database"):
        await store.open()
    with pytest.raises(StoreCorrupt):
        await store.migrations()
    await store.close()
    assert path.read_bytes() == before


async def test_a_damaged_file_is_reported(path: Path, url: str) -> None:
    store = SqliteStore(url)
    await store.open()
    await enqueued(store, *[job(args="[" + "1," * 500 + "1]") for _ in range(100)])
    await store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    with pytest.raises(StoreCorrupt, match="damaged"):
        await store.open()
        await store.inspector.counts()
    await store.close()


async def test_a_vanished_file_is_not_silently_created_again(
    path: Path, store: SqliteStore
) -> None:
    await store.drop_connections()
    path.unlink()
    with pytest.raises(StoreUnavailable, match="does not exist"):
        await enqueued(store)
    assert not path.exists()


async def test_reading_only_never_makes_or_writes(path: Path, url: str) -> None:
    store = SqliteStore(url, read_only=True)
    with pytest.raises(StoreUnavailable, match="does not exist"):
        await store.open()
    assert not path.exists()
    writer = SqliteStore(url)
    await writer.open()
    await enqueued(writer)
    await store.open()
    assert await store.inspector.counts() == {("default", State.QUEUED): 1}
    with pytest.raises(StoreUnavailable, match="read-only"):
        await enqueued(store)
    await store.close()
    await writer.close()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everything")
async def test_a_read_only_file_is_reported(path: Path, url: str) -> None:
    store = SqliteStore(url)
    await store.open()
    await store.close()
    path.chmod(0o444)
    with pytest.raises(StoreUnavailable, match="read-only"):
        await store.open()
    await store.close()


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("sqlite://jobs.db", "sqlite:///jobs.db"),
        ("sqlite:///:memory:", "in memory"),
        ("sqlite:///", "names no file"),
        ("sqlite:////", "names no file"),
        ("sqlite:///\ud8ff", "names no file"),
        ("sqlite:///~no-such-user/x.db", "names no home directory"),
        ("sqlite:///a.db?cache=shared", "unsafe_filesystem=1"),
        ("mysql://h/d", "write sqlite:///jobs.db"),
        ("jobs.db", "write sqlite:///jobs.db"),
        ("", "write sqlite:///jobs.db"),
    ],
)
def test_a_wrong_url_is_refused_with_a_right_one(bad: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_store(bad)


def test_urls_may_be_relative_absolute_or_in_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    assert SqliteStore("sqlite:///a%20b.db").path == tmp_path / "a b.db"
    assert SqliteStore("sqlite:////var/x.db").path == Path("/var/x.db")
    assert SqliteStore("sqlite:///~/x.db").path == Path("/home/ada/x.db")


def test_old_and_faulty_libraries_are_named() -> None:
    with pytest.raises(ConfigError, match=r"3\.36\.0 is too old"):
        library.check((3, 36, 0))
    assert "3.45.1" in library.check((3, 45, 1))[0]
    for mended in [(3, 44, 6), (3, 50, 7), (3, 51, 3), (3, 60, 0)]:
        assert library.check(mended) == []


# --- forks and threads


async def test_a_fork_leaves_parent_and_child_with_connections_of_their_own(
    store: SqliteStore,
) -> None:
    await enqueued(store)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        asyncio.events._set_running_loop(None)
        made = asyncio.new_event_loop().run_until_complete(store.enqueue([job()]))
        os.write(writer, str(made[0].job_id).encode())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(reader, 20) == b"2"
    os.close(reader)
    os.close(writer)
    assert len(await enqueued(store)) == 1
    assert await store.inspector.counts() == {("default", State.QUEUED): 3}


async def test_threads_that_fork_at_once_do_not_block_each_other(store: SqliteStore) -> None:
    """Each releases the connections that it took: else the next call would wait for ever."""

    def forks() -> None:
        for _ in range(200):
            sqlite_connection._before_fork()
            sqlite_connection._after_fork_in_parent()

    threads = [threading.Thread(target=forks, daemon=True) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join, 10)
    assert not any(thread.is_alive() for thread in threads)
    async with asyncio.timeout(10):
        await enqueued(store)


# --- a connection of the caller's own


@pytest.mark.parametrize("isolation_level", [None, "", "DEFERRED", "IMMEDIATE"])
@pytest.mark.parametrize("text_factory", [str, bytes])
async def test_jobs_are_enqueued_and_completed_in_the_callers_transaction(
    store: SqliteStore, path: Path, isolation_level: str | None, text_factory: type
) -> None:
    hands = await Hands.on(store)
    await enqueued(store)
    claimed = await hands.claim_one()
    with contextlib.closing(
        sqlite3.connect(path, isolation_level=isolation_level)  # type: ignore[arg-type]
    ) as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = text_factory
        assert store_id_on(connection) == await store.store_id()
        for end in ("ROLLBACK", "COMMIT"):
            if isolation_level is None:
                connection.execute("BEGIN")
            made = enqueue_on(connection, [NewJob(task="t", key="k"), NewJob(task="t")], 1.0)
            again = enqueue_on(connection, [NewJob(task="t", key="k")], 1.0)
            assert [one.created for one in made + again] == [True, True, False]
            assert complete_on(connection, claimed.job_id, claimed.token, "1", 2.0)
            assert not complete_on(connection, claimed.job_id, claimed.token + 1, "1", 2.0)
            assert connection.in_transaction
            connection.execute(end)
            counts = await store.inspector.counts()
            if end == "ROLLBACK":
                assert counts == {("default", State.RUNNING): 1}
    assert counts == {("default", State.COMPLETED): 1, ("default", State.QUEUED): 2}


def test_a_database_without_outlast_has_no_id(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "mine.db")) as connection:
        assert store_id_on(connection) is None


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
