"""Records acts of people on SQLite. Plain functions of a cursor (sql/actions.sql)."""

from __future__ import annotations

from sqlite3 import Cursor

from outlast.store.actions import (
    ACTIONS_KEPT,
    CHANGES,
    BulkStep,
    Counts,
    More,
    Note,
    Record,
    columns_of,
    moved,
)
from outlast.store.sqlite.statements import statements

_SQL = statements("actions")


def write_record(cursor: Cursor, now: float, record: Record | None, counts: Counts) -> None:
    """Write a record of the act, if it changed anything; a step is taken in any case."""
    if isinstance(record, Note):
        if counts.keys() & CHANGES:
            write_note(cursor, now, record, counts)
    elif record is not None:
        move(cursor, now, record, counts)


def write_note(cursor: Cursor, now: float, note: Note, counts: Counts) -> int:
    """Add a row; keep the newest ACTIONS_KEPT of its actor."""
    values = columns_of(note, counts) | {"now": now}
    action_id: int = cursor.execute(_SQL["note"], values).fetchone()[0]
    kept = {"actor": values["actor"], "kept": ACTIONS_KEPT}
    cursor.execute(_SQL["forget_oldest"], kept)
    return action_id


def move(cursor: Cursor, now: float, step: BulkStep | More, counts: Counts) -> None:
    """Advance a bulk action. Raises Overtaken."""
    standing = cursor.execute(_SQL["standing"], (step.action_id,)).fetchone()
    text, state, before_id = moved(step, standing, counts)
    values = {"counts": text, "state": state, "before_id": before_id}
    cursor.execute(_SQL["move"], values | {"now": now, "id": step.action_id})
