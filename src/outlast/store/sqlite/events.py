"""Stores events, and notes who waits for them: plain functions of a cursor, under the write lock
(sqlite/sql/events.sql)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlast.model.lifecycle import Transition
from outlast.store.sqlite.statements import statements
from outlast.store.values import NewEvent

_SQL = statements("events")


def send_event(cursor: Any, now: float, event: NewEvent) -> bool:
    if cursor.execute(_SQL["send"], (event.name, event.value, now)).rowcount != 1:
        return False
    cursor.execute(_SQL["note"], (event.name,))
    return True


def find_event(cursor: Any, _: float, name: str) -> str | None:
    row = cursor.execute(_SQL["find"], (name,)).fetchone()
    return None if row is None else str(row[0])


def note_waits(cursor: Any, ended: Sequence[Transition]) -> None:
    for end in ended:
        values = {"job_id": end.job_id, "token": end.token, "event": end.event}
        cursor.execute(_SQL["wait"], values)
        cursor.execute(_SQL["note"], (end.event,))
