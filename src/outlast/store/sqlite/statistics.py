"""What a store holds, in numbers, on SQLite. Plain functions of a cursor (sql/statistics.sql).

Each statement reads a bounded number of rows; all are of one snapshot.
"""

from __future__ import annotations

from sqlite3 import Cursor
from typing import Any

import msgspec

from outlast.store.statements import statements
from outlast.store.statistics import (
    DueJobs,
    EndedJobs,
    QueueCount,
    ScheduledJobs,
    Shares,
    Statistics,
    Undecodable,
)

_SQL = statements("sqlite", "statistics")
_SNAPSHOT = statements("sqlite", "transaction")
_FIGURE: dict[str, type[msgspec.Struct]] = {
    "running": QueueCount,
    "suspects": QueueCount,
    "dead": QueueCount,
    "ended": EndedJobs,
    "undecodable": Undecodable,
}
_encode = msgspec.json.Encoder().encode


def statistics(cursor: Cursor, now: float, most: int, lanes: int) -> Statistics:
    """Return what the store holds; each figure is counted up to ``most``."""
    values = {"now": now, "most": most, "lanes": lanes}
    cursor.execute(_SNAPSHOT["snapshot"])
    try:
        found: dict[str, Any] = {
            name: [_struct(kind, row) for row in cursor.execute(_SQL[name], values)]
            for name, kind in _FIGURE.items()
        }
        lined, more_lanes = _lanes(cursor, values)
        waiting = _waiting(cursor, values)
        refused = cursor.execute(_SQL["refused"], values).fetchone()[0]
    finally:
        cursor.execute(_SNAPSHOT["rollback"])
    more_lanes = more_lanes or len(waiting) >= lanes
    return Statistics(
        now=now,
        lanes=lined,
        waiting=waiting,
        refused=refused,
        most=most,
        more_lanes=more_lanes,
        **found,
    )


def _struct(kind: type[msgspec.Struct], row: tuple[Any, ...]) -> Any:
    return kind(**dict(zip(kind.__struct_fields__, row, strict=True)))


def _count(cursor: Cursor, name: str, shares: Shares[Any], values: dict[str, Any]) -> Any:
    named = {"keys": _encode(shares.keys).decode(), "most": shares.rows}
    return cursor.execute(_SQL[name], values | named).fetchall()


def _lanes(cursor: Cursor, values: dict[str, Any]) -> tuple[list[DueJobs], bool]:
    """Return the lanes of the line, and whether there are more."""
    heads = cursor.execute(_SQL["lanes"], values).fetchall()
    oldest = {(queue, task): at for queue, task, at, _ in heads}
    found: dict[tuple[str, str], DueJobs] = {}
    shares = Shares(values["most"], oldest)
    while shares.keys:
        for queue, task, number in _count(cursor, "count_lanes", shares, values):
            found[queue, task] = DueJobs(
                queue=queue,
                task=task,
                number=number,
                oldest=oldest[queue, task],
                at_least=number >= shares.rows,
            )
        shares.go_on([key for key, each in found.items() if each.at_least])
    return [found[key] for key in sorted(found)], bool(heads) and heads[0][3] >= values["lanes"]


def _waiting(cursor: Cursor, values: dict[str, Any]) -> list[ScheduledJobs]:
    """Return the queues that have jobs outside the line."""
    oldest = dict(cursor.execute(_SQL["waiting"], values).fetchall())
    found: dict[str, ScheduledJobs] = {}
    shares = Shares(values["most"] // 2, oldest)
    while shares.keys:
        for queue, due, scheduled in _count(cursor, "count_waiting", shares, values):
            found[queue] = ScheduledJobs(
                queue=queue,
                due=due,
                scheduled=scheduled,
                oldest=oldest[queue],
                due_at_least=due >= shares.rows,
                scheduled_at_least=scheduled >= shares.rows,
            )
        shares.go_on([queue for queue, each in found.items() if each.is_at_least()])
    return list(found.values())
