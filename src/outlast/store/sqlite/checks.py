"""Checks the facts of a SQLite store for the doctor: file, disk, library."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator

import msgspec

from outlast.base.text import line, size
from outlast.store.finding import CheckContext, Finding, hint, ok, problem, warning

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

    def check(self, context: CheckContext) -> Iterator[Finding]:
        """Yield findings, good and bad."""
        yield from self._check_durability()
        yield from self._check_access()
        yield from self._check_space()
        if self.writer is not None:
            yield warning(
                "long_transaction",
                f"The file has been locked by {self.writer} for {LASTING_SECONDS:g} s and longer:"
                " until that transaction ends, no end is written and no job claimed.",
                "Let it commit, or end it.",
            )

    def _check_durability(self) -> Iterator[Finding]:
        """Whether a commit is on the disk when it returns, whether the SQLite library is known to
        damage files, and whether locks can be trusted where the file is."""
        for fault in self.faults:
            mend = "Install a newer libsqlite3, or a Python that brings one."
            yield warning("sqlite_library", f"{fault}.", mend)
        if not self.faults:
            said = f"SQLite {self.version} has no known fault that matters."
            yield ok("sqlite_library", said)
        if self.journal_mode != "wal":
            yield problem(
                "durability",
                f"The file is in {self.journal_mode!r} mode, where readers block writers.",
                f"`sqlite3 {self.path} 'PRAGMA journal_mode=wal'`; the program that changed it must"
                " stop.",
            )
        elif self.synchronous is not None and self.synchronous < SYNCHRONOUS_FULL:
            yield problem(
                "durability",
                "A power failure may lose commits: synchronous is below FULL.",
                "This SQLite library refuses PRAGMA synchronous=FULL: use another build.",
            )
        else:
            yield ok("durability", "WAL mode; each commit is synced to the disk.")
        if self.network is not None:
            said = f"The file is on {self.network}, where SQLite's locks are not safe."
            yield problem("file_system", said, "Move it to a local disk, or use PostgreSQL.")
        elif self.alone or self.links > 1:
            how = "is mounted alone" if self.alone else f"has {self.links} hard links"
            yield problem(
                "file_system",
                f"The file {how}: who uses it by another path has another log beside it. Jobs are"
                " lost, and the file may be damaged.",
                "Mount its directory." if self.alone else "Copy it to a file with one name.",
            )
        else:
            yield ok("file_system", "The file is on a local disk.")

    def _check_access(self) -> Iterator[Finding]:
        """Whether this user may write the file, and whether others can read or replace it, or hold
        locks on it."""
        if not self.writable:
            yield problem(
                "writable",
                f"This user may not write {self.path} and the directory that it is in.",
                "Run workers as the file's owner, or give this user write permission on both.",
            )
        harm = "can read what jobs are given and hold locks on"
        if to_all := self._open_to(0o007):
            said = f"Every user of this machine {harm} {_modes(to_all)}."
            yield warning("private", said, f"{self._as_owner(to_all)}chmod o-rwx on these.")
        elif to_group := self._open_to(0o070):
            mend = f"{self._as_owner(to_group)}chmod go-rwx on these, or leave it so."
            yield hint("private", f"The file's group {harm} {_modes(to_group)}.", mend)
        else:
            yield ok("private", "The file and its locks are their owner's alone.")
        if self.directory_mode & stat.S_IWOTH and not self.directory_mode & stat.S_ISVTX:
            yield warning(
                "replaceable",
                "Every user of this machine can delete or replace the file: its directory has the"
                f" mode {self.directory_mode:04o}.",
                "Move the file to a directory that only its users may write to.",
            )

    def _open_to(self, users: int) -> dict[str, int]:
        return {path: mode for path, mode in self.open_to.items() if mode & users}

    def _as_owner(self, paths: Iterable[str]) -> str:
        """Return which owner has to fix files of another user; nothing if they are this user's."""
        owners = sorted({self.owners[path] for path in paths if path in self.owners})
        named = ", ".join(line(name, 60) for name in owners)
        return f"They are not this user's: as {named}, or as root, " if owners else ""

    def _check_space(self) -> Iterator[Finding]:
        """Whether there is space on the disk, and whether the write-ahead log goes back into the
        file."""
        free = f"{size(self.free_bytes)} are free on the disk of the file."
        mend = "Make room: a full disk stops every commit, and with it every worker."
        if self.free_bytes < FREE_LEAST:
            yield problem("disk", free, mend)
        elif self.free_bytes < FREE_GOOD:
            yield warning("disk", free, mend)
        else:
            yield ok("disk", free)
        if self.wal_bytes > WAL_LARGE:
            yield warning(
                "wal",
                f"The write-ahead log has grown to {size(self.wal_bytes)}.",
                "Some program keeps a read transaction open on the file: end it. The commits that"
                " follow make the log short again.",
            )


def _modes(paths: dict[str, int]) -> str:
    return ", ".join(f"{line(path, 200)} ({mode:04o})" for path, mode in paths.items())
