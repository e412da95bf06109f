"""What is read of a large file, and what it keeps of the disk, by plans and counts.

The measurement at full size is ``python -m bench size``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.stores import held_open
from outlast.model.job import State
from outlast.store import listing
from outlast.store.rows import JobFilter, JobIds
from outlast.store.sqlite import schema
from outlast.store.sqlite.statements import statements
from outlast.store.sqlite.store import SqliteStore
from outlast.store.values import NewJob
from tests.conformance.kit import job
from tests.sqlite.inspector_kit import inspector_on

NOW = 1_000.0
FINISHED = 5_000
FINISHED_JOBS = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
INSERT INTO outlast_jobs (task, queue, state, run_at, enqueued_at, args, attempt_count, token,
                          started_at, ended_at)
SELECT 't', 'default', 'completed', 1.0, 1.0, '{}', 2, 2 * i, 1.0, 2.0 FROM n"""
ATTEMPTS = """
INSERT INTO outlast_attempts (token, job_id, number, outcome, charge, started_at, ended_at)
SELECT token - 1, id, 1, 'released', 'none', 1.0, 2.0 FROM outlast_jobs"""


@pytest.fixture
def cursor() -> Iterator[sqlite3.Cursor]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        cursor = connection.cursor()
        schema.migrate(cursor, NOW)
        cursor.execute(FINISHED_JOBS)
        cursor.execute(ATTEMPTS)
        cursor.execute("UPDATE outlast_sequences SET value = 5000 WHERE name = 'job'")
        yield cursor


def plan(cursor: sqlite3.Cursor, text: str, values: Any) -> str:
    rows = cursor.execute(f"EXPLAIN QUERY PLAN {text}", values).fetchall()
    return "; ".join(row[3] for row in rows)


@pytest.mark.parametrize("analyzed", [False, True], ids=["as-made", "analyzed"])
def test_a_page_of_the_history_reads_no_attempts_of_later_pages(
    cursor: sqlite3.Cursor, analyzed: bool
) -> None:
    if analyzed:
        cursor.execute("ANALYZE")
    found = plan(cursor, statements("inspect")["history_attempts"], {"after": 0, "last": 10})
    assert "USING INDEX outlast_attempts_job (job_id>? AND job_id<?)" in found


async def steps(cursor: sqlite3.Cursor, which: JobFilter) -> tuple[int, JobIds]:
    """Return how many steps of SQLite's machine a look takes, and what it finds."""
    count = [0]

    def counts() -> None:
        count[0] += 1

    cursor.connection.set_progress_handler(counts, 1)
    found = await inspector_on(cursor, NOW).job_ids(which)
    cursor.connection.set_progress_handler(None, 1)
    return count[0], found


RARE: dict[str, dict[str, Any]] = {
    state: {"state": State(state)} for state in ("queued", "running", "dead")
} | {
    "queued of a queue": {"state": State.QUEUED, "queue": "no"},
    "dead of a tenant": {"state": State.DEAD, "tenant": "no"},
}


@pytest.mark.parametrize("analyzed", [False, True], ids=["as-made", "analyzed"])
@pytest.mark.parametrize("rare", RARE)
async def test_jobs_of_a_state_that_few_have_are_found_without_a_look_at_finished_ones(
    cursor: sqlite3.Cursor, rare: str, analyzed: bool
) -> None:
    if analyzed:
        cursor.execute("ANALYZE")
    taken, found = await steps(cursor, JobFilter(**RARE[rare]))
    assert found == JobIds()
    assert taken < FINISHED / 10


@pytest.mark.parametrize("which", [{"task": "no"}, {"state": State.CANCELLED}, {"tenant": "no"}])
async def test_a_look_for_what_no_index_knows_stops_at_a_bounded_number_of_rows(
    cursor: sqlite3.Cursor, monkeypatch: pytest.MonkeyPatch, which: dict[str, Any]
) -> None:
    monkeypatch.setattr(listing, "LOOK_ROWS", 100)
    taken, found = await steps(cursor, JobFilter(**which))
    assert (found.ids, found.before) == ([], FINISHED - 99)
    assert taken < FINISHED


# --------------------------------------------------------------------------------- on the disk


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with held_open(SqliteStore(f"sqlite:///{tmp_path}/jobs.db")) as store:
        yield store


async def test_a_log_that_grew_beside_a_long_read_is_cut_when_that_has_ended(
    store: SqliteStore,
) -> None:
    log = store.path.with_name(f"{store.path.name}-wal")
    most: int = await store._connection.read(
        lambda cursor, _: cursor.execute("PRAGMA journal_size_limit").fetchone()[0]
    )
    assert 0 < most <= 64 * 1024**2
    large = NewJob(task="t", args=f'"{"x" * 8 * 1024**2}"')
    with closing(sqlite3.connect(store.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM outlast_jobs").fetchone() == (0,)
        while log.stat().st_size <= most:
            await store.enqueue([large])
    for _ in range(3):  # moves it into the file, starts it again, is past it
        await store.enqueue([job()])
    assert log.stat().st_size <= most
    counts = await store.inspector.counts()
    assert sum(counts.values()) > 3
