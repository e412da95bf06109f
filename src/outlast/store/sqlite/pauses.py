"""Acknowledges pauses on SQLite. Plain functions of a cursor (sql/pauses.sql)."""

from __future__ import annotations

from sqlite3 import Cursor

from outlast.store.sqlite.statements import statements
from outlast.store.values import WorkerRef

_SQL = statements("pauses")


def acknowledge_pauses(cursor: Cursor, _: float, me: WorkerRef, version: str) -> None:
    values = {"acknowledged_pauses": version, "id": me.worker_id, "registration": me.registration}
    cursor.execute(_SQL["acknowledge_pauses"], values)


def version_of(cursor: Cursor) -> str:
    """Return the version of the pauses."""
    return str(cursor.execute(_SQL["version"]).fetchone()[0])
