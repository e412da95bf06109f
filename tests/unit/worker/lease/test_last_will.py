"""What is said of a worker that was killed, and what is not: by real lock files."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.runner.tether import NO_WILL
from outlast.store.lockfile import LockFile, boot_id
from outlast.store.values import LockIdentity
from outlast.worker.lease import last_will
from outlast.worker.lease.last_will import carry_out, leave_will, read_will
from tests.cases import each_case

URL = "postgresql://me:Zecret@127.0.0.1:1/db"  # nothing listens there


class Rows:
    """A store that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[LockIdentity, int | None]] = []

    async def tell_gone(self, lock: LockIdentity, begun: int | None) -> int:
        self.told.append((lock, begun))
        return 1


class Waiting:
    """A clock; ``after``: what happens at the first sleep."""

    def __init__(self) -> None:
        self.now = 0.0
        self.after = lambda: None

    def boot(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.after()


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[LockFile]:
    lock = LockFile.create(tmp_path / "locks", "w")
    yield lock
    lock.release()


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def clock() -> Waiting:
    return Waiting()


def named(lock: LockFile) -> LockIdentity:
    return LockIdentity(
        boot_id="of its host", path=str(lock.path), device=lock.device, inode=lock.inode
    )


async def test_a_free_lock_file_is_told_with_what_had_begun(lock, rows, clock):
    lock.begin(7)
    lock.release(unlink=False)
    assert await carry_out(named(lock), rows, clock)
    assert rows.told == [(named(lock), 7)]


async def test_a_worker_that_lives_is_not_told_gone_though_its_pipe_has_ended(lock, rows, clock):
    assert not await carry_out(named(lock), rows, clock)
    assert rows.told == []
    assert clock.now >= last_will.HELD_SECONDS


async def test_a_worker_whose_runner_lives_is_not_told_gone(lock, rows, clock):
    """It has a descriptor of its own, which a task in it may have inherited."""
    other = os.dup(lock.runners_fd)
    lock.release(unlink=False)
    assert not await carry_out(named(lock), rows, clock)
    os.close(other)
    assert await carry_out(named(lock), rows, clock)


async def test_a_look_of_another_worker_at_the_file_is_waited_for(lock, rows, clock):
    lock.release(unlink=False)
    looks = os.open(lock.path, os.O_RDONLY)
    fcntl.flock(looks, fcntl.LOCK_EX)
    clock.after = lambda: fcntl.flock(looks, fcntl.LOCK_UN)
    assert await carry_out(named(lock), rows, clock)
    os.close(looks)


@pytest.mark.parametrize("becomes", ["gone", "another"])
async def test_nothing_is_told_by_a_file_that_is_not_the_workers(lock, rows, clock, becomes):
    name = named(lock)
    lock.release()
    if becomes == "another":
        lock.path.write_text("")
        name = LockIdentity(
            boot_id=name.boot_id, path=name.path, device=name.device, inode=name.inode + 10**6
        )
    assert not await carry_out(name, rows, clock)
    assert rows.told == []


# ------------------------------------------------------------------------------- the will itself

linux = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="a will needs memfd_create")


@linux
def test_a_will_is_read_as_it_was_left(lock, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "Zecret")
    monkeypatch.setenv("ODD", "\udcff")
    fd = leave_will(URL, lock, notify=True)
    assert not os.get_inheritable(fd)
    will = read_will(os.pread(fd, 10**6, 0).decode())
    os.close(fd)
    assert (will.url, will.notify) == (URL, True)
    assert will.lock == LockIdentity(
        boot_id=boot_id(), path=str(lock.path), device=lock.device, inode=lock.inode
    )
    assert (will.environment["PGPASSWORD"], will.environment["ODD"]) == ("Zecret", "\udcff")
    assert "Zecret" not in repr(will)
    assert "Zecret" not in " ".join(will.arguments)


@linux
def test_without_a_lock_file_or_on_a_file_there_is_no_will(lock, monkeypatch):
    assert leave_will(URL, None, notify=True) == NO_WILL
    assert leave_will("sqlite:///jobs.db", lock, notify=True) == NO_WILL

    def fails(name: str) -> int:
        raise OSError("too many open files")

    monkeypatch.setattr(os, "memfd_create", fails)
    assert leave_will(URL, lock, notify=True) == NO_WILL


@each_case("text", ["", "{", "[]", "{}", '{"url": 1}', '{"url": "\x00'])
def test_a_will_that_was_not_written_to_its_end_is_none(text):
    """The worker was killed in the middle of it."""
    with pytest.raises(ValueError):
        read_will(text)


@linux
def test_a_store_that_cannot_be_reached_ends_the_program_and_nothing_is_shown(lock):
    fd = leave_will(URL, lock, notify=True)
    will = read_will(os.pread(fd, 10**6, 0).decode())
    lock.release(unlink=False)
    os.lseek(fd, 0, os.SEEK_SET)
    done = subprocess.run(
        will.arguments, stdin=fd, env=will.environment, capture_output=True, timeout=60, check=False
    )
    os.close(fd)
    assert done.returncode == 1
    assert b"Zecret" not in done.stdout + done.stderr
    assert sys.executable in will.arguments
