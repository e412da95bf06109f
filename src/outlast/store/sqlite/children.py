"""Stores the children of running attempts, and lets an attempt's end wait for them: plain functions
of a cursor, under the write lock (sqlite/sql/dependencies.sql)."""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Cursor

import msgspec

from outlast.store.dependencies import not_spawned
from outlast.store.sqlite.jobs import enqueue_flow
from outlast.store.sqlite.steps import keep_steps
from outlast.store.statements import statements
from outlast.store.values import Answer, Enqueued, NewJob, Spawn

_SQL = statements("sqlite", "dependencies")
_JOBS = statements("sqlite", "jobs")
_encode = msgspec.json.Encoder().encode


def spawn(cursor: Cursor, now: float, jobs: Sequence[NewJob], which: Spawn) -> list[Enqueued]:
    """Store the children of an attempt with the step that says so."""
    stored = enqueue_flow(cursor, now, jobs)
    if keep_steps(cursor, now, [which.step]) != [Answer.ACCEPTED]:
        raise not_spawned(which)
    made = [each.job_id for each in stored]
    ids = _encode(made).decode()
    cursor.execute(_SQL["await"], {"ids": _encode([which.step.job_id, *made]).decode()})
    cursor.execute(_SQL["adopt"], {"job_id": which.step.job_id, "first": which.first, "ids": ids})
    return stored


def watch_children(cursor: Cursor, _: float, job_id: int, token: int, ids: Sequence[int]) -> bool:
    """Let the end of the attempt wait for those of these children that have not ended."""
    if not cursor.execute(_JOBS["is_current"], (job_id, token)).fetchone():
        return False
    cursor.execute(_SQL["watch"], {"job_id": job_id, "ids": _encode(list(ids)).decode()})
    return True
