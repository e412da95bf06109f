"""Suspects on SQLite: which cohort runs next, and what waits. Reads of a cursor, inside the
exchange's own write transaction (sqlite/sql/exchange.sql).

Suspects are read lane by lane (queue, task), so that those of unknown tasks cost one look.
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Cursor
from typing import Any

from outlast.model.job import ALONE_IN_RUNNER
from outlast.store.sqlite.statements import statements
from outlast.store.values import ClaimRequest

_SQL = statements("exchange")

Row = tuple[Any, ...]


def next_cohort(cursor: Cursor, now: float, room: ClaimRequest, limit: int) -> list[Row]:
    """Return the rows of the suspect that is next, and of those of its cohort that fit."""
    first = _first(cursor, now, room, room.solo)
    if first is None:
        return []
    _, _, job_id, incident, cohort = first
    ids = [job_id]
    if room.solo == ALONE_IN_RUNNER and incident is not None:
        members = cursor.execute(_SQL["cohort"], (incident, cohort, now)).fetchall()
        ids += [id_ for id_, *lane in members if id_ != job_id and _within(room, *lane)]
    return [cursor.execute(_SQL["suspect"], (id_,)).fetchone() for id_ in sorted(ids[:limit])]


def next_due(cursor: Cursor, now: float, room: ClaimRequest) -> float | None:
    """Return when the next suspect that this request has a place for falls due."""
    looks = (
        cursor.execute(_SQL["next_suspect_due"], (room.solo, *lane, now)).fetchone()[0]
        for lane in _lanes(cursor, room, room.solo)
    )
    return min((time for time in looks if time is not None), default=None)


def waiting(cursor: Cursor, now: float, rooms: Sequence[ClaimRequest], most: int) -> int:
    """Return the largest ``solo`` of a suspect that is due for these requests' tasks and queues."""
    for solo in range(most, 0, -1):
        if any(_first(cursor, now, room, solo) for room in rooms):
            return solo
    return 0


def _first(cursor: Cursor, now: float, room: ClaimRequest, solo: int) -> Row | None:
    looks = (
        cursor.execute(_SQL["first_suspect"], (solo, *lane, now)).fetchone()
        for lane in _lanes(cursor, room, solo)
    )
    return min((row for row in looks if row is not None), default=None)


def _lanes(cursor: Cursor, room: ClaimRequest, solo: int) -> list[tuple[str, str]]:
    lanes = cursor.execute(_SQL["suspect_lanes"], {"solo": solo}).fetchall()
    return [(queue, task) for queue, task in lanes if _within(room, queue, task)]


def _within(room: ClaimRequest, queue: str, task: str) -> bool:
    return task in room.tasks and (not room.queues or queue in room.queues)
