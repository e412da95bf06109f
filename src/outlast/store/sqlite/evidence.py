"""What ended badly, on SQLite: plain functions of a cursor (sql/evidence.sql)."""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Cursor
from typing import Any

import msgspec

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

_SQL = statements("sqlite", "evidence")
_SNAPSHOT = statements("sqlite", "transaction")


def dead_groups(cursor: Cursor, which: DeadFilter) -> DeadGroups:
    """Return groups of dead jobs."""
    name, rows = ("dead_groups", DEAD_LOOKED_AT)
    if not which.is_open:
        name, rows = ("dead_groups_among", ROWS_LOOKED_AT)
    values = msgspec.structs.asdict(which) | {"rows": rows, "groups": GROUPS_MAX + 1}
    found = cursor.execute(_SQL[name], values).fetchall()
    groups = [_struct(DeadGroup, row[:-1]) for row in found]
    return groups_of(groups, found[0][-1] if found else 0, rows)


def ended_attempts(cursor: Cursor, which: AttemptFilter) -> EndedAttempts:
    """Return ended attempts, newest token first."""
    values = msgspec.structs.asdict(which)
    values["before"] = ID_MAX if which.before is None else which.before
    if which.outcomes is not None:
        values["outcomes"] = msgspec.json.encode(which.outcomes).decode()
    cursor.execute(_SNAPSHOT["snapshot"])
    try:
        look = {"before": values["before"], "rows": ROWS_LOOKED_AT}
        floor = cursor.execute(_SQL["ended_floor"], look).fetchone()
        rows = cursor.execute(_SQL["ended"], values | {"floor": floor[0]}).fetchall()
    finally:
        cursor.execute(_SNAPSHOT["rollback"])
    return attempts_of([_struct(EndedAttempt, row) for row in rows], which, floor)


def last_ends(cursor: Cursor, ids: Sequence[int]) -> list[EndedAttempt]:
    """Return the last ended attempt of each of these jobs that has one."""
    rows = cursor.execute(_SQL["last_ends"], {"ids": msgspec.json.encode(list(ids)).decode()})
    return [_struct(EndedAttempt, row) for row in rows]


def causes(cursor: Cursor, now: float, tenant: str | None) -> list[Cause]:
    """Return how the newest attempts ended."""
    values = {"now": now, "tenant": tenant, "rows": ROWS_LOOKED_AT}
    return [_struct(Cause, row) for row in cursor.execute(_SQL["causes"], values)]


def suspects(cursor: Cursor) -> list[Suspect]:
    """Return the jobs of the newest shared deaths."""
    rows = cursor.execute(_SQL["suspects"], {"rows": SUSPECTS_MAX})
    return [_struct(Suspect, row) for row in rows]


def _struct(kind: type[msgspec.Struct], row: tuple[Any, ...]) -> Any:
    return kind(**finite(dict(zip(kind.__struct_fields__, row, strict=True))))
