r"""Defines the rules of schema migrations, the same for every store; pure, the stores run the SQL.

A migration is a file ``DIALECT/sql/migration_NNNN_name.sql``; a line ``\ir functions/NAME_v1.sql``
in it includes that file, as in psql. Steps are numbered from 1 without gaps and go forward only. A
released step never changes, nor do its files: the store keeps the checksum of the whole text. A
function that changes gets a new name, ``NAME_v2``, in a new step.

Each step names, in a comment line ``-- compatible_from: 0.1``, the oldest program that still works
on a schema that has it. So a rolling upgrade is: migrate first, then restart one by one; a program
meets a schema newer than itself and refuses only if that schema says so.

On PostgreSQL a step may be the one statement ``CREATE INDEX CONCURRENTLY NAME …``, which cannot be
part of a transaction. It builds the index of a large table while others write to it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import msgspec

from outlast.errors import SchemaMismatch
from outlast.store.backend import describe_place
from outlast.store.values import Migration

PROGRAM_VERSION = "0.1"
"""The minor version of this program, as ``compatible_from`` is compared with it."""

_FILE = re.compile(r"migration_(\d{4})_(\w+)\.sql")
_INCLUDE = re.compile(r"^\\ir (\S+)$", re.MULTILINE)
_CONCURRENT = r"\s*CREATE (?:UNIQUE )?INDEX CONCURRENTLY (\w+) ON [^;]+;\s*"
_COMMENT = r"(?m)^\s*--.*$"
_COMPATIBLE_FROM = re.compile(r"^-- compatible_from: (\d+(?:\.\d+)*)$", re.MULTILINE)


class Step(msgspec.Struct, frozen=True):
    """One migration of this program, including the files that it includes. ``checksum`` is the
    SHA-256 of ``sql``, in hex. ``index``: the one that it builds while others write, if it does."""

    number: int
    name: str
    sql: str
    checksum: str
    compatible_from: str
    index: str | None = None


class Applied(msgspec.Struct, frozen=True):
    """One row of the table ``outlast_schema``. ``applied_at`` is in seconds since 1970;
    ``store_id``: in the first row."""

    number: int
    name: str
    checksum: str
    compatible_from: str
    applied_at: float
    store_id: str | None = None


@cache
def load(dialect: str) -> Sequence[Step]:
    """Return the steps in ``DIALECT/sql``, in order."""
    return read(Path(__file__).parent / dialect / "sql")


def read(folder: Path) -> Sequence[Step]:
    """Return the steps in a folder, in order. ValueError if they are not numbered 1, 2, 3 …, lack
    ``compatible_from`` or include a missing file.
    """
    names = sorted(entry.name for entry in folder.iterdir() if _FILE.fullmatch(entry.name))
    steps = tuple(step_of(name, _expanded(folder, name)) for name in names)
    if [step.number for step in steps] != list(range(1, len(steps) + 1)):
        raise ValueError(f"the migrations in {folder} are not numbered 1, 2, 3 …")
    return steps


def _expanded(folder: Path, file_name: str) -> str:
    """Return the text of a migration with the files that it includes."""

    def included(line: re.Match[str]) -> str:
        try:
            return _text_of(folder, line[1])
        except FileNotFoundError:
            raise ValueError(f"{file_name} includes {line[1]}, and there is no such file") from None

    return _INCLUDE.sub(included, _text_of(folder, file_name))


def _text_of(folder: Path, name: str) -> str:
    """Return a text, in which all lines end with a newline: of a hundred files at each start."""
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read()


def step_of(file_name: str, sql: str) -> Step:
    """Return the step in a file."""
    named = _FILE.fullmatch(file_name)
    compatible = _COMPATIBLE_FROM.search(sql)
    if named is None or compatible is None:
        raise ValueError(f"{file_name} is not a migration, or names no compatible_from")
    code = re.sub(_COMMENT, "", sql) if "CONCURRENTLY" in sql else ""
    concurrent = re.fullmatch(_CONCURRENT, code)
    if concurrent is None and "CONCURRENTLY" in code:
        raise ValueError(
            f"{file_name} has CONCURRENTLY among other statements: `CREATE INDEX CONCURRENTLY NAME"
            " ON …` must be a migration of its own"
        )
    checksum = hashlib.sha256(sql.encode()).hexdigest()
    index = None if concurrent is None else concurrent[1]
    return Step(int(named[1]), named[2], sql, checksum, compatible[1], index)


def pending(steps: Sequence[Step], applied: Iterable[Applied]) -> list[Step]:
    """Return the steps that the store lacks, in the order in which to apply them."""
    done = {row.number for row in applied}
    return [step for step in steps if step.number not in done]


def check_history(steps: Sequence[Step], applied: Iterable[Applied]) -> None:
    """Raise SchemaMismatch unless this program may migrate or use a store with these rows: every
    step that both know is the same, and the schema still serves this program.
    """
    known = {step.number: step for step in steps}
    for row in applied:
        step = known.get(row.number)
        if step is not None and step.checksum != row.checksum:
            raise SchemaMismatch(
                f"migration {row.number:04} ({row.name}) of this store is not the one that this"
                " program knows: the store was made by another build of Outlast; use that one, or"
                " another store"
            )
        if _version(row.compatible_from) > _version(PROGRAM_VERSION):
            raise SchemaMismatch(
                f"the schema of this store serves Outlast {row.compatible_from} and later; this is"
                f" {PROGRAM_VERSION}: install a newer Outlast"
            )


def check_noted(applied: Sequence[Applied], *, has_jobs: bool) -> None:
    """Raise SchemaMismatch if there are tables and no record of the steps that made them."""
    if has_jobs and not applied:
        raise SchemaMismatch(
            "there is a table outlast_jobs, but no row in outlast_schema that says what made it:"
            " the tables are not of this program, or are damaged; restore a backup, move them away,"
            " or use another store (another file, another search_path)"
        )


def check_made(url: str, applied: Sequence[object]) -> None:
    """Raise SchemaMismatch if the store has no schema yet."""
    if not applied:
        place = describe_place(url)
        raise SchemaMismatch(f"{place} is not an Outlast store yet: `outlast migrate` makes it one")


def check_same(applied: Sequence[Applied], only: str | None) -> None:
    """Raise SchemaMismatch if the store has another id than this; None: any will do."""
    if only is not None and only not in [row.store_id for row in applied]:
        raise SchemaMismatch(
            "this connection leads to another store than the worker's: a variable such as"
            " $PGDATABASE, set by a task, affects all its connections; set it for a child process"
            " only"
        )


def check_usable(steps: Sequence[Step], applied: Sequence[Applied]) -> None:
    """As ``check_history``, and raise SchemaMismatch while steps are pending."""
    check_history(steps, applied)
    if missing := pending(steps, applied):
        names = ", ".join(f"{step.number:04} {step.name}" for step in missing)
        raise SchemaMismatch(
            f"the schema of this store lacks {names}: run `outlast migrate` (it is safe while"
            " older workers run)"
        )


def known(steps: Sequence[Step], applied: Sequence[Applied]) -> list[Migration]:
    """Return all steps, known to this program or applied, in order."""
    names = {row.number: row.name for row in applied}
    names |= {step.number: step.name for step in steps}
    at = {row.number: row.applied_at for row in applied}
    return [Migration(number, names[number], at.get(number)) for number in sorted(names)]


def _version(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split("."))
    except ValueError:
        raise SchemaMismatch(
            f"a row of outlast_schema names {text!r} as the oldest program that may use this store,"
            " which is not a version: the row was changed or damaged; restore a backup"
        ) from None
