"""The inspector on a cursor, without a thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from outlast.store.sqlite.inspector import SqliteInspector

T = TypeVar("T")


class _OnCursor:
    path = None

    def __init__(self, cursor: sqlite3.Cursor, now: float) -> None:
        self._cursor = cursor
        self._now = now

    async def read(self, work: Callable[[sqlite3.Cursor, float], T]) -> T:
        return work(self._cursor, self._now)


def inspector_on(cursor: sqlite3.Cursor, now: float) -> SqliteInspector:
    connection: Any = _OnCursor(cursor, now)
    return SqliteInspector(connection)
