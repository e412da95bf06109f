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
VALUES ('t', 'q', '{{}}', now(), now(), {values})"""

SOUND = [
    {"state": "'queued'", "position": "1"},
    {"state": "'queued'"},
    {"state": "'queued'", "solo": "2"},
    {"state": "'running'", "worker_id": "1", "token": "1", "started_at": "now()"},
    {"state": "'completed'", "ended_at": "now()", "token": "1"},
    {"state": "'dead'", "ended_at": "now()", "priority": "-100"},
    {"state": "'cancelled'", "ended_at": "now()", "priority": "100"},
]
UNSOUND = {
    "no such state": {"state": "'lost'"},
    "running without a worker": {"state": "'running'", "token": "1", "started_at": "now()"},
    "running without a token": {"state": "'running'", "worker_id": "1", "started_at": "now()"},
    "running without a start": {"state": "'running'", "worker_id": "1", "token": "1"},
    "running, and in the line": {**SOUND[3], "position": "1"},
    "running, and ended": {**SOUND[3], "ended_at": "now()"},
    "queued, but held": {**SOUND[3], "state": "'queued'"},
    "queued, but ended": {"state": "'queued'", "ended_at": "now()"},
    "a suspect in the line": {"state": "'queued'", "position": "1", "solo": "1"},
    "ended, but held": {**SOUND[3], "state": "'dead'"},
    "ended without a time": {"state": "'completed'"},
    "ended, and in the line": {"state": "'dead'", "ended_at": "now()", "position": "1"},
    "too high": {"state": "'queued'", "priority": "101"},
    "too low": {"state": "'queued'", "priority": "-101"},
}


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
