"""Records acts of people on PostgreSQL: functions of a connection in a transaction."""

from __future__ import annotations

from typing import Any

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
from outlast.store.statements import statements

_SQL = statements("postgres", "actions")


async def write_record(connection: Any, record: Record | None, counts: Counts) -> None:
    """Write a record of the act, if it changed anything; a step is taken in any case. Raises
    Overtaken."""
    if isinstance(record, Note):
        if counts.keys() & CHANGES:
            await write_note(connection, record, counts)
    elif record is not None:
        await move(connection, record, counts)


async def write_note(connection: Any, note: Note, counts: Counts) -> int:
    """Add a row; keep the newest ACTIONS_KEPT of its actor."""
    values = columns_of(note, counts).values()
    rows = await connection.fetch(_SQL["note"], *values, ACTIONS_KEPT)
    return int(rows[0][0])


async def move(connection: Any, step: BulkStep | More, counts: Counts) -> None:
    """Advance a bulk action. Raises Overtaken."""
    rows = await connection.fetch(_SQL["lock"], step.action_id)
    text, state, before_id = moved(step, tuple(rows[0]) if rows else None, counts)
    await connection.fetch(_SQL["move"], step.action_id, text, state, before_id)
