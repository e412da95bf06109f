"""Read what a run has left behind, and find where two runs differ."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from outlast.testing.crashes.cases import Fate
from outlast.testing.crashes.databases import REAL_CONNECT, name_rows
from outlast.testing.crashes.files import REAL_OPEN
from outlast.testing.crashes.recorder import name_jobs

ROWS_MAX = 100_000  # of a table; the others are not compared
COMPARED = "--compare"  # as a database is named
_MAGIC = b"SQLite format 3\0"
_BESIDE = ("-wal", "-shm", "-journal")
Row = tuple[Any, ...]
Effect = tuple[str, str, str]  # its kind, the database of rows, and its name there


class EndState(msgspec.Struct, kw_only=True):
    """What a run has left behind. ``error``: why the job did not complete; ``effects``: rows, with
    the names of their ``columns``, sizes and hashes of files, requests, jobs, each with a count."""

    state: str = ""
    error: str = ""
    effects: dict[Effect, Counter[Row]] = {}
    columns: dict[Effect, list[str]] = {}

    def count(self, kind: str, numbers: Mapping[str, int]) -> None:
        """Note how often something was done."""
        self.effects |= {(kind, "", name): Counter({(): n}) for name, n in numbers.items()}

    def share(self, other: EndState) -> None:
        """Keep what is as in the other state only once."""
        for effect, rows in self.effects.items():
            if other.effects.get(effect) == rows:
                self.effects[effect] = other.effects[effect]


class Difference(NamedTuple):
    """How a run differs: kind and name of the effect, how often it happened, database of rows."""

    kind: str
    effect: str
    times: str
    is_more: bool = False
    database: str = ""


def read_files(folder: Path, store: Path) -> EndState:
    """Return the state of the files in a folder, with the tables of SQLite files among them."""
    end = EndState()
    locks = store.with_name(f"{store.name}-locks")
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name.endswith(_BESIDE) or path.is_relative_to(locks):
            continue
        name = str(path.relative_to(folder))
        with REAL_OPEN(path, "rb") as file:
            data = file.read()
        if data.startswith(_MAGIC):
            _read_tables(path, name, end)
        else:
            end.effects["file", "", name] = Counter([(len(data), sha256(data).digest())])
    return end


def _read_tables(path: Path, database: str, end: EndState) -> None:
    with closing(REAL_CONNECT(path)) as connection:
        found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        for (name,) in found:
            if name.startswith(("outlast_", "sqlite_")):
                continue
            quoted = name.replace('"', '""')
            try:
                cursor = connection.execute(f'SELECT * FROM "{quoted}" LIMIT {ROWS_MAX}')  # noqa: S608
                rows = Counter(cursor.fetchall())
            except sqlite3.Error:  # a virtual table whose module is not loaded
                continue
            end.effects["commit", database, name] = rows
            end.columns["commit", database, name] = [each[0] for each in cursor.description]


def find_mask(first: EndState, last: EndState) -> dict[Effect, list[int]]:
    """Return the effects that differ between two runs without a crash, and so show nothing, with
    the places of the columns that alone differ, if so."""
    mask = {}
    for effect in {*first.effects, *last.effects}:
        before, after = (each.effects.get(effect, Counter()) for each in (first, last))
        if before != after:
            places = range(len(first.columns.get(effect, ())))
            is_like = before.total() == after.total()
            mask[effect] = [at for at in places if is_like and _of(before, at) != _of(after, at)]
    return mask


def _of(rows: Counter[Row], place: int) -> Counter[Any]:
    return Counter(row[place] for row in rows.elements())


def describe_mask(mask: dict[Effect, list[int]], columns: dict[Effect, list[str]]) -> list[str]:
    """Say what is not compared."""
    names = {
        name
        for effect, places in mask.items()
        for name in [f"{effect[2]}.{columns[effect][at]}" for at in places] or [effect[2]]
    }
    told = "not compared, since it differs between two runs without a crash: "
    return [told + ", ".join(sorted(names))] if names else []


def compare(
    base: EndState, end: EndState, fate: Fate, mask: dict[Effect, list[int]]
) -> Iterator[Difference]:
    """Yield how a run differs from the one without a crash. A cancelled job may leave work out:
    only effects that happened too often count."""
    is_whole = fate is not Fate.CANCELLED
    if end.state != "completed" and (is_whole or end.state != "cancelled"):
        yield Difference("job", "the job", f"{end.state}: {end.error}")
        return  # what is missing follows from that
    for effect in sorted({*base.effects, *end.effects}):
        places = mask.get(effect)
        was, now = (_without(each.effects.get(effect, Counter()), places) for each in (base, end))
        kind, is_more = effect[0], now.total() > was.total()
        if places == [] or was == now or not (is_whole or (is_more and kind != "file")):
            continue
        yield Difference(kind, _name(effect), _times(kind, was, now), is_more, effect[1])


def _without(rows: Counter[Row], places: list[int] | None) -> Counter[Row]:
    if not places:
        return rows
    found: Counter[Row] = Counter()
    for row, number in rows.items():
        found[tuple(each for at, each in enumerate(row) if at not in places)] += number
    return found


def _name(effect: Effect) -> str:
    kind, database, name = effect
    if kind == "enqueue":
        return name_jobs(name.partition("(")[0])
    if database == COMPARED:
        return f"{name} of {database}"
    return name_rows(name, database) if kind == "commit" else name


def _times(kind: str, was: Counter[Row], now: Counter[Row]) -> str:
    count, of = now.total(), was.total()
    if kind == "commit":
        return f"{count} rows, not {of}" if count != of else f"{(now - was).total()} rows differ"
    if kind != "file":
        return f"{count} times, not {of}"
    if count != of:
        return "left behind" if count else "missing"
    ((before, _),), ((after, _),) = was, now
    size = after - before
    return f"{abs(size)} bytes {'more' if size > 0 else 'fewer'}" if size else "other bytes"
