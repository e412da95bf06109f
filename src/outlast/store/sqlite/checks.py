"""Checks the facts of a SQLite store for the doctor: file, disk, library."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Iterator

import msgspec

from outlast.base.text import line, size
from outlast.store.finding import CheckContext, Finding, Level, ok

FREE_LEAST = 100 * 1024**2  # bytes
FREE_GOOD = 1024**3
WAL_LARGE = 256 * 1024**2
SYNCHRONOUS_FULL = 2


class SqliteFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A SQLite file. ``synchronous`` is that of a worker's connection (2: FULL), None if this user
    may not write; ``network`` is the kind of a file system that cannot be trusted. ``open_to``:
    which of its files and directories users other than its owner can use -> their modes;
    ``owners``: which of them belong to another user -> whose. ``directory_mode``: of the directory
    that holds the file."""

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

    @property
    def limited_to(self) -> str | None:
        """Return nothing: a file has no roles."""
        return None

    def check(self, context: CheckContext) -> Iterator[Finding]:
        """Yield findings, good and bad."""
        return (one for check in CHECKS for one in check(self))


def library(facts: SqliteFacts) -> Iterator[Finding]:
    """Whether the SQLite library is known to damage files."""
    for fault in facts.faults:
        mend = "Install a newer libsqlite3, or a Python that brings one."
        yield Finding(level=Level.WARNING, name="sqlite_library", sentence=f"{fault}.", mend=mend)
    if not facts.faults:
        yield ok("sqlite_library", f"SQLite {facts.version} has no known fault that matters.")


def durability(facts: SqliteFacts) -> Iterator[Finding]:
    """Whether a commit is on the disk when it returns."""
    if facts.journal_mode != "wal":
        yield Finding(
            level=Level.PROBLEM,
            name="durability",
            sentence=f"The file is in {facts.journal_mode!r} mode, where readers block writers.",
            mend=f"`sqlite3 {facts.path} 'PRAGMA journal_mode=wal'`; "
            "the program that changed it must stop.",
        )
    elif facts.synchronous is not None and facts.synchronous < SYNCHRONOUS_FULL:
        yield Finding(
            level=Level.PROBLEM,
            name="durability",
            sentence="A commit may be lost with the power: synchronous is below FULL.",
            mend="This SQLite library refuses PRAGMA synchronous=FULL: use another build.",
        )
    else:
        yield ok("durability", "WAL mode; each commit is synced to the disk.")


def file_system(facts: SqliteFacts) -> Iterator[Finding]:
    """Whether locks can be trusted where the file is."""
    if facts.network is not None:
        yield Finding(
            level=Level.PROBLEM,
            name="file_system",
            sentence=f"The file is on {facts.network}, where SQLite's locks are not safe.",
            mend="Move it to a local disk, or use PostgreSQL.",
        )
    else:
        yield ok("file_system", "The file is on a local disk.")


def writable(facts: SqliteFacts) -> Iterator[Finding]:
    """Whether this user may write the file and its directory."""
    if not facts.writable:
        yield Finding(
            level=Level.PROBLEM,
            name="writable",
            sentence=f"This user may not write {facts.path} and the directory that it is in.",
            mend="Run workers as the file's owner, or give this user write permission on both.",
        )


def private(facts: SqliteFacts) -> Iterator[Finding]:
    """Whether users beside the file's owner can read it, or hold locks on it."""
    for all_of_them, who in ((0o007, "Every user of this machine"), (0o070, "The file's group")):
        wide = {path: mode for path, mode in facts.open_to.items() if mode & all_of_them}
        if not wide:
            continue
        named = ", ".join(f"{line(path, 200)} ({mode:04o})" for path, mode in wide.items())
        strangers = all_of_them == 0o007  # noqa: PLR2004
        change = "chmod o-rwx on these." if strangers else "chmod go-rwx on these, or leave it so."
        yield Finding(
            level=Level.WARNING if strangers else Level.HINT,
            name="private",
            sentence=f"{who} can read what jobs are given and hold locks on {named}.",
            mend=f"{_as_owner(facts, wide)}{change}",
        )
        return
    yield ok("private", "The file and its locks are their owner's alone.")


def _as_owner(facts: SqliteFacts, paths: Iterable[str]) -> str:
    """Return which owner has to fix files of another user; nothing if they belong to this user."""
    owners = sorted({facts.owners[path] for path in paths if path in facts.owners})
    if not owners:
        return ""
    named = ", ".join(line(name, 60) for name in owners)
    return f"They are not this user's: as {named}, or as root, "


def replaceable(facts: SqliteFacts) -> Iterator[Finding]:
    """Whether every user can replace this file by another one."""
    if facts.directory_mode & stat.S_IWOTH and not facts.directory_mode & stat.S_ISVTX:
        yield Finding(
            level=Level.WARNING,
            name="replaceable",
            sentence="Every user of this machine can delete or replace the file: its directory has"
            f" the mode {facts.directory_mode:04o}.",
            mend="Move the file to a directory that only its users may write to.",
        )


def disk(facts: SqliteFacts) -> Iterator[Finding]:
    """Check that there is space on the disk."""
    free = f"{size(facts.free_bytes)} are free on the disk of the file."
    if facts.free_bytes < FREE_GOOD:
        level = Level.PROBLEM if facts.free_bytes < FREE_LEAST else Level.WARNING
        mend = "Make room: a full disk stops every commit, and with it every worker."
        yield Finding(level=level, name="disk", sentence=free, mend=mend)
    else:
        yield ok("disk", free)


def wal(facts: SqliteFacts) -> Iterator[Finding]:
    """Whether the log of the file is moved back into it."""
    if facts.wal_bytes > WAL_LARGE:
        yield Finding(
            level=Level.WARNING,
            name="wal",
            sentence=f"The write-ahead log has grown to {size(facts.wal_bytes)}.",
            mend="Some program keeps a read transaction open on the file: end it. The commits that"
            " follow make the log short again.",
        )


CHECKS: tuple[Callable[[SqliteFacts], Iterator[Finding]], ...] = (
    library,
    durability,
    file_system,
    writable,
    private,
    replaceable,
    disk,
    wal,
)
