"""Holds the facts of a SQLite store, and what the doctor finds in them: file, disk, library."""

from __future__ import annotations

import stat
from collections.abc import Iterator

import msgspec

from outlast.base.text import line, size
from outlast.store.finding import HINT, OK, PROBLEM, WARNING, Check, Each, Finding, Table, judge

FREE_LEAST = 100 * 1024**2  # bytes
FREE_GOOD = 1024**3
WAL_LARGE = 256 * 1024**2
SYNCHRONOUS_FULL = 2
LASTING_SECONDS = 1.0  # a worker's own transactions take milliseconds


class SqliteFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A SQLite file. ``synchronous`` is that of a worker's connection (2: FULL), None if this user
    may not write; ``network`` is the kind of its file system, if SQLite's locks cannot be
    trusted there. ``open_to``: its files and directories that users other than their owner can use
    -> their modes; ``owners``: those of them that belong to another user -> that user.
    ``directory_mode``: of the directory that holds the file. ``writer``: who has held the write
    lock for ``LASTING_SECONDS`` and longer. ``alone``: whether the file is a mount of its own;
    ``links``: how many names it has."""

    version: str
    faults: list[str]
    path: str
    journal_mode: str
    synchronous: int | None
    writable: bool
    free_bytes: int
    wal_bytes: int
    network: str | None = None
    open_to: dict[str, int] = {}
    owners: dict[str, str] = {}
    directory_mode: int = 0o700
    writer: str | None = None
    alone: bool = False
    links: int = 1

    @property
    def limited_to(self) -> str | None:
        """Return None: a file has no roles."""
        return None

    def check(self, workers: int) -> Iterator[Finding]:
        """Yield findings, good and bad."""
        return judge(FINDINGS, self)


def _opened(f: SqliteFacts, users: int) -> list[str]:
    return [path for path, mode in f.open_to.items() if mode & users]


def _modes(f: SqliteFacts, users: int) -> str:
    return ", ".join(f"{line(path, 200)} ({f.open_to[path]:04o})" for path in _opened(f, users))


def _as_owner(f: SqliteFacts, users: int) -> str:
    """Return which owner has to fix files of another user."""
    owners = sorted({f.owners[path] for path in _opened(f, users) if path in f.owners})
    named = ", ".join(line(name, 60) for name in owners)
    return f"They are not this user's: as {named}, or as root, " if owners else ""


def _free(f: SqliteFacts) -> str:
    return f"{size(f.free_bytes)} are free on the disk of the file."


ALL, GROUP = 0o007, 0o070
HARM = "can read the arguments of jobs and lock the store through"
MAKE_ROOM = "Make room: a full disk stops every commit, and with it every worker."
OTHER_LOGS = (
    "a program that opens it by another path has another log beside it. Jobs are lost, and the file"
    " may be damaged."
)

FINDINGS: Table[SqliteFacts] = (
    Each(lambda f: f.faults,
        Check(WARNING, "sqlite_library", True,
            lambda fault: f"{fault}.",
            "Install a newer libsqlite3, or a Python that includes one.")),
    Check(OK, "sqlite_library", lambda f: not f.faults,
        lambda f: f"SQLite {f.version} has no known fault that matters."),
    Check(PROBLEM, "durability", lambda f: f.journal_mode != "wal",
        lambda f: f"The file is in {f.journal_mode!r} mode, where readers block writers.",
        lambda f: f"Stop the program that changed it, and run `sqlite3 {f.path} 'PRAGMA"
        " journal_mode=wal'`."),
    Check(PROBLEM, "durability",
        lambda f: f.synchronous is not None and f.synchronous < SYNCHRONOUS_FULL,
        "A power failure may lose commits: synchronous is below FULL.",
        "This SQLite library refuses PRAGMA synchronous=FULL: use another build."),
    Check(OK, "durability", True, "WAL mode; each commit is synced to the disk."),
    Check(PROBLEM, "file_system", lambda f: f.network is not None,
        lambda f: f"The file is on {f.network}, where SQLite's locks are not safe.",
        "Move it to a local disk, or use PostgreSQL."),
    Check(PROBLEM, "file_system", lambda f: f.alone,
        f"The file is mounted alone: {OTHER_LOGS}", "Mount its directory."),
    Check(PROBLEM, "file_system", lambda f: f.links > 1,
        lambda f: f"The file has {f.links} hard links: {OTHER_LOGS}",
        "Copy it to a file with one name."),
    Check(OK, "file_system", True, "The file is on a local disk."),
    Check(PROBLEM, "writable", lambda f: not f.writable,
        lambda f: f"This user may not write {f.path} and the directory that it is in.",
        "Run workers as the file's owner, or give this user write permission on both."),
    Check(WARNING, "private", lambda f: _opened(f, ALL),
        lambda f: f"Every user of this machine {HARM} {_modes(f, ALL)}.",
        lambda f: f"{_as_owner(f, ALL)}chmod o-rwx on these."),
    Check(HINT, "private", lambda f: _opened(f, GROUP),
        lambda f: f"The file's group {HARM} {_modes(f, GROUP)}.",
        lambda f: f"{_as_owner(f, GROUP)}chmod go-rwx on these, or accept it."),
    Check(OK, "private", True, "Only their owner can use the file and its locks."),
    Check(WARNING, "replaceable",
        lambda f: f.directory_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH,
        lambda f: "Every user of this machine can delete or replace the file: its directory has the"
        f" mode {f.directory_mode:04o}.",
        "Move the file to a directory that only its users may write to."),
    Check(PROBLEM, "disk", lambda f: f.free_bytes < FREE_LEAST, _free, MAKE_ROOM),
    Check(WARNING, "disk", lambda f: f.free_bytes < FREE_GOOD, _free, MAKE_ROOM),
    Check(OK, "disk", True, _free),
    Check(WARNING, "wal", lambda f: f.wal_bytes > WAL_LARGE,
        lambda f: f"The write-ahead log has grown to {size(f.wal_bytes)}.",
        "Some program keeps a read transaction open on the file: end it, and the next commits"
        " shorten the log."),
    Check(WARNING, "long_transaction", lambda f: f.writer is not None,
        lambda f: f"The file has been locked by {f.writer} for {LASTING_SECONDS:g} s and longer:"
        " until that transaction ends, no end is written and no job claimed.",
        "Let it commit, or end it."),
)  # fmt: skip
