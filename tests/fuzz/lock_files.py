"""Lock files, their directories, and what rows name as one: content, kinds, names, sizes."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import tempfile
from pathlib import Path
from unittest import mock

import msgspec
from hypothesis import strategies as st

from outlast.errors import ConfigError
from outlast.store import lockfile
from outlast.store.lockfile import LockFile, Probe
from tests.fuzz.kit import INT64, Fuzzer

KINDS = ["file", "file", "file", "fifo", "socket", "directory", "link", "dangling", "device"]
DAY = 90_000.0


class Entry(msgspec.Struct, frozen=True):
    """One entry of a directory. ``size``: bytes that it has beyond its content, as a hole."""

    name: str
    kind: str
    content: bytes
    size: int
    old: bool


class Scene(msgspec.Struct, frozen=True):
    """A directory as strangers have left it, and the paths that a worker and a row name in it."""

    place: str
    entries: list[Entry]
    worker: str
    rows: list[str]
    numbers: tuple[int, int]


digits = st.integers(0, INT64).map(lambda one: b"%020d\n" % one)
contents = st.one_of(
    digits,
    st.builds(bytes.__add__, digits, digits),
    st.binary(max_size=50),
    st.sampled_from([b"-" + b"1" * 19 + b"\n", b"1_" * 10 + b"\n", b" " * 19 + b"7\n", b"\0" * 42]),
    st.sampled_from(["٣" * 10 + "\n", "+" + "0" * 19 + "\n"]).map(str.encode),
)
file_names = st.one_of(
    st.from_regex(r"[a-z]{1,5}-[a-z0-9_]{8}\.lock", fullmatch=True),
    st.text(
        st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]),
        min_size=1,
        max_size=9,
    ),
    st.sampled_from(["x" * 255, "-", "a-\n2345678.lock", "\x1b[2J-aaaaaaaa.lock"]),
).filter(lambda one: one not in {".", ".."} and len(one.encode()) <= 255)
paths = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["/dev/zero", "/dev/tty", "/proc/self/mem", "/proc/kmsg", "/", ".", "", "\0", "\ud800"]
    ),
    st.just("/x" * 5_000),
)
scenes = st.builds(
    Scene,
    place=st.sampled_from(["here", "missing", "a file", "a link", "a fifo", "long", "wide"]),
    entries=st.lists(
        st.builds(
            Entry,
            file_names,
            st.sampled_from(KINDS),
            contents,
            st.sampled_from([0, 0, 1, 2**20, 2**40]),
            st.booleans(),
        ),
        max_size=5,
        unique_by=lambda one: one.name,
    ),
    worker=st.text(max_size=20) | st.sampled_from(["../../x", "x" * 1_000, "\ud800", "\0", ""]),
    rows=st.lists(paths, max_size=3),
    numbers=st.tuples(st.integers(-(2**70), 2**70), st.integers(-(2**70), 2**70)),
)


def lock_files_are_read(scene: Scene) -> None:
    """Each look answers in range, opens nothing but regular files, and never blocks; a worker
    gets a lock of its own that works, or ConfigError."""
    with tempfile.TemporaryDirectory() as root, contextlib.ExitStack() as stack:
        directory = _made(Path(root), scene, stack)
        opened: list[int] = []
        with _noted(opened):
            for path in directory.iterdir() if os.path.isdir(directory) else []:
                _is_looked_at(path)
        assert all(stat.S_ISREG(mode) for mode in opened)
        for row in scene.rows:
            _is_answered(row, *scene.numbers)
        _works(directory, scene.worker)


def _made(root: Path, scene: Scene, stack: contextlib.ExitStack) -> Path:
    directory = root / "locks"
    if scene.place == "long":
        return root / ("x" * 300)
    if scene.place == "a file":
        directory.touch()
    elif scene.place == "a fifo":
        os.mkfifo(directory)
    elif scene.place != "missing":
        (root / "other").mkdir(mode=0o777)
        if scene.place == "a link":
            directory.symlink_to(root / "other")
        else:
            (root / "other").rename(directory)
        if scene.place == "wide":
            directory.chmod(0o777)
        for entry in scene.entries:
            _make(directory, entry, stack)
    return directory


def _make(directory: Path, entry: Entry, stack: contextlib.ExitStack) -> None:
    path = directory / entry.name
    if entry.kind == "file":
        path.write_bytes(entry.content)
        os.truncate(path, len(entry.content) + entry.size)
    elif entry.kind == "fifo":
        os.mkfifo(path)
    elif entry.kind == "socket":
        _listen(directory, entry.name, stack)
    elif entry.kind == "directory":
        path.mkdir()
    elif entry.kind == "device":
        with contextlib.suppress(PermissionError):
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    else:
        path.symlink_to("/dev/zero" if entry.kind == "link" else "nowhere")
    if entry.old and entry.kind in {"file", "fifo"}:
        os.utime(path, (DAY, DAY))


def _listen(directory: Path, name: str, stack: contextlib.ExitStack) -> None:
    one = stack.enter_context(socket.socket(socket.AF_UNIX))
    place = stack.enter_context(_opened(directory))
    with contextlib.suppress(OSError):  # the name is too long
        one.bind(f"/proc/self/fd/{place}/{name}")


@contextlib.contextmanager
def _opened(directory: Path):
    fd = os.open(directory, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _noted(modes: list[int]):
    """Note the kinds of files that are opened, not only stat'ed."""
    real = os.open

    def noted(path, flags, *more, **named):
        fd = real(path, flags, *more, **named)
        if not flags & (os.O_PATH | os.O_DIRECTORY):
            modes.append(os.fstat(fd).st_mode)
        return fd

    with mock.patch("os.open", noted):
        yield


def _is_looked_at(path: Path) -> None:
    status = path.lstat()
    _is_answered(path, status.st_dev, status.st_ino)
    _is_answered(path, status.st_dev, status.st_ino + 1)


def _is_answered(path: str | Path, device: int, inode: int) -> None:
    assert lockfile.probe(path, device, inode) in set(Probe)
    for number in (
        lockfile.read_beat(path, device, inode),
        lockfile.read_begun(path, device, inode),
    ):
        assert number is None or 0 <= number < 10**20
    lockfile.remove(path, device, inode + 1)


def _works(directory: Path, worker: str) -> None:
    try:
        lock = LockFile.create(directory, worker)
    except ConfigError:
        return
    place = lock.path, lock.device, lock.inode
    assert lock.path.parent == directory
    assert lock.beat(7) == lockfile.read_beat(*place) == 8
    lock.begin(9)
    assert lockfile.read_begun(*place) == 9
    assert lockfile.probe(*place) is Probe.HELD
    lock.release()
    assert not lock.path.exists()


FUZZERS = [Fuzzer("lock files", scenes, lock_files_are_read, few=40)]
