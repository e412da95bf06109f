"""Read what a run has left behind, and find where two runs differ."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
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
_MAGIC = b"SQLite format 3\0"
COMPARED = ("--compare", "lines")  # as a table is named
_BESIDE = ("-wal", "-shm", "-journal")
Row = tuple[Any, ...]


class Table(msgspec.Struct):
    """The rows of a table."""

    columns: list[str]
    rows: list[Row]


class EndState(msgspec.Struct, kw_only=True):
    """What a run has left behind. ``jobs``: those that it enqueued; ``error``: why the job did not
    complete."""

    state: str
    error: str = ""
    files: dict[str, tuple[int, bytes]] = {}  # size and hash
    tables: dict[tuple[str, str], Table] = {}
    requests: Counter[str] = msgspec.field(default_factory=Counter)
    jobs: Counter[str] = msgspec.field(default_factory=Counter)

    def share(self, other: EndState) -> None:
        """Keep the rows of tables that are as in the other state only once."""
        for key, table in self.tables.items():
            if other.tables.get(key) == table:
                self.tables[key] = other.tables[key]


class Difference(NamedTuple):
    """How a run differs: the kind of effect, its name in the report, how often it happened, and the
    database of rows."""

    kind: str
    effect: str
    times: str
    is_more: bool = False
    database: str = ""


class Mask(msgspec.Struct):
    """What differs between two runs without a crash, and so shows nothing."""

    files: set[str] = set()
    columns: set[tuple[str, str, str]] = set()
    tables: set[tuple[str, str]] = set()
    counts: set[str] = set()

    def describe(self) -> list[str]:
        """Say what is not compared."""
        names = [*self.files, *(f"{table}.{column}" for _, table, column in self.columns)]
        names += [*(table for _, table in self.tables), *self.counts]
        told = "not compared, since it differs between two runs without a crash: "
        return [told + ", ".join(sorted(names))] if names else []


def read_files(folder: Path, store: Path) -> EndState:
    """Return the state of the files in a folder, with the tables of SQLite files among them."""
    end = EndState(state="")
    locks = store.with_name(f"{store.name}-locks")
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name.endswith(_BESIDE) or path.is_relative_to(locks):
            continue
        name = str(path.relative_to(folder))
        with REAL_OPEN(path, "rb") as file:
            data = file.read()
        if data.startswith(_MAGIC):
            end.tables |= {(name, table): rows for table, rows in _read_tables(path)}
        else:
            end.files[name] = (len(data), sha256(data).digest())
    return end


def _read_tables(path: Path) -> Iterator[tuple[str, Table]]:
    with closing(REAL_CONNECT(path)) as connection:
        found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        for (name,) in found:
            if name.startswith(("outlast_", "sqlite_")):
                continue
            quoted = name.replace('"', '""')
            try:
                cursor = connection.execute(f'SELECT * FROM "{quoted}" LIMIT {ROWS_MAX}')  # noqa: S608
                rows = cursor.fetchall()
            except sqlite3.Error:  # a virtual table whose module is not loaded
                continue
            yield name, Table([each[0] for each in cursor.description], rows)


def find_mask(first: EndState, last: EndState) -> Mask:
    """Return what differs between two runs without a crash."""
    mask = Mask()
    mask.files = {name for name in first.files if first.files[name] != last.files.get(name)}
    mask.counts = {
        name
        for before, after in ((first.requests, last.requests), (first.jobs, last.jobs))
        for name in {*before, *after}
        if before[name] != after[name]
    }
    for key, table in first.tables.items():
        other = last.tables.get(key)
        if other is None or len(other.rows) != len(table.rows):
            mask.tables.add(key)
            continue
        for at, column in enumerate(table.columns):
            if Counter(row[at] for row in table.rows) != Counter(row[at] for row in other.rows):
                mask.columns.add((*key, column))
    return mask


def compare(base: EndState, end: EndState, fate: Fate, mask: Mask) -> Iterator[Difference]:
    """Yield how a run differs from the one without a crash. Of a cancelled job only effects that
    happened too often count: it may leave work out, or half done."""
    is_whole = fate is not Fate.CANCELLED
    if end.state != "completed" and (is_whole or end.state != "cancelled"):
        yield Difference("job", "the job", f"{end.state}: {end.error}")
        return  # what is missing follows from that
    for difference in (
        *_compare_tables(base, end, mask),
        *_compare_files(base, end, mask),
        *_compare_counts("request", base.requests, end.requests, mask),
        *_compare_counts("enqueue", base.jobs, end.jobs, mask),
    ):
        if is_whole or (difference.is_more and difference.kind != "file"):
            yield difference


def _compare_tables(base: EndState, end: EndState, mask: Mask) -> Iterator[Difference]:
    for key in sorted({*base.tables, *end.tables} - mask.tables):
        name, table = key
        before, after = base.tables.get(key), end.tables.get(key)
        was, now = _rows_of(before, key, mask), _rows_of(after, key, mask)
        if was == now:
            continue
        count, of = now.total(), was.total()
        times = f"{count} rows, not {of}" if count != of else f"{(now - was).total()} rows differ"
        effect = " of ".join(reversed(key)) if key == COMPARED else name_rows(table, name)
        yield Difference("commit", effect, times, count > of, name)


def _rows_of(table: Table | None, key: tuple[str, str], mask: Mask) -> Counter[Row]:
    """Return the rows without the columns that are masked."""
    if table is None:
        return Counter()
    kept = [at for at, name in enumerate(table.columns) if (*key, name) not in mask.columns]
    return Counter(tuple(row[at] for at in kept) for row in table.rows)


def _compare_files(base: EndState, end: EndState, mask: Mask) -> Iterator[Difference]:
    for name in sorted({*base.files, *end.files} - mask.files):
        before, after = base.files.get(name), end.files.get(name)
        if before == after:
            continue
        if before is None or after is None:
            times = "missing" if after is None else "left behind"
        else:
            size = after[0] - before[0]
            times = (
                f"{abs(size)} bytes {'more' if size > 0 else 'fewer'}" if size else "other bytes"
            )
        yield Difference("file", name, times, before is None)


def _compare_counts(
    kind: str, base: Counter[str], end: Counter[str], mask: Mask
) -> Iterator[Difference]:
    for name in sorted({*base, *end} - mask.counts):
        if base[name] != end[name]:
            effect = name_jobs(name.partition("(")[0]) if kind == "enqueue" else name
            times = f"{end[name]} times, not {base[name]}"
            yield Difference(kind, effect, times, end[name] > base[name])
