"""Keys and fences for effects outside the database of the store.

A *key* is the same in each attempt of a job: a service that remembers it does the work once, and
answers repeats as before. A *fence* is the token of the attempt: a service that remembers the
largest token, and refuses smaller ones, is safe from an attempt that has lost its lease unawares.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from outlast.client.attempt import current
from outlast.errors import LostLease, UsageError

KEY_HEADER, TOKEN_HEADER = "Idempotency-Key", "Fencing-Token"
FENCES_TABLE = (
    "CREATE TABLE IF NOT EXISTS fences (resource TEXT PRIMARY KEY, token BIGINT NOT NULL)"
)
"""The table of ``guard_sql``."""
_SPACE = uuid.uuid5(uuid.NAMESPACE_URL, "outlast/fences")
_METADATA = "outlast-token"  # its name in the metadata of an object
_MARKS = {"?": ("?", "?"), "%s": ("%s", "%s"), "$1": ("$1", "$2")}


def make_key(step: str = "") -> str:
    """Return a key for a step of the running job, a text of 36 characters: the same in each attempt
    of the job, and used by no other job, in any store. NotInAttempt outside an attempt.

    Args:
        step: what the key is for, if the job has several effects.
    """
    attempt = current()
    store_id = attempt._link.store_id  # noqa: SLF001
    return str(uuid.uuid5(_SPACE, f"{store_id}/{attempt.job_id}/{step}"))


def make_headers(step: str = "") -> dict[str, str]:
    """Return headers of a request: ``Idempotency-Key``, which is ``make_key(step)``, and
    ``Fencing-Token``, the attempt's token in decimal digits. NotInAttempt outside an attempt."""
    return {KEY_HEADER: make_key(step), TOKEN_HEADER: str(current().token)}


def guard_put(head: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return arguments for ``put_object`` of an S3 client (boto3, aioboto3): it then writes the
    object only if it has not changed since it was read, and stores the attempt's token with it.

    If another client has written the object meanwhile, S3 answers 412 (PreconditionFailed): read
    the head again, and repeat.

    Args:
        head: the answer of ``head_object`` or ``get_object``; None: there is no such object.

    Raises LostLease if a later attempt has written the object; NotInAttempt outside an attempt.
    """
    token = current().token
    fence: dict[str, Any] = {"Metadata": {_METADATA: str(token)}}
    if head is None:
        return {"IfNoneMatch": "*", **fence}
    if int(head.get("Metadata", {}).get(_METADATA, 0)) > token:
        raise LostLease("a later attempt has written this object")
    return {"IfMatch": head["ETag"], **fence}


def guard_sql(resource: str, mark: str = "?") -> tuple[str, tuple[str, int]]:
    """Return a statement, and its parameters, that lets this attempt and later ones write to a
    resource: execute it first in your transaction, in whichever SQLite or PostgreSQL database holds
    the resource, and hand the row that it returns to ``check_row``.

    The statement stores the token in the table ``fences``, which ``FENCES_TABLE`` creates, and
    returns a row unless a later attempt has stored its own. The row stays locked until your
    transaction ends.

    Args:
        resource: the thing written to, such as ``"invoice 7"``.
        mark: how your library marks parameters: ``?`` (sqlite3), ``%s`` (psycopg), ``$1``
            (asyncpg).

    Raises UsageError for another mark; NotInAttempt outside an attempt.
    """
    if mark not in _MARKS:
        raise UsageError(f"mark must be one of {', '.join(_MARKS)}, not {mark!r}")
    first, second = _MARKS[mark]
    statement = (
        f"INSERT INTO fences AS held (resource, token) VALUES ({first}, {second})"  # noqa: S608
        " ON CONFLICT (resource) DO UPDATE SET token = excluded.token"
        " WHERE held.token <= excluded.token RETURNING token"
    )
    return statement, (resource, current().token)


def check_row(row: object) -> None:
    """Raise LostLease if ``row`` is None: the statement of ``guard_sql`` returned no row. Let the
    error pass through your transaction, so that it is rolled back."""
    if row is None:
        raise LostLease("a later attempt has written to this resource")
