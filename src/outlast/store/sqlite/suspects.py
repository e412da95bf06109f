"""Finds the cohort of suspects that runs next on SQLite, and the suspects that wait.

These are reads of a cursor, inside the exchange's own write transaction (sqlite/sql/exchange.sql).
Suspects are read lane by lane (queue, task), so that those of unknown tasks cost one probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Cursor
from typing import Any

import msgspec

from outlast.model.job import ALONE_IN_RUNNER
from outlast.store.statements import statements
from outlast.store.values import ClaimRequest

_SQL = statements("sqlite", "exchange")
_encode = msgspec.json.Encoder().encode

Row = tuple[Any, ...]


def find_cohort(cursor: Cursor, now: float, request: ClaimRequest, limit: int) -> list[Row]:
    """Return the rows of the next suspect, and of the jobs of its cohort that fit."""
    first = _find_first(cursor, now, request, request.solo)
    if first is None:
        return []
    _, _, job_id, incident, cohort = first
    ids = [job_id]
    if request.solo == ALONE_IN_RUNNER and incident is not None:
        members = cursor.execute(
            _SQL["cohort"], (incident, cohort, now, _tenants(request))
        ).fetchall()
        ids += [id_ for id_, *lane in members if id_ != job_id and _is_within(request, *lane)]
    return [cursor.execute(_SQL["suspect"], (id_,)).fetchone() for id_ in sorted(ids[:limit])]


def find_next_due(
    cursor: Cursor, now: float, requests: Sequence[ClaimRequest], most: int
) -> float | None:
    """Return when the next suspect for these requests' tasks and queues falls due, also one that is
    only asked for once it waits (``find_waiting``): no commit tells of it then."""
    looks = (
        cursor.execute(_SQL["next_suspect_due"], (solo, *lane, now)).fetchone()[0]
        for solo in range(1, most + 1)
        for request in requests
        for lane in _read_lanes(cursor, request, solo)
    )
    return min((time for time in looks if time is not None), default=None)


def find_waiting(cursor: Cursor, now: float, requests: Sequence[ClaimRequest], most: int) -> int:
    """Return the largest ``solo`` of a suspect that is due for these requests' tasks and queues."""
    for solo in range(most, 0, -1):
        if any(_find_first(cursor, now, request, solo) for request in requests):
            return solo
    return 0


def _find_first(cursor: Cursor, now: float, request: ClaimRequest, solo: int) -> Row | None:
    tenants = _tenants(request)
    looks = (
        cursor.execute(_SQL["first_suspect"], (solo, *lane, now, tenants)).fetchone()
        for lane in _read_lanes(cursor, request, solo)
    )
    return min((row for row in looks if row is not None), default=None)


def _read_lanes(cursor: Cursor, request: ClaimRequest, solo: int) -> list[tuple[str, str]]:
    lanes = cursor.execute(_SQL["suspect_lanes"], {"solo": solo}).fetchall()
    return [(queue, task) for queue, task in lanes if _is_within(request, queue, task)]


def _is_within(request: ClaimRequest, queue: str, task: str) -> bool:
    wanted = not request.queues or queue in request.queues
    return task in request.tasks and wanted and queue not in request.not_queues


def _tenants(request: ClaimRequest) -> str:
    """Return the tenants whose suspects are passed over."""
    return _encode(request.not_tenants).decode() if request.not_tenants else "[]"
