"""Rows of random content, as any program may write them into the tables: they stop no verb and no
document."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from harness.stores import opened
from outlast.model.crash import Crash, Progress
from outlast.model.job import Policy
from tests.conformance.hostile_kit import VALUES, Raw, raw, shows, victims, works_on
from tests.conformance.test_hostile_rows import ATTEMPTS, JOBS, WORKERS
from tests.fuzz.kit import INT64, SECONDS, Fuzzer, json_values

COLUMNS = [
    *(("outlast_jobs", "id", column) for column in JOBS),
    *(("outlast_attempts", "job_id", column) for column in ATTEMPTS),
    *(("outlast_workers", "id", column) for column in WORKERS),
]
Spoils = list[tuple[tuple[str, str, str], str]]


def _alike(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """JSON with the names of a struct of ours, and anything behind them."""
    fields: dict[str, st.SearchStrategy[Any]] = dict.fromkeys(kind.__struct_fields__, json_values)
    return st.fixed_dictionaries({}, optional=fields)


texts = st.one_of(
    st.text(max_size=50),
    st.builds(json.dumps, st.one_of(json_values, _alike(Policy), _alike(Progress), _alike(Crash))),
    st.builds(lambda depth, open_: open_ * depth, st.integers(1, 20_000), st.sampled_from("[{")),
)
values = st.one_of(
    st.none(), st.integers(-INT64, INT64 - 1), st.floats(), st.binary(max_size=20), texts
)


def literals(dialect: str) -> st.SearchStrategy[str]:
    """Values as SQL has them."""
    write = _sqlite if dialect == "sqlite" else _postgres
    return st.sampled_from(VALUES[dialect]) | values.map(write)


def _sqlite(value: Any) -> str:
    if isinstance(value, bytes):
        return f"CAST(x'{value.hex()}' AS TEXT)" if len(value) % 2 else f"x'{value.hex()}'"
    if isinstance(value, float):
        return "NULL" if value != value else repr(value).replace("inf", "9e999")  # noqa: PLR0124
    return str(value) if isinstance(value, int) else _quoted(value)


def _postgres(value: Any) -> str:
    return _quoted(None if value is None else str(value))


def _quoted(text: str | None) -> str:
    if text is None:
        return "NULL"
    clean = text.encode("utf-8", "replace").decode().replace("\0", "").replace("'", "''")
    return f"'{clean}'"


def spoils(dialect: str) -> st.SearchStrategy[Spoils]:
    """Columns, and what is written there."""
    return st.lists(st.tuples(st.sampled_from(COLUMNS), literals(dialect)), min_size=1, max_size=8)


def rows_of_sqlite_stop_nothing(wrong: Spoils) -> None:
    """On a file of its own."""
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_stop_nothing(f"sqlite:///{Path(directory) / 'it.db'}", wrong))


def rows_of_postgres_stop_nothing(wrong: Spoils, url: str) -> None:
    """In a database, whose tables are emptied first."""
    asyncio.run(_stop_nothing(url, wrong))


async def _stop_nothing(url: str, wrong: Spoils) -> None:
    async with asyncio.timeout(2 * SECONDS), opened(url) as store, raw(url) as file:
        await _empty(file)
        ids = [job_id for (job_id,) in await victims(store, 1)]
        workers = [each.id for each in await store.inspector.workers()]
        for number, ((table, key, column), value) in enumerate(wrong):
            some = workers if table == "outlast_workers" else ids
            whose = some[number % len(some)]
            await file.run(f"UPDATE {table} SET {column} = {value} WHERE {key} = {whose}")
        await works_on(store)
        await shows(store, ids)


async def _empty(file: Raw) -> None:
    for table in ("outlast_jobs", "outlast_attempts", "outlast_workers"):
        assert await file.run(f"DELETE FROM {table}")


FUZZERS = [
    Fuzzer("rows of SQLite", spoils("sqlite"), rows_of_sqlite_stop_nothing, few=6),
    Fuzzer(
        "rows of PostgreSQL",
        spoils("postgres"),
        rows_of_postgres_stop_nothing,
        few=5,
        database=True,
    ),
]
