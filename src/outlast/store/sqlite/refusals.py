"""Answers a guarded write that found no current attempt, and records it."""

from __future__ import annotations

from collections.abc import Collection
from sqlite3 import Cursor

from outlast.model.crash import CrashKind
from outlast.store.protocol import REFUSALS_KEPT
from outlast.store.sqlite.statements import statements
from outlast.store.values import Answer

_SQL = statements("jobs")


def judge(
    cursor: Cursor,
    now: float,
    job_id: int,
    token: int,
    outcome: str,
    *,
    may_be_completed: Collection[str],
) -> Answer:
    """Return ``already`` if this very end was written before, otherwise record the refusal.

    A job that its own token completed has such an end for the outcomes in ``may_be_completed``, and
    so has a job that is gone, if it is only checked: a job kept for no time goes with its commit.
    """
    if outcome in may_be_completed and _one(cursor, "completed_by", job_id, token):
        return Answer.ALREADY
    if outcome == CrashKind.COMPLETION_NOT_COMMITTED and not _one(cursor, "is_there", job_id):
        return Answer.ALREADY
    if _one(cursor, "closed_as", token, job_id, outcome):
        return Answer.ALREADY
    return refuse(cursor, now, job_id, token, "end")


def refuse(cursor: Cursor, now: float, job_id: int, token: int, verb: str) -> Answer:
    """Record how late the write was, if that is known; keep the newest REFUSALS_KEPT."""
    named = {"job_id": job_id, "token": token}
    ended_at = cursor.execute(_SQL["ended_at"], named).fetchone()[0]
    late_by = None if ended_at is None else max(0.0, now - ended_at)
    cursor.execute(_SQL["refuse"], (job_id, token, verb, now, late_by))
    cursor.execute(_SQL["forget_refusals"], (REFUSALS_KEPT,))
    return Answer.REFUSED


def _one(cursor: Cursor, name: str, *values: object) -> bool:
    return cursor.execute(_SQL[name], values).fetchone() is not None
