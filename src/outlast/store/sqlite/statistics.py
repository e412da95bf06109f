"""What a store holds, in numbers, on SQLite. Plain functions of a cursor (sql/statistics.sql).

Each statement reads a bounded number of rows; all are of one snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Cursor
from typing import Any

import msgspec

from outlast.store.sqlite.statements import statements
from outlast.store.statistics import (
    DueJobs,
    EndedJobs,
    QueueCount,
    ScheduledJobs,
    Statistics,
    Undecodable,
    second_share,
    share_of,
)

_SQL = statements("statistics")
_SNAPSHOT = statements("transaction")
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


def _count(cursor: Cursor, name: str, keys: Sequence[object], values: dict[str, Any]) -> Any:
    return cursor.execute(_SQL[name], values | {"keys": _encode(keys).decode()}).fetchall()


def _lanes(cursor: Cursor, values: dict[str, Any]) -> tuple[list[DueJobs], bool]:
    """Return the lanes of the line, and whether there are more."""
    heads = cursor.execute(_SQL["lanes"], values).fetchall()
    oldest = {(queue, task): at for queue, task, at, _ in heads}
    numbers: dict[tuple[str, str], int] = {}
    bounds: dict[tuple[str, str], int] = {}

    def count(keys: Sequence[tuple[str, str]], share: int) -> None:
        for queue, task, number in _count(cursor, "count_lanes", keys, values | {"most": share}):
            numbers[queue, task] = number
        bounds.update(dict.fromkeys(keys, share))

    count(list(oldest), first := share_of(values["most"], oldest))
    full = [key for key, number in numbers.items() if number >= first]
    if full and (share := second_share(values["most"], full)) > first:
        count(full, share)
    found = [
        DueJobs(
            queue=queue,
            task=task,
            number=numbers[queue, task],
            oldest=at,
            at_least=numbers[queue, task] >= bounds[queue, task],
        )
        for (queue, task), at in sorted(oldest.items())
    ]
    return found, bool(heads) and heads[0][3] >= values["lanes"]


def _waiting(cursor: Cursor, values: dict[str, Any]) -> list[ScheduledJobs]:
    """Return the queues that have jobs outside the line."""
    oldest = dict(cursor.execute(_SQL["waiting"], values).fetchall())
    found: dict[str, ScheduledJobs] = {}

    def count(queues: Sequence[str], share: int) -> list[str]:
        full = []
        rows = _count(cursor, "count_waiting", queues, values | {"most": share})
        for queue, due, scheduled in rows:
            found[queue] = ScheduledJobs(
                queue=queue,
                due=due,
                scheduled=scheduled,
                oldest=oldest[queue],
                due_at_least=due >= share,
                scheduled_at_least=scheduled >= share,
            )
            full += [queue] if max(due, scheduled) >= share else []
        return full

    half = values["most"] // 2
    full = count(list(oldest), first := share_of(half, oldest))
    if full and (share := second_share(half, full)) > first:
        count(full, share)
    return list(found.values())
