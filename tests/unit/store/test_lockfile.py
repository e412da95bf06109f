"""What a worker's lock file tells about its attempts, and when it may be removed."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from pathlib import Path
from unittest import mock

import pytest

from outlast.errors import ConfigError
from outlast.store import lockfile
from outlast.store.lockfile import LockFile, Probe

DAY = 86_400.0


@pytest.fixture
def lock(tmp_path: Path):
    lock = LockFile.create(tmp_path / "locks", "w1")
    yield lock
    lock.release()


def named(lock: LockFile) -> tuple[Path, int, int]:
    return lock.path, lock.device, lock.inode


# ------------------------------------------------------------------- begun attempts


def test_a_lock_file_holds_the_newest_begun_token_and_the_beat(lock: LockFile):
    for token in (7, 9, 8):
        lock.begin(token)
        lock.beat()
    assert lockfile.read_begun(*named(lock)) == 9
    assert lockfile.read_beat(*named(lock)) == 3


def test_after_all_attempts_ended_none_counts_as_begun(lock: LockFile):
    lock.begin(7)
    lock.end_all()
    assert lockfile.read_begun(*named(lock)) == 0


def test_a_lock_file_that_cannot_be_written_is_removed_before_the_attempt_begins(lock: LockFile):
    lock.begin(7)
    with mock.patch("os.pwrite", side_effect=OSError(errno.ENOSPC, "no space")):
        lock.begin(8)
    assert not lock.path.exists(), "it would say that 8 had not begun"
    assert lockfile.probe(*named(lock)) is Probe.UNKNOWN
    lock.begin(9)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"7\n",
        b"1" * 20,
        b"x" * 20 + b"\n",
        b"-" + b"1" * 19 + b"\n",
        b"1_" * 9 + b"11\n",
        b" " * 19 + b"7\n",
    ],
    ids=repr,
)
def test_an_incomplete_note_is_ignored(lock: LockFile, text: bytes):
    os.pwrite(lock.fd, text, 21)
    assert lockfile.read_begun(*named(lock)) is None


def test_another_file_under_the_name_tells_nothing(lock: LockFile):
    lock.begin(7)
    assert lockfile.read_begun(None, None, None) is None
    assert lockfile.read_begun(lock.path, lock.device, lock.inode + 1) is None


# ----------------------------------------------------------------------------- unlocking


def test_a_task_in_a_runner_can_unlock_nothing_but_the_lock_of_runners(lock: LockFile):
    fcntl.flock(lock.runners_fd, fcntl.LOCK_UN)
    assert lockfile.probe(*named(lock)) is Probe.HELD
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pwrite(lock.runners_fd, b"9" * 20, 0)


def test_the_lock_of_runners_holds_after_that_of_their_worker_is_gone(lock: LockFile):
    fcntl.flock(lock.fd, fcntl.LOCK_UN)
    assert lockfile.probe(*named(lock)) is Probe.HELD
    fcntl.flock(lock.runners_fd, fcntl.LOCK_UN)
    assert lockfile.probe(*named(lock)) is Probe.FREE


@pytest.mark.parametrize("how", [fcntl.LOCK_UN, fcntl.LOCK_EX], ids=["unlocks", "locks alone"])
def test_a_lock_changed_by_a_task_is_restored(lock: LockFile, how: int):
    for fd in (lock.fd, lock.runners_fd):
        fcntl.flock(fd, fcntl.LOCK_UN)
    fcntl.flock(lock.fd, how)
    lock.hold()
    assert lockfile.probe(*named(lock)) is Probe.HELD
    fcntl.flock(lock.fd, fcntl.LOCK_UN)
    assert lockfile.probe(*named(lock)) is Probe.HELD, "both are locked again"


def test_a_descriptor_that_is_another_files_by_now_is_not_locked(lock: LockFile, tmp_path: Path):
    own = os.dup(lock.fd)
    with (tmp_path / "theirs").open("w") as theirs, (tmp_path / "theirs").open() as look:
        os.dup2(theirs.fileno(), lock.fd)
        lock.hold()
        fcntl.flock(look, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(own)


def test_a_released_lock_is_not_taken_again(lock: LockFile):
    lock.release(unlink=False)
    lock.hold()
    assert lockfile.probe(*named(lock)) is Probe.FREE


# ------------------------------------------------------------------------------ removal


def test_a_free_file_is_removed_and_one_that_is_held_is_not(lock: LockFile):
    lockfile.remove(*named(lock))
    assert lock.path.exists()
    assert lockfile.probe(*named(lock)) is Probe.HELD
    lock.release(unlink=False)
    lockfile.remove(*named(lock))
    assert not lock.path.exists()
    lockfile.remove(*named(lock))
    lockfile.remove(None, None, None)


def test_a_new_file_under_the_old_name_is_left_alone(lock: LockFile):
    lock.release(unlink=False)
    lock.path.rename(lock.path.with_suffix(".old"))
    lock.path.touch()
    lockfile.remove(*named(lock))
    assert lock.path.exists()


def test_a_starting_worker_removes_files_that_are_free_for_a_day(lock: LockFile):
    folder = lock.path.parent
    old, fresh = LockFile.create(folder, "old"), LockFile.create(folder, "fresh")
    for one, released in ((old, True), (fresh, True), (lock, False)):
        if released:
            one.release(unlink=False)
        if one is not fresh:
            written = one.path.stat().st_mtime - DAY - 1
            os.utime(one.path, (written, written))
    foreign = [folder / "apt.lock", folder / "other-abcdefgh.lock"]
    for path in foreign:
        path.write_text("4711\n")
        os.utime(path, (0, 0))
    new = LockFile.create(folder, "new")
    assert sorted(folder.iterdir()) == sorted([lock.path, fresh.path, new.path, *foreign])
    new.release()


@pytest.mark.parametrize("kind", ["fifo", "device", "directory", "link"])
def test_only_regular_files_are_opened(tmp_path: Path, kind: str):
    path = Path("/dev/null") if kind == "device" else tmp_path / "it"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/dev/null")
    status = path.lstat()
    named = path, status.st_dev, status.st_ino
    opened = []

    def noted(path: object, flags: int, *rest: object, **named: object) -> int:
        opened.append(flags)
        return real(path, flags, *rest, **named)  # type: ignore[arg-type]

    real = os.open
    with mock.patch("os.open", noted):
        assert lockfile.probe(*named) is Probe.UNKNOWN
        assert lockfile.read_beat(*named) is None
        lockfile.remove(*named)
    assert path.lstat()
    assert all(flags & os.O_PATH for flags in opened)


# ------------------------------------------------------------------- no place for them


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A missing directory: the only candidate for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "gone")])
    for name in ("OUTLAST_RUN_DIR", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError):
        tempfile.gettempdir()
    return tmp_path / "file"


def test_without_a_temporary_directory_lock_files_prove_nothing(nowhere: Path):
    directory = lockfile.directory_for(None)
    assert directory == nowhere / f"outlast-{os.getuid()}"
    with pytest.raises(ConfigError, match=r"^no lock file in"):
        LockFile.create(directory, "w1")
    named = lockfile.place_in(directory, "/tmp/outlast-0/w1-12345678.lock")
    assert lockfile.probe(named, 1, 1) is Probe.UNKNOWN
    assert lockfile.read_begun(named, 1, 1) is None


def test_only_lock_files_ask_for_the_temporary_directory():
    """What asks raises where none can be written: any other place would have to think of that."""
    package = Path(lockfile.__file__).parents[1]
    asking = [each for each in package.rglob("*.py") if "gettempdir" in each.read_text()]
    assert asking == [Path(lockfile.__file__)]
