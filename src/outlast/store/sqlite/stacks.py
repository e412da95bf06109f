"""Where running jobs are: plain functions of a cursor, under the write lock (sql/stacks.sql)."""

from __future__ import annotations

from sqlite3 import Cursor

import msgspec

from outlast.store.stacks import Stack
from outlast.store.statements import statements

_SQL = statements("sqlite", "stacks")


def ask_stack(cursor: Cursor, _: float, job_id: int, token: int, seen: str, then: str) -> bool:
    """Ask the worker that runs this attempt; return whether it was."""
    values = {"job_id": job_id, "token": token, "seen": seen, "then": then}
    return cursor.execute(_SQL["ask"], values).rowcount == 1


def keep_stack(cursor: Cursor, now: float, job_id: int, stack: Stack) -> bool:
    """Keep where a running attempt is; return whether it is current."""
    text = msgspec.json.encode(stack).decode()
    values = {"job_id": job_id, "token": stack.token, "stack": text, "now": now}
    return cursor.execute(_SQL["keep"], values).rowcount == 1
