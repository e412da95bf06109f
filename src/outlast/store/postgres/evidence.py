"""What ended badly, on PostgreSQL: plain functions of a connection that reads by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlast.store.columns import ID_MAX, finite
from outlast.store.evidence import (
    DEAD_LOOKED_AT,
    GROUPS_MAX,
    ROWS_LOOKED_AT,
    SUSPECTS_MAX,
    AttemptFilter,
    Cause,
    DeadFilter,
    DeadGroup,
    DeadGroups,
    EndedAttempt,
    EndedAttempts,
    Suspect,
    attempts_of,
    groups_of,
)
from outlast.store.statements import statements

_SQL = statements("postgres", "evidence")


async def dead_groups(connection: Any, which: DeadFilter) -> DeadGroups:
    """Return groups of dead jobs."""
    if which.is_open:
        rows, most = DEAD_LOOKED_AT, (DEAD_LOOKED_AT, GROUPS_MAX + 1)
        found = await connection.fetch(_SQL["dead_groups"], *most)
    else:
        rows = ROWS_LOOKED_AT
        values = (rows, GROUPS_MAX + 1, which.queue, which.task, which.tenant)
        found = await connection.fetch(_SQL["dead_groups_among"], *values)
    told = [finite(dict(row)) for row in found]
    looked_at = [row.pop("looked_at") for row in told]
    return groups_of([DeadGroup(**row) for row in told], looked_at[0] if looked_at else 0, rows)


async def ended_attempts(connection: Any, which: AttemptFilter) -> EndedAttempts:
    """Return ended attempts, newest token first."""
    before = ID_MAX if which.before is None else which.before
    floor = tuple(await connection.fetchrow(_SQL["ended_floor"], before, ROWS_LOOKED_AT))
    outcomes = None if which.outcomes is None else list(which.outcomes)
    filters = (outcomes, which.worker_id, which.tenant)
    values = (before, floor[0], *filters, which.limit)
    rows = await connection.fetch(_SQL["ended"], *values)
    return attempts_of([EndedAttempt(**finite(dict(row))) for row in rows], which, floor)


async def last_ends(connection: Any, ids: Sequence[int]) -> list[EndedAttempt]:
    """Return the last ended attempt of each of these jobs that has one."""
    rows = await connection.fetch(_SQL["last_ends"], list(ids))
    return [EndedAttempt(**finite(dict(row))) for row in rows]


async def causes(connection: Any, tenant: str | None) -> list[Cause]:
    """Return how the newest attempts ended."""
    rows = await connection.fetch(_SQL["causes"], ROWS_LOOKED_AT, tenant)
    return [Cause(**finite(dict(row))) for row in rows]


async def suspects(connection: Any) -> list[Suspect]:
    """Return the jobs of the newest shared deaths."""
    rows = await connection.fetch(_SQL["suspects"], SUSPECTS_MAX)
    return [Suspect(**dict(row)) for row in rows]
