"""Manages a worker's lock file: proof of its death on the same host, and the carrier of its beat.

It also records which attempts a dead worker may have run: the newest that it let begin. Jobs that
it had claimed and not begun, or handed back at its end without reaching the store, are not losses.

The worker and its tether hold flock(LOCK_SH) through ``fd``, its runners through ``runners_fd``,
which they inherit, so the lock is free only when *all* of them are gone. (Children do not inherit a
record lock of ``lockf``, and closing any descriptor of the file drops it.) ``runners_fd`` has its
own open file description, for reading only: a task that unlocks it takes the lock from runners
alone.

A file proves something only if device and inode are those on the worker's row: cleaners of
temporary directories unlink files. So each worker makes its own file. Its owner unlinks it at a
clean end, a reaper of the same database once the row is marked lost, or a worker that starts, once
it is a day older.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Self

from outlast.base.config import absolute
from outlast.errors import ConfigError

_DIGITS = 20  # of a number, written at a fixed width; the counter is at offset 0
_BEGUN_AT = _DIGITS + 1  # offset of the newest token that has begun; no text: not known
_NUMBER = re.compile(rb"[0-9]{%d}\n" % _DIGITS)
_NAME = re.compile(r".+-[a-z0-9_]{8}\.lock")
_SWEEP_AGE_SECONDS, _SWEEP_MAX = 86_400.0, 100
_MOUNTS = Path("/proc/self/mounts")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NETWORK = frozenset(
    """
    9p afs beegfs ceph cifs coda davfs fuse fuseblk glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2
    orangefs prl_fs pvfs2 smb2 smb3 smbfs vboxsf virtiofs vmhgfs
    """.split()  # noqa: SIM905  # a list of strings is five times as long
)


class Probe(StrEnum):
    """Results of a look at a lock file. ``unknown`` proves nothing: the lease must decide."""

    FREE = "free"
    HELD = "held"
    UNKNOWN = "unknown"


class LockFile:
    """A file that is locked until this process, and all that inherited a descriptor, are gone."""

    def __init__(self, path: Path, fd: int, runners_fd: int) -> None:
        status = os.fstat(fd)
        self.path = path
        self.fd = fd
        self.runners_fd = runners_fd
        self.device = status.st_dev
        self.inode = status.st_ino
        self.count = 0
        self.begun = 0

    @classmethod
    def create(cls, directory: Path, name: str) -> Self:
        """Make and lock a new file ``NAME-xxxxxxxx.lock``; make the directory if needed.
        ConfigError if no lock file can work; a worker can go on without one."""
        import tempfile

        try:
            _prepare(directory)
            fd, path = tempfile.mkstemp(prefix=f"{_plain(name)}-", suffix=".lock", dir=directory)
        except OSError as error:
            raise ConfigError(f"no lock file in {directory}: {error.strerror or error}") from error
        try:
            _share(fd, directory)
            _write(fd, 0)
            runners_fd = _lock_twice(fd, path)
        except OSError as error:
            os.close(fd)
            raise ConfigError(f"no lock in {directory}: {error.strerror or error}") from error
        _sweep(directory, os.fstat(fd).st_mtime - _SWEEP_AGE_SECONDS)
        return cls(Path(path), fd, runners_fd)

    def valid(self) -> bool:
        """Whether others still find this file under its path."""
        try:
            status = self.path.lstat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (self.device, self.inode)

    def hold(self) -> None:
        """Lock the file again if a task in this process has unlocked it. A descriptor whose number
        now belongs to another file is left alone.
        """
        for fd in (self.fd, self.runners_fd):
            with suppress(OSError, ValueError):
                status = os.fstat(fd)
                if (status.st_dev, status.st_ino) == (self.device, self.inode):
                    fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def touch(self) -> None:
        """Note that the owner lives: no worker that starts takes the file for an old one."""
        with suppress(OSError):
            os.utime(self.fd)

    def beat(self, above: int = 0) -> int:
        """Raise the counter in the file above ``above``, and return it. Raises OSError."""
        count = max(self.count, above) + 1
        _write(self.fd, count)
        self.count = count
        return count

    def begin(self, token: int) -> None:
        """Note that the attempt with this token begins. If that cannot be written, the file is
        withdrawn: it must never show less than is true.
        """
        if token > self.begun:
            self.begun = token
            try:
                _write(self.fd, token, _BEGUN_AT)
            except OSError:
                self._unlink()

    def end_all(self) -> None:
        """Note that no attempt is running: all have ended, or were handed back."""
        with suppress(OSError):
            _write(self.fd, 0, _BEGUN_AT)

    def release(self, *, unlink: bool = True) -> None:
        """Release the lock at the owner's clean end. Safe to call twice."""
        if self.fd < 0:
            return
        if unlink:
            self._unlink()
        os.close(self.fd)
        os.close(self.runners_fd)
        self.fd = self.runners_fd = -1

    def _unlink(self) -> None:
        if self.valid():
            with suppress(OSError):
                self.path.unlink()


def read_beat(path: str | Path, device: int | None, inode: int | None) -> int | None:
    """Return the counter in a worker's lock file; None: it is not that very file."""
    return _read(path, device, inode, 0)


def written_at(path: str, device: int | None, inode: int | None) -> float | None:
    """Return when a worker's lock file was last written, in seconds since 1970, or None."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return status.st_mtime if (status.st_dev, status.st_ino) == (device, inode) else None


def read_begun(path: str | Path | None, device: int | None, inode: int | None) -> int | None:
    """Return the newest token that has begun, if the lock is free; None: not known."""
    return None if path is None else _read(path, device, inode, _BEGUN_AT)


def place_in(directory: Path, named: object) -> str | None:
    """Return where to look for the lock file that a row names, if it names one: by its name alone,
    in the directory of this program's own lock file. A program that can write a row must not choose
    which files of this user are opened, locked or deleted, or on which file system a look waits.
    """
    name = named.rpartition("/")[2] if isinstance(named, str) else ""
    return str(directory / name) if _NAME.fullmatch(name) else None


def remove(path: str | Path | None, device: int | None, inode: int | None) -> None:
    """Unlink the lock file of a lost worker, if it is one and is free. This process holds the lock
    meanwhile: no other has the file, and one that looks takes it for held or finds none, which
    proves nothing.
    """
    if path is None or _read(path, device, inode, 0) is None:
        return
    with _looking(path, device, inode) as found, suppress(OSError):
        if found is Probe.FREE and os.lstat(path).st_ino == inode:
            os.unlink(path)


def probe(
    path: str | Path | None, device: int | None, inode: int | None, boot: str | None = None
) -> Probe:
    """Return whether a worker's lock is held, without waiting; unknown for another boot id than
    this machine's. The look holds a free lock for an instant, in which others take it for held.
    """
    if path is None or (boot is not None and boot != boot_id()):
        return Probe.UNKNOWN
    with _looking(path, device, inode) as found:
        return found


@contextmanager
def _looking(path: str | Path, device: int | None, inode: int | None) -> Iterator[Probe]:
    """Look at a lock; one that is free is held by this process meanwhile."""
    fd = _open_same(path, device, inode)
    if fd is None:
        yield Probe.UNKNOWN
        return
    try:
        yield _lock_alone(fd)
    finally:
        os.close(fd)


def _lock_alone(fd: int) -> Probe:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return Probe.HELD
    except OSError:
        return Probe.UNKNOWN
    return Probe.FREE


def directory_for(file: Path | None) -> Path:
    """Return where workers keep their lock files: beside the store's file; without one in
    $OUTLAST_RUN_DIR, $XDG_RUNTIME_DIR/outlast or a directory of this user in the temporary one.

    Nothing may be there, and nothing may be written there: then locks are not known."""
    if file is not None:
        return file.with_name(f"{file.name}-locks")
    if chosen := os.environ.get("OUTLAST_RUN_DIR"):
        return absolute(os.path.expanduser(chosen))
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "outlast"
    return temporary_directory() / f"outlast-{os.getuid()}"


def temporary_directory() -> Path:
    """Return the directory for temporary files; if none can be written (a read-only root, a full
    disk), the one that other workers have used before."""
    import tempfile

    try:
        return Path(tempfile.gettempdir())  # finds out by writing a file
    except OSError:
        return absolute(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108  (it is only read)


def boot_id() -> str:
    """Return the id of this boot of this machine, or a stand-in that names the machine."""
    try:
        return _BOOT_ID.read_text("utf-8").strip()
    except OSError:
        return f"host:{os.uname().nodename}"


def refuses(path: Path) -> str | None:
    """Return the kind of a file system whose locks cannot be trusted (network and FUSE, according
    to /proc/mounts); None: it is fine, or unknown (macOS)."""
    _, kind = _mount_of(path)
    return kind if kind in _NETWORK or kind.startswith("fuse.") else None


def is_mounted_alone(file: Path) -> bool:
    """Whether a file is a mount of its own: the files beside it are somewhere else."""
    return _mount_of(file)[0] == os.path.realpath(file)


def _mount_of(path: Path) -> tuple[str, str]:
    """Return the mount point above a path, and the kind of its file system; empty: not known."""
    try:
        mounts = _MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:
        return "", ""
    return _find_mount(os.path.realpath(path), mounts)


@lru_cache(maxsize=8)
def _find_mount(path: str, mounts: str) -> tuple[str, str]:
    best, kind = "", ""
    for line in mounts.split("\n"):
        fields = line.split(" ")
        if len(fields) < 3:  # noqa: PLR2004
            continue
        point = fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # a later mount hides an earlier one
            best, kind = point, fields[2]
    return best, kind


def _sweep(directory: Path, older_than: float) -> None:
    """Unlink free files last written before that time of the file system's clock, of workers that
    others have found dead. A row that still refers to one only loses the quick proof."""
    with suppress(OSError):
        names = [name for name in os.listdir(directory) if _NAME.fullmatch(name)]
        for name in names[:_SWEEP_MAX]:
            path = directory / name
            status = path.lstat()
            if status.st_mtime < older_than:
                remove(path, status.st_dev, status.st_ino)


def _read(path: str | Path, device: int | None, inode: int | None, offset: int) -> int | None:
    fd = _open_same(path, device, inode)
    if fd is None:
        return None
    try:
        text = os.pread(fd, _DIGITS + 1, offset)
        return int(text) if _NUMBER.fullmatch(text) else None
    except OSError:
        return None
    finally:
        os.close(fd)


def _open_same(path: str | Path, device: int | None, inode: int | None) -> int | None:
    """Open that very file. The path is examined first: it may name a device or a FIFO, which can
    wait, or have an effect."""
    try:
        if not hasattr(os, "O_PATH"):  # macOS
            return _open_if(os.lstat(path), path, (device, inode))
        place = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return _open_if(os.fstat(place), f"/proc/self/fd/{place}", (device, inode))
        finally:
            os.close(place)
    except (OSError, ValueError):
        return None


def _open_if(
    status: os.stat_result, path: str | Path, place: tuple[int | None, int | None]
) -> int | None:
    if not stat.S_ISREG(status.st_mode) or (status.st_dev, status.st_ino) != place:
        return None
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def _prepare(directory: Path) -> None:
    if kind := refuses(directory):
        raise ConfigError(f"no lock file in {directory}: locks on {kind} cannot be trusted")
    own = directory.name == f"outlast-{os.getuid()}"
    _make(directory)
    status = directory.lstat()
    if own and (status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077):
        raise ConfigError(
            f"no lock file in {directory}: it must be a directory of this user with mode 0700;"
            " remove it or set OUTLAST_RUN_DIR"
        )
    if not is_trusted(directory):
        raise ConfigError(
            f"no lock file in {directory}: it belongs to user {status.st_uid}, who could hide a"
            " death, and not to this user, to root or to the owner of the store's file. Remove it,"
            " or keep the store (or $OUTLAST_RUN_DIR) in a directory in which other users create"
            " nothing"
        )


def is_trusted(directory: Path) -> bool:
    """Whether a directory of lock files can be trusted: beside a store's file it must belong to
    this user, root or the owner of that file; elsewhere, if every user may make one there, to this
    user or root. Others can be, and so can one that does not exist yet."""
    file = _store_of(directory)
    with suppress(FileNotFoundError):
        if file == directory and not directory.parent.stat().st_mode & stat.S_IWOTH:
            return True
        owner = directory.lstat().st_uid  # of a symbolic link: the user that made it
        if owner in {os.getuid(), 0}:
            return True
        with suppress(OSError):
            return file != directory and owner == file.stat().st_uid
        return False
    return True


def _store_of(directory: Path) -> Path:
    """Return the store's file beside this directory of lock files; without one, the directory."""
    return directory.with_name(directory.name.removesuffix("-locks") or directory.name)


def _make(directory: Path) -> None:
    """Make a directory for this user alone, or for the group that may write the store's file beside
    it: a user that can open a lock file can hold its lock, and so hide a death.
    """
    if directory.is_dir():
        return
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = _store_of(directory)
    with suppress(OSError):
        if file != directory and file.stat().st_mode & stat.S_IWGRP:
            os.chown(directory, -1, file.stat().st_gid)
            directory.chmod(0o2770)


def _share(fd: int, directory: Path) -> None:
    """Let the group look at this file's lock, if it may make files in the directory."""
    status = directory.stat()
    if status.st_mode & stat.S_IWGRP:
        with suppress(OSError):
            os.fchown(fd, -1, status.st_gid)
            os.fchmod(fd, 0o640)


def _lock_twice(fd: int, path: str) -> int:
    """Lock a new file, and once more through the returned descriptor."""
    fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    other = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(other)
        raise
    return other


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[:100].lstrip(".") or "w"


def _write(fd: int, number: int, offset: int = 0) -> None:
    os.pwrite(fd, b"%0*d\n" % (_DIGITS, number), offset)
