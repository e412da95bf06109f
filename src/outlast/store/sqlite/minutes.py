"""Notes and adds up the counters of workers on SQLite, by a cursor (sql/minutes.sql)."""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Cursor

from outlast.store.minutes import Counted, columns_of, merge
from outlast.store.protocol import PRUNE_MAX
from outlast.store.sqlite.inspector import fetch, rows_on, run_at_once


def note_minute(
    cursor: Cursor, now: float, worker_id: int, batch: int, counted: Sequence[Counted]
) -> None:
    mine = {"level": "worker", "worker_id": worker_id, "batch": batch, "at": int(now // 60) * 60}
    fetch(cursor, "minutes", "note", {"rows": [columns_of(each) | mine for each in counted]})


def merge_minutes(cursor: Cursor, now: float, limit: int = PRUNE_MAX) -> int:
    return run_at_once(merge(rows_on(cursor, now), limit))
