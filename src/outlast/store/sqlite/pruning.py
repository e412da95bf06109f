"""Deletes ended jobs: those kept for no time in the commit of their end, others later.

Plain functions of a cursor, under the write lock (sqlite/sql/prune.sql); ``forget`` also on a
connection of the caller's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Cursor
from typing import Any

import msgspec

from outlast.model.limits import needs_of, permit_id
from outlast.store.actions import ACTIONS_SECONDS
from outlast.store.limits import IDLE_SECONDS
from outlast.store.protocol import PRUNE_MAX
from outlast.store.schedules import UNDECLARED_SECONDS
from outlast.store.sqlite.statements import statements
from outlast.store.values import EVENTS_SECONDS

_PRUNE = statements("prune")
_encode = msgspec.json.Encoder().encode


def forget(cursor: Any, job_ids: Sequence[int]) -> int:
    if not job_ids:
        return 0
    values = {"ids": _encode(list(job_ids)).decode()}
    cursor.execute(_PRUNE["attempts_of"], values)
    cursor.execute(_PRUNE["labels_of"], values)
    cursor.execute(_PRUNE["logs_of"], values)
    if cursor.execute(_PRUNE["steps_of"], values).rowcount:  # who has waited has a step
        cursor.execute(_PRUNE["waits_of"], values)
    cursor.execute(_PRUNE["dependencies_of"], values)
    return int(cursor.execute(_PRUNE["jobs_of"], values).rowcount)


def forget_unkept(cursor: Cursor, job_ids: Sequence[int]) -> None:
    found = cursor.execute(_PRUNE["unkept"], {"ids": _encode(list(job_ids)).decode()}).fetchall()
    forget(cursor, [job_id for (job_id,) in found])


def prune(
    cursor: Cursor,
    now: float,
    *,
    jobs_older_than: float,
    workers_older_than: float,
    dead_older_than: float | None = None,
    events_older_than: float = EVENTS_SECONDS,
    limit: int = PRUNE_MAX,
    onward: bool = False,
) -> int:
    """A search from the oldest meets no deleted rows here, so ``onward`` changes nothing."""
    values = {
        "now": now,
        "before": now - jobs_older_than,
        "dead_before": None if dead_older_than is None else now - dead_older_than,
        "limit": limit,
    }
    old = cursor.execute(_PRUNE["jobs"], values).fetchall()
    jobs = forget(cursor, [job_id for (job_id,) in old])
    bounds = {
        "schedules": now - UNDECLARED_SECONDS,
        "actions": now - ACTIONS_SECONDS,
        "windows": now,
        "workers": now - workers_older_than,
        "events": now - events_older_than,
    }
    left = limit - jobs
    others = sum(cursor.execute(_PRUNE[name], (at, left)).rowcount for name, at in bounds.items())
    return jobs + others + _prune_streams(cursor, now, left)


def _prune_streams(cursor: Cursor, now: float, limit: int) -> int:
    """Look at some other permits as well: one may come to rest later than its last stream."""
    first = permit_id("", str(now))  # any permit or stream
    some = {"before": now - IDLE_SECONDS, "first": first, "limit": limit}
    cursor.execute(_PRUNE["unserved"], some)
    idle = cursor.execute(_PRUNE["streams"], some).fetchall()
    permits = {need.permit for (text,) in idle for need in needs_of(text)}
    values = some | {"permits": _encode(sorted(permits)).decode()}
    return len(idle) + cursor.execute(_PRUNE["permits"], values).rowcount
