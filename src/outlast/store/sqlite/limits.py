"""Declares, sets and holds limits on SQLite, and takes what is spent. Plain functions of a cursor,
under the write lock (sql/limits.sql).
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Cursor
from typing import Any

import msgspec

from outlast.errors import BadData
from outlast.model.lifecycle import Transition
from outlast.model.limits import LimitSpec, needs_of, permit_id, seconds_ahead, spec_of
from outlast.store.limits import (
    DeclaredTask,
    Hold,
    Miscounted,
    NewLimit,
    SetLimit,
    in_force,
    with_own,
)
from outlast.store.sqlite.refusals import refuse
from outlast.store.sqlite.statements import statements
from outlast.store.values import Answer

_SQL = statements("limits")
_encode = msgspec.json.Encoder().encode


def find_news(
    cursor: Cursor, _: float, limits: Sequence[NewLimit], tasks: Sequence[DeclaredTask]
) -> tuple[list[NewLimit], list[DeclaredTask]]:
    """Return the limits and tasks whose declaration is missing or different in the store."""
    rows = cursor.execute(_SQL["declared"], {"names": _text([new.name for new in limits])})
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
    """Store the declarations of limits and tasks."""
    cursor.executemany(_SQL["declare_task"], map(_task_row, tasks))
    rows = cursor.execute(_SQL["declared"], {"names": _text([new.name for new in limits])})
    own = {name: spec_of(text) for name, _, text in rows}
    _put(
        cursor,
        now,
        [(it.name, _text(it.spec), in_force(it.spec, own.get(it.name))) for it in limits],
    )


def set_limit(cursor: Cursor, now: float, new: SetLimit) -> bool:
    """Set a limit, or one key of it."""
    row = cursor.execute(_SQL["limit"], {"name": new.name}).fetchone()
    if row is None:
        return False
    declared, own, _ = row
    if new.key is not None:
        values = {"permit": _make_permit(cursor, new.name, new.key), "running": new.running}
        cursor.execute(_SQL["set_key"], values | {"reset": new.reset})
        cursor.execute(_SQL["mark_one"], values)
        return True
    if new.reset:
        cursor.execute(_SQL["reset_keys"], {"name": new.name})
    changed = with_own(None if new.reset else spec_of(own), new)
    text = None if changed is None else _text(changed)
    cursor.execute(_SQL["set"], {"name": new.name, "own": text})
    _put(cursor, now, [(new.name, None, in_force(spec_of(declared), changed))])
    return True


def hold_limit(cursor: Cursor, now: float, hold: Hold) -> bool:
    """Hold a permit, or all permits of a limit, for a while; or let them go."""
    row = cursor.execute(_SQL["limit"], {"name": hold.name}).fetchone()
    if row is None:
        return False
    *_, per = row
    until = now + hold.seconds if hold.seconds > 0 else None
    if per is not None and not hold.key:
        values = {"name": hold.name, "until": until, "seconds": hold.seconds}
        cursor.execute(_SQL["hold_all"], values)
        cursor.execute(_SQL["mark"], {"names": _text([hold.name])})
        return True
    values = {"permit": _make_permit(cursor, hold.name, hold.key), "until": until, "now": now}
    cursor.execute(_SQL["hold"], values)
    cursor.execute(_SQL["mark_one"], values)
    return True


def throttle(cursor: Cursor, now: float, ended: Sequence[Transition]) -> None:
    """Let nothing start for a while under the permits that these accepted ends have found
    exhausted. A longer hold stays."""
    for end in ended:
        row = cursor.execute(_SQL["needs_of_job"], {"job_id": end.job_id}).fetchone()
        needs = needs_of(None if row is None else row[0])
        for permit in (need.permit for need in needs if need.name == end.throttles):
            values = {"permit": permit, "until": now + end.delay, "now": now}
            cursor.execute(_SQL["hold_longer"], values)
            cursor.execute(_SQL["mark_one"], values)


def find_wrong(cursor: Cursor, now: float, settled: float) -> tuple[list[Any], list[Any]]:
    """Return the permits whose count is wrong, and the limits that are held for too long."""
    return (
        cursor.execute(_SQL["wrong"], {"now": now, "settled": settled}).fetchall(),
        cursor.execute(_SQL["held_too_long"], {"now": now}).fetchall(),
    )


def recount(cursor: Cursor, now: float, settled: float) -> list[Miscounted]:
    """Set the counts of permits right, and begin again what a clock that was ahead has held."""
    miscounted, held = find_wrong(cursor, now, settled)
    for name, seconds in held:
        hold_limit(cursor, now, Hold(name, "", seconds))
    wrong = []
    for permit, name, key, counted, holders in miscounted:
        cursor.execute(_SQL["recount"], {"permit": permit, "used": holders, "now": now})
        cursor.execute(_SQL["mark_recounted"], {"name": name, "now": now})
        wrong.append(Miscounted(name=name, key=key, counted=counted, holders=holders))
    return wrong


def spend(cursor: Cursor, now: float, job_id: int, token: int, name: str, cost: float) -> Answer:
    """Take more of a rate for a running attempt."""
    row = cursor.execute(_SQL["needs"], {"job_id": job_id, "token": token}).fetchone()
    if row is None:
        return refuse(cursor, now, job_id, token, "spend")
    permit = next((need.permit for need in needs_of(row[0]) if need.name == name), None)
    if permit is None:
        raise BadData(f"job {job_id} is not under a limit called {name!r}")
    values: dict[str, Any] = {"permit": permit}
    found = cursor.execute(_SQL["rate"], values).fetchone()
    tat, touched_at, spacing = found or (0.0, 0.0, None)
    if spacing:
        ahead = seconds_ahead(tat=tat, touched_at=touched_at, now=now) + cost * spacing
        cursor.execute(_SQL["spend"], values | {"tat": now + ahead, "now": now})
    return Answer.ACCEPTED


def _put(cursor: Cursor, now: float, limits: Sequence[tuple[str, str | None, LimitSpec]]) -> None:
    """Write the declarations (None: as they are) and the values in force."""
    rows = [
        (name, text, spec.running, spec.spacing, spec.burst, spec.per)
        for name, text, spec in limits
    ]
    cursor.execute(_SQL["keep_pace"], {"rows": _text(rows), "now": now})
    cursor.execute(_SQL["put"], {"rows": _text(rows)})
    cursor.execute(_SQL["mark"], {"names": _text([name for name, *_ in limits])})


def _make_permit(cursor: Cursor, name: str, key: str) -> int:
    permit = permit_id(name, key)
    cursor.execute(_SQL["make_permit"], {"permit": permit, "name": name, "key": key})
    return permit


def _task_row(task: DeclaredTask) -> tuple[Any, ...]:
    return task.name, _text(task.limits), task.fair, task.aging, task.priority


def _text(value: Any) -> str:
    return _encode(value).decode()
