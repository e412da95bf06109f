"""Defines the verbs about schedules on SQLite, and the functions of a cursor that they run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from sqlite3 import Cursor
from typing import Any, NamedTuple

from outlast.model.schedule_plan import owe
from outlast.store.schedules import (
    AHEAD_SECONDS,
    DECLARED_SECONDS,
    DELETED,
    DUE_MAX,
    FIRST_PAGE,
    OWED_MAX,
    RENEW_SECONDS,
    VERSION_LENGTH,
    VERSIONS_KEPT,
    DueSchedule,
    DueSchedules,
    FireAnswer,
    Firing,
    NewSchedule,
    Origin,
    Put,
    columns_of,
    fired_columns,
)
from outlast.store.sqlite.connection import reads, writes
from outlast.store.sqlite.jobs import enqueue_unless_taken
from outlast.store.sqlite.lanes import draw
from outlast.store.sqlite.statements import statements

_SQL = statements("schedules")
_DUE = DueSchedule.__struct_fields__


def put(
    cursor: Any,
    now: float,
    schedules: Sequence[NewSchedule],
    origin: Origin = Origin.RUN_TIME,
) -> list[Put]:
    return [_put(cursor, now, each, origin) for each in schedules]


def _put(cursor: Any, now: float, new: NewSchedule, origin: Origin) -> Put:
    declared_at = now if origin is Origin.CODE else None
    values = columns_of(new) | {"origin": origin.value, "declared_at": declared_at}
    found = cursor.execute(_SQL["look"], (new.name,)).fetchone()
    row = None if found is None else _Row._make((*_texts(found[:5]), *found[5:]))
    if row is None or row.origin == DELETED:
        _create(cursor, now, values, row)
        return Put.CREATED
    return _replace(cursor, now, values, row)


class _Row(NamedTuple):
    """A row, with the columns that a put judges."""

    origin: str
    version: str
    versions: str
    spec: str
    owed: str
    since: float
    next_tick: float | None
    declared: int
    declared_at: float | None


def _texts(values: Sequence[bytes]) -> list[str]:
    return [bytes(each).decode(errors="replace") for each in values]


def _create(cursor: Any, now: float, values: dict[str, Any], deleted: _Row | None) -> None:
    since = now
    if deleted is not None:
        cursor.execute(_SQL["forget"], (values["name"],))
        if deleted.since - now <= AHEAD_SECONDS:
            since = max(deleted.since, now)
    more = {"since": since, "next_tick": since, "revision": draw(cursor, "position", 1)[0]}
    cursor.execute(_SQL["create"], values | more)


def _replace(cursor: Any, now: float, values: dict[str, Any], row: _Row) -> Put:
    by_code = values["origin"] == Origin.CODE.value
    age = math.inf if row.declared_at is None else abs(row.declared_at - now)
    if row.origin != values["origin"] and (by_code or age <= DECLARED_SECONDS):
        return Put.TAKEN
    if row.origin == values["origin"] and row.version == values["version"]:
        if by_code and not (row.declared and age <= RENEW_SECONDS):
            cursor.execute(_SQL["renew"], (now, values["name"]))
        return Put.SAME
    if by_code and age <= DECLARED_SECONDS and values["version"] in row.versions.split():
        return Put.OLDER
    kept = f"{row.versions} {row.version}"[-VERSIONS_KEPT * (VERSION_LENGTH + 1) :]
    values |= {"versions": kept, "revision": draw(cursor, "position", 1)[0]}
    since, next_tick, owed = row.since, row.next_tick, row.owed
    if row.spec != values["spec"]:  # otherwise next_tick stays
        since = next_tick = max(row.since, now)
        owed = owe(row.owed, row.since, since, row.spec, OWED_MAX)
    cursor.execute(_SQL["change"], values | {"since": since, "next_tick": next_tick, "owed": owed})
    return Put.CHANGED


def _due(
    cursor: Cursor, now: float, limit: int = DUE_MAX, after: tuple[float, str] = FIRST_PAGE
) -> DueSchedules:
    values = {"now": now, "tick": after[0], "name": after[1], "limit": limit}
    rows = cursor.execute(_SQL["due"], values).fetchall()
    first = cursor.execute(_SQL["first_after"], (now,)).fetchone()
    return DueSchedules(
        now=now,
        schedules=[DueSchedule(**dict(zip(_DUE, row, strict=True))) for row in rows],
        next_tick=first and first[0],
    )


def next_tick_in(cursor: Cursor, now: float) -> float | None:
    row = cursor.execute(_SQL["first_after"], (FIRST_PAGE[0],)).fetchone()
    return None if row is None else float(row[0] - now)


def fire(cursor: Cursor, now: float, firings: Sequence[Firing]) -> list[FireAnswer]:
    return [_fire(cursor, now, each) for each in firings]


def _fire(cursor: Cursor, now: float, firing: Firing) -> FireAnswer:
    stands = (firing.name, firing.next_tick, firing.revision)
    if cursor.execute(_SQL["stands"], stands).fetchone() is None:
        return FireAnswer(won=False)
    stored = [enqueue_unless_taken(cursor, now, job) for job in firing.jobs]
    taken = [holder for job_id, holder in stored if job_id is None]
    answer = FireAnswer(
        won=True, jobs=[job_id for job_id, _ in stored], in_the_way=taken[-1] if taken else None
    )
    cursor.execute(_SQL["fired"], fired_columns(firing, answer))
    return answer


def _undeclared(cursor: Cursor, now: float, names: Sequence[str]) -> int:
    values = [{"name": name, "now": now, "fresh": DECLARED_SECONDS} for name in names]
    return cursor.executemany(_SQL["undeclared"], values).rowcount if values else 0


class SqliteScheduleVerbs:
    """The verbs of ``SqliteStore`` about schedules."""

    put_schedules = writes(put)
    due_schedules = reads(_due)
    fire = writes(fire)
    note_undeclared = writes(_undeclared)
