"""What a session of ours on PostgreSQL must be like, whatever its role or database is set to.

Told once, at the start of a session of our own. Behind a transaction pooler nothing may be left in
a session: there each call is a transaction that begins with all of it, in the message of its
BEGIN, and so costs that message and a COMMIT more. READ COMMITTED is what the arguments in the SQL
files rest on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from functools import lru_cache
from typing import Any

# Plans by index, results that are NULL and not a text, and sessions that stay. An error where row
# security would hide rows: a worker whose row is hidden would be taken for gone. Not among them,
# and so obeyed: default_transaction_read_only, by which a server that runs out of disk protects
# itself, and search_path, by which our tables are found.
_PLAIN = {
    "jit": "off",
    "enable_indexscan": "on",
    "enable_indexonlyscan": "on",
    "enable_nestloop": "on",
    "enable_tidscan": "on",
    "array_nulls": "on",
    "idle_session_timeout": "0",
    "row_security": "off",
}


class Transaction(StrEnum):
    """What a transaction sees: with each statement what is committed by then, or one snapshot."""

    COMMITTED = "ISOLATION LEVEL READ COMMITTED"
    SNAPSHOT = "ISOLATION LEVEL REPEATABLE READ READ ONLY"


@lru_cache(maxsize=64)
def settings_of(statement_timeout: float, *, keeps_plans: bool) -> dict[str, str]:
    """Return the settings of a session or transaction; ``statement_timeout`` is in seconds.

    It bounds how long rows may stay locked that are of no use to the client any more: while the
    session works, while it waits for the next statement, and while the client does not read its
    reply, which neither of the first two ends (TCP on Linux; for a Unix socket see free.sql).
    """
    milliseconds = str(int(statement_timeout * 1000))
    return {
        "statement_timeout": milliseconds,
        "idle_in_transaction_session_timeout": milliseconds,
        "tcp_user_timeout": milliseconds,
        "lock_timeout": "0",
        "plan_cache_mode": "force_generic_plan" if keeps_plans else "force_custom_plan",
        **_PLAIN,
    }


@lru_cache(maxsize=64)
def begin_text(kind: Transaction, statement_timeout: float | None = None) -> str:
    """Return what begins a transaction; with a timeout (seconds), and makes it what a session of
    our own is from its start."""
    begin = f"BEGIN {kind}"
    if statement_timeout is None:
        return begin
    local = settings_of(statement_timeout, keeps_plans=False)
    return "; ".join([begin, *(f"SET LOCAL {name} = '{value}'" for name, value in local.items())])


@asynccontextmanager
async def in_transaction(connection: Any, begin: str) -> AsyncIterator[None]:
    """Begin, and commit at the end; what breaks off leaves the connection in its transaction."""
    await connection.execute(begin)
    yield
    await connection.execute("COMMIT")


def is_pooled(connection: Any) -> bool:
    """Whether a connection was opened as one that may lead to a pooler: it keeps no statements."""
    return bool(connection._config.statement_cache_size == 0)  # noqa: SLF001  # shown nowhere else
