"""Finds the suspects that run next on SQLite, and those that wait.

These are reads of a cursor, inside the exchange's own write transaction (sqlite/sql/exchange.sql).
Suspects are read lane by lane (queue, task), so that those of unknown tasks cost one probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Cursor

import msgspec

from outlast.model.job import ALONE_IN_WORKER
from outlast.model.limits import needs_of
from outlast.store.sqlite.lanes import Row
from outlast.store.sqlite.permits import Permits
from outlast.store.sqlite.statements import statements
from outlast.store.values import ClaimRequest

_SQL = statements("exchange")
_encode = msgspec.json.Encoder().encode

_Due = tuple[int, float, int, str | None]  # rank, time, id and needs of a suspect
PASSED_MAX = 100  # kinds of suspects, by what they need, that a look passes over without room


def find_next(
    cursor: Cursor, now: float, request: ClaimRequest, limit: int, permits: Permits
) -> list[Row]:
    """Return the rows of the next suspects. Those whose permits have no room are passed over."""
    limit = 1 if request.solo == ALONE_IN_WORKER else limit
    found = _find_due(cursor, now, request, request.solo, permits, limit)
    fitting = permits.find_fitting([needs_of(needs) for *_, needs in found])
    ids = [job_id for (_, _, job_id, _), fits in zip(found, fitting, strict=True) if fits]
    return [Row(*cursor.execute(_SQL["suspect"], (job_id,)).fetchone()) for job_id in ids]


def find_next_due(
    cursor: Cursor, now: float, requests: Sequence[ClaimRequest], most: int
) -> float | None:
    """Return when the next suspect for these requests' tasks and queues falls due. Suspects
    that a worker asks for only once they are due (``find_waiting``) count as well: no commit
    announces these."""
    looks = (
        cursor.execute(_SQL["next_suspect_due"], (solo, *lane, now)).fetchone()[0]
        for solo in range(1, most + 1)
        for request in requests
        for lane in _read_lanes(cursor, request, solo)
    )
    return min((time for time in looks if time is not None), default=None)


def _find_due(
    cursor: Cursor, now: float, request: ClaimRequest, solo: int, permits: Permits, limit: int
) -> list[_Due]:
    """Return up to ``limit`` suspects, each of which may start, in the order of their turns."""
    tenants, passed = _tenants(request), set[str]()
    lanes = _read_lanes(cursor, request, solo)
    while len(passed) < PASSED_MAX:
        values = (now, tenants, _encode(list(passed)).decode(), limit)
        looks = (cursor.execute(_SQL["due_suspects"], (solo, *lane, *values)) for lane in lanes)
        found = sorted(row for rows in looks for row in rows)[:limit]
        shut = {row[-1] for row in found if not permits.may_start(needs_of(row[-1]))}
        if not shut:
            return found
        passed |= shut
    return []


def _read_lanes(cursor: Cursor, request: ClaimRequest, solo: int) -> list[tuple[str, str]]:
    lanes = cursor.execute(_SQL["suspect_lanes"], {"solo": solo}).fetchall()
    return [(queue, task) for queue, task in lanes if _is_within(request, queue, task)]


def _is_within(request: ClaimRequest, queue: str, task: str) -> bool:
    wanted = not request.queues or queue in request.queues
    return task in request.tasks and wanted and queue not in request.not_queues


def _tenants(request: ClaimRequest) -> str:
    """Return the tenants whose suspects are passed over."""
    return _encode(request.not_tenants).decode() if request.not_tenants else "[]"
