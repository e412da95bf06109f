"""Translates errors of PostgreSQL and of its driver into errors of Outlast."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch

import asyncpg

from outlast.errors import (
    BadData,
    NotPermitted,
    SchemaMismatch,
    StoreCorrupt,
    StoreUnavailable,
    text_of,
)

_BROKEN_OFF = (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError)
TROUBLE = (*_BROKEN_OFF, asyncpg.PostgresError)  # all that the driver raises
# A server lacks what target_session_attrs asks for; it is not ready yet.
NotMatched = asyncpg.TargetServerAttributeNotMatched
NotReady = asyncpg.CannotConnectNowError


class Collision(StoreUnavailable):
    """The server has rolled a transaction back in favour of another one; it may be tried again."""


class LockHeld(StoreUnavailable):
    """Another transaction holds a row for longer than this one may wait; it was rolled back."""


class NumberTaken(StoreUnavailable):
    """A sequence has given out a number that a row has already; nothing was stored."""


class NotifyQueueFull(StoreUnavailable):
    """The server accepts no notification; it has rolled back the transaction that sent one."""


_CLASS_ERRORS: dict[str, type[Exception]] = {
    "21": BadData,
    "22": BadData,
    "23": BadData,
    "54": BadData,  # an index of the user's takes no such row
    "P0": BadData,  # a trigger of the user's
    "XX": StoreCorrupt,
}
_MIGRATE = "run `outlast migrate`; if that finds nothing to do, restore a backup"
_CUT_OFF = "the statement was cut off; another session may hold a lock (see pg_locks)"
_NO_PRIVILEGE = (
    "this role lacks a privilege. The owner of the tables grants a worker's by `outlast migrate"
    " --grant ROLE`, or fewer with --only, and with --events that to send events"
)
_DAMAGED = (
    "a table or an index is damaged, perhaps by its disk: SELECT pg_filenode_relation(0, NUMBER)"
    " names it by the last number of its path. REINDEX DATABASE repairs indexes; restore a"
    " table from a backup"
)
_NO_ROOM = "the server's disk is full: make room there"
_CODE_ERRORS: dict[str, tuple[type[Exception], str]] = {
    "42P01": (SchemaMismatch, f"a table is missing: {_MIGRATE}"),
    "42883": (SchemaMismatch, f"a function is missing: {_MIGRATE}"),
    "42703": (SchemaMismatch, f"a column is missing: {_MIGRATE}"),
    "3F000": (SchemaMismatch, "the schema of the search_path is missing"),
    "42501": (NotPermitted, _NO_PRIVILEGE),
    "XX000": (StoreUnavailable, "the server failed"),
    "XX001": (StoreCorrupt, _DAMAGED),
    "XX002": (StoreCorrupt, _DAMAGED),
    "22023": (StoreUnavailable, "the server refuses a setting"),
    "40001": (Collision, "another transaction came first"),
    "40P01": (Collision, "a deadlock with another transaction"),
    "57014": (StoreUnavailable, _CUT_OFF),
    "55P03": (LockHeld, _CUT_OFF),
    "53100": (StoreUnavailable, _NO_ROOM),
    "23503": (
        BadData,
        "a foreign key of yours refers to it: give that ON DELETE CASCADE or SET NULL",
    ),
    "25006": (StoreUnavailable, "the database is read-only: it is a standby, or was set so"),
}

_NO_INIT_FILE = "could not write init file"  # in English everywhere; 15 and older give no reason
_NO_SERVER = "is a server started there, and are host and port right?"
_REMEDIES: dict[type[BaseException], str] = {
    ConnectionRefusedError: _NO_SERVER,
    FileNotFoundError: _NO_SERVER,  # a socket in the file system
    OSError: _NO_SERVER,  # several addresses, as of localhost
    socket.gaierror: "is the host spelt right, and does this machine's resolver know it?",
    asyncpg.DiskFullError: _NO_ROOM,
    asyncpg.UndefinedObjectError: "Outlast needs PostgreSQL 14 or later: upgrade the server",
    TimeoutError: "does a firewall drop what is sent there, or is the server overloaded?",
    asyncpg.InvalidCatalogNameError: "make it with createdb, or correct the URL",
    asyncpg.InvalidPasswordError: "correct the user in the URL, or the password: in the URL,"
    " $PGPASSWORD or ~/.pgpass",
    asyncpg.InvalidAuthorizationSpecificationError: "make the role (CREATE ROLE ... LOGIN),"
    " let it in from this host (pg_hba.conf), or correct the user in the URL",
}
_NUMBER_TAKEN = (
    "the rows were copied without the sequences of their server: `outlast migrate --after-restore`,"
    " or the next worker that starts, raises new numbers above theirs"
)
# Indexes that refuse one of two calls that store a value at once: the one of keys, and any that
# REINDEX CONCURRENTLY builds or replaces, which ON CONFLICT does not see.
_RACED = ("outlast_jobs_key", "outlast_*_ccnew*", "outlast_*_ccold*")
_REFUSALS = ("0A", "42", "P0")  # not supported; no such function or word; a trigger
_LIMIT_REACHED = "54000"  # the number of columns, the size of an index row and so on, too
_NOTIFY_FULL = "the queue of notifications is full: `outlast doctor` says how to empty it"
_NO_NUMBERS = "GetNew"  # …TransactionId, …MultiXactId: then nothing can be stored
_HIDES_ROWS = ("check_enable_rls", "ExecWithCheckOptions")  # where the server's code raises it
_ROW_SECURITY = (
    "row security must not hide Outlast's rows from its own sessions: disable it on its tables,"
    " or give this role BYPASSRLS"
)


def translate(error: BaseException) -> Exception | None:
    """Return the error of Outlast that a driver's error stands for; None if there is none."""
    if isinstance(error, asyncpg.PostgresError):
        return _of_server(error)
    if isinstance(error, UnicodeError):
        return BadData(text_of(error))
    if isinstance(error, asyncpg.InternalClientError):  # "cannot switch to state 12; …"
        return StoreUnavailable(f"PostgreSQL: the server has ended the session ({text_of(error)})")
    if isinstance(error, _BROKEN_OFF):
        return StoreUnavailable(f"PostgreSQL: {text_of(error)}")
    return None


def remedy_of(error: BaseException) -> str:
    """Return what to do about a failed connection; empty if that is not known."""
    if getattr(error, "filename", None):
        return "correct the path, in the URL or the environment"
    if _NO_INIT_FILE in text_of(error):
        return _NO_ROOM
    return _REMEDIES.get(type(error), "")


def has_no_place(error: BaseException) -> bool:
    """Whether the server has reached its limit of sessions."""
    return isinstance(error.__cause__, asyncpg.TooManyConnectionsError)


def is_refusal(error: BaseException) -> bool:
    """Whether the server lacks a feature that a statement needs."""
    code = getattr(error, "sqlstate", None) or ""
    return code[:2] in _REFUSALS and code != "42501"  # this role may not


def is_key_taken(error: BaseException) -> bool:
    """Whether another unfinished job has the key of one that was to be stored or queued."""
    is_unique = isinstance(error, asyncpg.UniqueViolationError)
    return is_unique and _field(error, "constraint_name").startswith("outlast_jobs_key")


def is_of_driver(error: BaseException) -> bool:
    """Whether the driver has refused a value."""
    if isinstance(error, asyncpg.PostgresError):
        return getattr(error, "severity", None) is None
    return isinstance(error, (UnicodeError, OverflowError))


def _of_server(error: BaseException) -> Exception:
    code = getattr(error, "sqlstate", None) or ""
    routine = _field(error, "server_source_function") or _field(error, "source_function")
    if code == "42501" and routine in _HIDES_ROWS:  # the text is in the server's language
        return NotPermitted(f"PostgreSQL: {_ROW_SECURITY} ({text_of(error)})")
    if code == _LIMIT_REACHED and "NOTIFY" in text_of(error):  # in each language of the server
        return NotifyQueueFull(f"PostgreSQL: {_NOTIFY_FULL} ({text_of(error)})")
    if code == _LIMIT_REACHED and routine.startswith(_NO_NUMBERS):
        return StoreUnavailable(f"PostgreSQL: {text_of(error)}")
    constraint = _field(error, "constraint_name")
    if code == "23505" and fnmatch(constraint, "outlast_*_pkey"):
        return NumberTaken(f"PostgreSQL: {_NUMBER_TAKEN} ({text_of(error)})")
    if code == "23505" and any(fnmatch(constraint, each) for each in _RACED):
        code = "40001"
    if getattr(error, "server_source_function", None) == "get_relation_info":
        code = "25006"  # tables that are not logged cannot be read on a standby
    if code in _CODE_ERRORS:
        kind, hint = _CODE_ERRORS[code]
        return kind(f"PostgreSQL: {hint} ({text_of(error)})")
    where = _field(error, "context").partition("\n")[0] if code[:2] == "P0" else ""
    said = f"PostgreSQL: {text_of(error)}{where and f' ({where})'}"
    return _CLASS_ERRORS.get(code[:2], StoreUnavailable)(said)


def _field(error: BaseException, name: str) -> str:
    return str(getattr(getattr(error, "diag", error), name, None) or "")


@contextmanager
def foreign_errors() -> Iterator[None]:
    """Translate errors about our rows on a connection of the caller's; all others reach the caller
    as they are (a serialization failure, for example, which its retry loop waits for)."""
    try:
        yield
    except Exception as error:
        raised = getattr(error, "orig", None) or error  # SQLAlchemy wraps what the driver raises
        mapped = BadData(text_of(error)) if isinstance(raised, UnicodeError) else _of_server(raised)
        if isinstance(mapped, (BadData, SchemaMismatch, NotPermitted, NumberTaken)):
            raise mapped from error
        raise
