"""Finds ids of jobs for a list: by an index where one knows the state, else by a bounded walk."""

from __future__ import annotations

from sqlite3 import Cursor
from typing import Any

import msgspec

from outlast.model.job import State
from outlast.store.columns import ID_MAX, ID_MIN
from outlast.store.listing import page, rows_of
from outlast.store.rows import JobFilter, JobIds
from outlast.store.searching import Searched
from outlast.store.statements import statements

_SQL = statements("sqlite", "find_jobs")
_INSPECT = statements("sqlite", "inspect")
_SNAPSHOT = statements("sqlite", "transaction")


def find_ids(cursor: Cursor, which: JobFilter) -> JobIds:
    """Return what one look finds (sqlite/sql/find_jobs.sql), in one snapshot."""
    values = msgspec.structs.asdict(which) | {"rows": rows_of(which)}
    values["last"] = ID_MAX if which.before_id is None else which.before_id - 1
    kind = _kind(which)
    cursor.execute(_SNAPSHOT["snapshot"])
    try:
        if kind == "queued" and _is_long(cursor, which, values):
            kind = "all"
        if kind == "all":
            return _walk(cursor, which, values)
        floor = _floor(cursor, kind, values)
        rows = cursor.execute(
            _SQL[kind], values | {"floor": ID_MIN if floor is None else floor}
        ).fetchall()
    finally:
        cursor.execute(_SNAPSHOT["rollback"])
    return page([row[0] for row in rows], which.limit, floor)


def _walk(cursor: Cursor, which: JobFilter, values: dict[str, Any]) -> JobIds:
    """Return what is found among the next rows by id; where it is less than what is asked for, with
    the id down to which they go: that reads all of them."""
    ids = [row[0] for row in cursor.execute(_SQL["all"], values)]
    floor = None if len(ids) >= which.limit else _floor(cursor, "all", values)
    return page(ids, which.limit, floor)


def _kind(which: JobFilter) -> str:
    if which.label is not None:
        return "label"
    if which.state in {State.RUNNING, State.DEAD}:
        return str(which.state)
    return "queued" if which.state is State.QUEUED and which.tenant is None else "all"


def _is_long(cursor: Cursor, which: JobFilter, values: dict[str, Any]) -> bool:
    """Whether this part of the queue has more rows than a look may read: it is walked by id then,
    which soon finds some, since they are many."""
    return bool(cursor.execute(_SQL["queued_more"], values).fetchone()[0])


def _floor(cursor: Cursor, kind: str, values: dict[str, Any]) -> int | None:
    """Return the id of the last row that is looked at; None: all are."""
    statement = _SQL.get(f"{kind}_floor")
    row = None if statement is None else cursor.execute(statement, values).fetchone()
    return None if row is None else int(row[0])


def search(cursor: Cursor, values: dict[str, Any], size_max: int) -> Searched:
    """Return what one look finds at the jobs of ``values["ids"]``, newest first."""
    found: list[int] = []
    last, size = None, 0
    for job_id, length, holds in cursor.execute(_INSPECT["search"], values):
        if last is not None and size + length > size_max:
            return Searched(ids=found, before=last, size=size)
        last, size = job_id, size + length
        if holds:
            found.append(job_id)
    return Searched(ids=found, size=size)
