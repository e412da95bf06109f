"""Makes, checks and migrates the schema of a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from sqlite3 import Cursor
from typing import Any

from outlast.store.migrations import Applied, Step, check_history, check_noted, load, pending
from outlast.store.sqlite.statements import statements
from outlast.store.values import Migration

_SQL = statements("migrate")
DIALECT = "sqlite"


def applied(cursor: Cursor, _: float = 0.0) -> list[Applied]:
    """Return the steps on this file. SchemaMismatch if it has tables and no record of the steps."""
    has_schema, has_jobs = cursor.execute(_SQL["tables"]).fetchone()
    found = []
    if has_schema:
        found = [Applied(*row) for row in cursor.execute(_SQL["applied"]).fetchall()]
    check_noted(found, has_jobs=has_jobs)
    return found


def store_id(cursor: Any) -> str | None:
    if not cursor.execute(_SQL["tables"]).fetchone()[0]:
        return None
    row = cursor.execute(_SQL["store_id"]).fetchone()
    return None if row is None else bytes(row[0]).decode()


def migrate(cursor: Cursor, now: float) -> list[Migration]:
    """Apply missing steps inside the transaction that is open; return these steps. SchemaMismatch,
    before any change, if this program may not migrate the file."""
    steps, before = load(DIALECT), applied(cursor)
    check_history(steps, before)
    missing = pending(steps, before)
    for step in missing:
        _apply(cursor, step, now)
    return [Migration(step.number, step.name, now) for step in missing]


def _apply(cursor: Cursor, step: Step, now: float) -> None:
    for statement in _split(step.sql):
        cursor.execute(statement)
    row = {"number": step.number, "name": step.name, "checksum": step.checksum}
    row |= {"compatible_from": step.compatible_from, "now": now}
    cursor.execute(_SQL["note"], row)


def _split(script: str) -> Iterator[str]:
    """Yield the statements of a script; ``executescript`` would commit first."""
    part = ""
    for line in script.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            yield part
            part = ""
    if part.strip():
        yield part
