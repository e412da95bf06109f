"""Turns errors of sqlite3 into Outlast's, each with advice on what to do."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from outlast.errors import (
    BadData,
    ConnectionMismatch,
    OutlastError,
    SchemaMismatch,
    StoreCorrupt,
    StoreUnavailable,
    text_of,
)
from outlast.store.sqlite.writer import describe_writer

_PRIMARY = 0xFF  # an extended result code's low byte is its primary code
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_BAD = {
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_RANGE,
    sqlite3.SQLITE_TOOBIG,
}
_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full: make room and try again",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: its directory must exist and be writable",
    sqlite3.SQLITE_READONLY: "it is read-only: this user must be able to write the file and its"
    " directory (for the -wal and -shm files beside it)",
    sqlite3.SQLITE_PERM: "this user may not access it",
    sqlite3.SQLITE_AUTH: "this user may not access it",
    sqlite3.SQLITE_IOERR: "reading or writing failed: check the disk and the system's log",
    sqlite3.SQLITE_PROTOCOL: "its locks could not be taken: is it on a network file system?",
    sqlite3.SQLITE_NOLFS: "the system does not support files this large",
    sqlite3.SQLITE_NOMEM: "there is not enough memory",
    sqlite3.SQLITE_INTERRUPT: "the statement was interrupted",
}
_NOT_OURS = ("no such table", "no such column", "no such index", "has no column named")
_VALUES = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    OverflowError,
    UnicodeEncodeError,
)


def is_busy(error: BaseException) -> bool:
    return isinstance(error, sqlite3.Error) and _code(error) in _BUSY


def translate(error: Exception, path: Path) -> Exception:
    """Return the error of Outlast for an error of sqlite3; return any other unchanged."""
    if isinstance(error, _VALUES) or _is_binding(error):
        return BadData(f"the store refuses a value: {text_of(error)}")
    if not isinstance(error, sqlite3.Error):
        return error
    code = _code(error)
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return StoreUnavailable(
            f"another connection has written to {path} since this transaction first read it: begin"
            " transactions that write with BEGIN IMMEDIATE"
        )
    if code in _BUSY:
        return StoreUnavailable(
            f"{path} stayed locked by {describe_writer(path)}: look for a transaction that is held"
            " open (a shell, a backup, a task that did not commit) and end it"
        )
    if "unsafe use of" in str(error):
        return ConnectionMismatch(
            f"{path}: this connection distrusts schemas, and refuses the checks of Outlast's tables"
            f" ({text_of(error)}): run PRAGMA trusted_schema = ON"
        )
    if code in _CORRUPT:
        return StoreCorrupt(
            f"{path} is not a SQLite database, or is damaged ({text_of(error)}): restore a backup,"
            " or recover readable rows with `sqlite3 FILE .recover`"
        )
    return _other(error, code, path)


def _other(error: sqlite3.Error, code: int, path: Path) -> OutlastError:
    if code in _BAD:
        return BadData(f"the store refuses a value: {text_of(error)}")
    if any(words in str(error) for words in _NOT_OURS):
        return SchemaMismatch(
            f"{path} lacks part of the schema ({text_of(error)}): run `outlast migrate`; if that"
            " finds nothing to do, restore a backup"
        )
    advice = _ADVICE.get(code, "the database failed")
    return StoreUnavailable(f"{path}: {advice} ({text_of(error)})")


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & _PRIMARY


def _is_binding(error: Exception) -> bool:
    """Python 3.12 and later raise ProgrammingError for a value of the wrong type."""
    return isinstance(error, sqlite3.ProgrammingError) and "binding" in str(error)
