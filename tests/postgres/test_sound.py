"""Constraints of the jobs table refuse rows that would lose a job or run it twice."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from outlast.store.postgres.store import PostgresStore

INSERT = """
INSERT INTO outlast_jobs (task, queue, args, run_at, enqueued_at, {columns})
VALUES ('t', 'q', '{{}}', 0, 0, {values})"""

SOUND = [
    {"state": "'queued'", "position": "1"},
    {"state": "'queued'"},
    {"state": "'queued'", "solo": "2"},
    {"state": "'running'", "worker_id": "1", "token": "1", "started_at": "0"},
    {"state": "'completed'", "ended_at": "0", "token": "1"},
    {"state": "'dead'", "ended_at": "0", "priority": "-100"},
    {"state": "'cancelled'", "ended_at": "0", "priority": "100"},
]
UNSOUND = {
    "no such state": {"state": "'lost'"},
    "running without a worker": {"state": "'running'", "token": "1", "started_at": "0"},
    "running without a token": {"state": "'running'", "worker_id": "1", "started_at": "0"},
    "running without a start": {"state": "'running'", "worker_id": "1", "token": "1"},
    "running, and in the line": {**SOUND[3], "position": "1"},
    "running, and ended": {**SOUND[3], "ended_at": "0"},
    "queued, but held": {**SOUND[3], "state": "'queued'"},
    "queued, but ended": {"state": "'queued'", "ended_at": "0"},
    "ended, but held": {**SOUND[3], "state": "'dead'"},
    "ended without a time": {"state": "'completed'"},
    "ended, and in the line": {"state": "'dead'", "ended_at": "0", "position": "1"},
    "too high": {"state": "'queued'", "priority": "101"},
    "too low": {"state": "'queued'", "priority": "-101"},
}
# Each column that the constraint reads, changed alone.
CHANGES = [
    (SOUND[0], "priority = 101"),
    (SOUND[0], "ended_at = 0"),
    (SOUND[0], "worker_id = 1"),
    (SOUND[3], "worker_id = NULL"),
    (SOUND[3], "token = NULL"),
    (SOUND[3], "started_at = NULL"),
    (SOUND[3], "position = 1"),
    (SOUND[3], "state = 'queued'"),
    (SOUND[4], "ended_at = NULL"),
    (SOUND[4], "state = 'lost'"),
]


@pytest.fixture
async def table(pg_url: str) -> AsyncIterator[Any]:
    """A connection to an empty store."""
    store = PostgresStore(pg_url)
    await store.open()
    await store.close()
    connection = await asyncpg.connect(pg_url)
    yield connection
    await connection.close()


async def insert(table: Any, row: dict[str, str]) -> None:
    await table.execute(INSERT.format(columns=", ".join(row), values=", ".join(row.values())))


async def test_sound_jobs_are_stored(table: Any) -> None:
    for row in SOUND:
        await insert(table, row)


async def test_unsound_jobs_are_refused(table: Any) -> None:
    stored = []
    for name, row in UNSOUND.items():
        with contextlib.suppress(asyncpg.CheckViolationError):
            await insert(table, row)
            stored.append(name)
    assert stored == []


@pytest.mark.parametrize(("row", "change"), CHANGES)
async def test_changes_that_make_a_job_unsound_are_refused(
    table: Any, row: dict[str, str], change: str
) -> None:
    await insert(table, row)
    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await table.execute(f"UPDATE outlast_jobs SET {change}")
    assert refused.value.constraint_name == "outlast_jobs_sound"
