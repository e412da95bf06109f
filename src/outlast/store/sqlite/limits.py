"""Declares, sets, holds and spends limits on SQLite. Plain functions of a cursor,
under the write lock (sql/limits.sql).
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Cursor
from typing import Any

import msgspec

from outlast.errors import BadData
from outlast.model.lifecycle import Transition
from outlast.model.limits import LimitSpec, needs_of, seconds_ahead, spec_of
from outlast.store.limits import DeclaredTask, Miscounted, NewLimit, in_force
from outlast.store.sqlite.refusals import refuse
from outlast.store.sqlite.statements import statements
from outlast.store.values import Answer

_SQL = statements("limits")
_encode = msgspec.json.Encoder().encode


def find_news(
    cursor: Cursor, _: float, limits: Sequence[NewLimit], tasks: Sequence[DeclaredTask]
) -> tuple[list[NewLimit], list[DeclaredTask]]:
    """Return the declarations that the store lacks or knows differently."""
    rows = cursor.execute(_SQL["known"], {"names": _text([new.name for new in limits])})
    declared = {name: text for name, text, _ in rows}
    names = {"names": _text([task.name for task in tasks])}
    known = set(cursor.execute(_SQL["known_tasks"], names))
    return (
        [new for new in limits if declared.get(new.name) != _text(new.spec)],
        [task for task in tasks if _task_row(task) not in known],
    )


def declare_limits(
    cursor: Cursor, now: float, limits: Sequence[NewLimit], tasks: Sequence[DeclaredTask]
) -> None:
    cursor.executemany(_SQL["declare_task"], map(_task_row, tasks))
    rows = cursor.execute(_SQL["known"], {"names": _text([new.name for new in limits])})
    own = {name: spec_of(text) for name, _, text in rows}
    _put(
        cursor,
        now,
        [(it.name, _text(it.spec), in_force(it.spec, own.get(it.name))) for it in limits],
    )


def put_limit(
    cursor: Cursor, now: float, name: str, declared: str | None, own: LimitSpec | None
) -> None:
    text = None if own is None else _text(own)
    cursor.execute(_SQL["set"], {"name": name, "own": text})
    _put(cursor, now, [(name, None, in_force(spec_of(declared), own))])


def throttle(cursor: Cursor, now: float, ended: Sequence[Transition]) -> None:
    """Hold the permits that these ends have found exhausted. A longer hold stays."""
    for end in ended:
        row = cursor.execute(_SQL["needs_of_job"], {"job_id": end.job_id}).fetchone()
        needs = needs_of(None if row is None else row[0])
        for permit in (need.permit for need in needs if need.name == end.throttles):
            values = {"permit": permit, "until": now + end.delay, "now": now}
            cursor.execute(_SQL["hold_longer"], values)
            cursor.execute(_SQL["mark_one"], values)


def find_wrong(cursor: Cursor, now: float, settled: float) -> tuple[list[Any], list[Any]]:
    return (
        cursor.execute(_SQL["wrong"], {"now": now, "settled": settled}).fetchall(),
        cursor.execute(_SQL["held_too_long"], {"now": now}).fetchall(),
    )


def recount(cursor: Cursor, now: float, settled: float) -> list[Miscounted]:
    miscounted, held = find_wrong(cursor, now, settled)
    for name, seconds in held:
        cursor.execute(_SQL["hold_all"], {"name": name, "seconds": seconds, "now": now})
    cursor.execute(_SQL["mark"], {"names": _text([name for name, _ in held])})
    wrong = []
    for permit, name, key, counted, holders in miscounted:
        cursor.execute(_SQL["recount"], {"permit": permit, "used": holders, "now": now})
        cursor.execute(_SQL["mark_recounted"], {"name": name, "now": now})
        wrong.append(Miscounted(name=name, key=key, counted=counted, holders=holders))
    return wrong


def spend(cursor: Cursor, now: float, job_id: int, token: int, name: str, cost: float) -> Answer:
    row = cursor.execute(_SQL["needs"], {"job_id": job_id, "token": token}).fetchone()
    if row is None:
        return refuse(cursor, now, job_id, token, "spend")
    permit = next((need.permit for need in needs_of(row[0]) if need.name == name), None)
    if permit is None:
        raise BadData(f"job {job_id} was enqueued without limits=[{name}]")
    values: dict[str, Any] = {"permit": permit}
    found = cursor.execute(_SQL["rate"], values).fetchone()
    tat, touched_at, spacing = found or (0.0, 0.0, None)
    if spacing:
        ahead = seconds_ahead(tat=tat, touched_at=touched_at, now=now) + cost * spacing
        cursor.execute(_SQL["spend"], values | {"tat": now + ahead, "now": now})
    return Answer.ACCEPTED


def _put(cursor: Cursor, now: float, limits: Sequence[tuple[str, str | None, LimitSpec]]) -> None:
    """Write declarations (None: as they are) and the values in force."""
    rows = [
        (name, text, spec.running, spec.spacing, spec.burst, spec.per)
        for name, text, spec in limits
    ]
    cursor.execute(_SQL["keep_pace"], {"rows": _text(rows), "now": now})
    cursor.execute(_SQL["put"], {"rows": _text(rows)})
    cursor.execute(_SQL["mark"], {"names": _text([name for name, *_ in limits])})


def _task_row(task: DeclaredTask) -> tuple[Any, ...]:
    return task.name, _text(task.limits), task.fair, task.aging, task.priority


def _text(value: Any) -> str:
    return _encode(value).decode()
