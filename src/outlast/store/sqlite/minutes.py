"""Notes and adds up the counters of workers on SQLite, by a cursor (sql/minutes.sql)."""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Cursor

import msgspec

from outlast.store.minutes import HOUR_SECONDS, MINUTE_SECONDS, WORKER_SECONDS, Counted, columns_of
from outlast.store.protocol import PRUNE_MAX
from outlast.store.statements import statements

_SQL = statements("sqlite", "minutes")
_STEPS = (
    ("worker", WORKER_SECONDS, {"minute": 60, "total": 0}),
    ("minute", MINUTE_SECONDS, {"hour": 3_600}),
)
"""Which rows are added up, after how many seconds, and to which: how many seconds these cover."""
_encode = msgspec.json.Encoder().encode


def note_minute(
    cursor: Cursor, now: float, worker_id: int, batch: int, counted: Sequence[Counted]
) -> None:
    mine = {"worker_id": worker_id, "batch": batch, "at": int(now // 60) * 60}
    cursor.executemany(_SQL["note"], [columns_of(each) | mine for each in counted])


def merge_minutes(cursor: Cursor, now: float, limit: int = PRUNE_MAX) -> int:
    count = 0
    for level, age, upper in _STEPS:
        old = cursor.execute(_SQL["old"], (level, now - age, limit)).fetchall()
        for name, width in upper.items() if old else ():
            cursor.execute(_SQL["add"], {"level": name, "width": width, "ids": _ids(old)})
        count += _forget(cursor, old)
    for level in ("hour", "total"):
        old = cursor.execute(_SQL["old"], (level, now - HOUR_SECONDS, limit)).fetchall()
        count += _forget(cursor, old)
    return count


def _forget(cursor: Cursor, rows: Sequence[tuple[int]]) -> int:
    if rows:
        cursor.execute(_SQL["forget"], {"ids": _ids(rows)})
    return len(rows)


def _ids(rows: Sequence[tuple[int]]) -> str:
    return _encode([number for (number,) in rows]).decode()
