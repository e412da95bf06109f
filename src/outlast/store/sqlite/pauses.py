"""Sets, ends and acknowledges pauses on SQLite. Plain functions of a cursor (sql/pauses.sql)."""

from __future__ import annotations

from sqlite3 import Cursor

from outlast.model.pause import Pause, PauseKind
from outlast.store.columns import pause_of
from outlast.store.sqlite.statements import statements
from outlast.store.values import NewPause, WorkerRef

_SQL = statements("pauses")


def pause(cursor: Cursor, now: float, new: NewPause) -> Pause:
    values = {
        "kind": new.kind.value,
        "name": new.name,
        "now": now,
        "paused_by": new.paused_by,
        "reason": new.reason,
        "stop": new.stop,
    }
    return pause_of(cursor.execute(_SQL["pause"], values).fetchone())


def resume(cursor: Cursor, _: float, kind: PauseKind, name: str) -> Pause | None:
    row = cursor.execute(_SQL["resume"], {"kind": kind.value, "name": name}).fetchone()
    return None if row is None else pause_of(row)


def acknowledge_pauses(cursor: Cursor, _: float, me: WorkerRef, version: str) -> None:
    values = {"acknowledged_pauses": version, "id": me.worker_id, "registration": me.registration}
    cursor.execute(_SQL["acknowledge_pauses"], values)


def version_of(cursor: Cursor) -> str:
    """Return the version of the pauses."""
    return str(cursor.execute(_SQL["version"]).fetchone()[0])
