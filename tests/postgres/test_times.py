"""Instants in the tables are numbers of seconds since 1970, and people read them in a view."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.errors import SchemaMismatch
from outlast.store.postgres.store import PostgresStore
from tests.conformance.kit import enqueued, job

OF_ANOTHER_KIND = """
SELECT c.relname || '.' || a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relname LIKE 'outlast\\_%' AND c.relkind IN ('r', 'c') AND a.attnum > 0
  AND format_type(a.atttypid, NULL) ~ '^(time|date|interval)'
UNION ALL
SELECT p.proname FROM pg_proc p
WHERE p.proname LIKE 'outlast\\_%' AND EXISTS (
    SELECT FROM unnest(p.proargtypes || p.prorettype || p.proallargtypes) AS u (type)
    WHERE format_type(u.type, NULL) ~ '^(time|date|interval)')"""
TIMES = ["enqueued_at", "run_at", "expires_at", "requeued_at", "checkpoint_at"]  # of a queued job
OLDER = """
ALTER TABLE outlast_schema ALTER applied_at TYPE timestamptz USING to_timestamp(applied_at);
UPDATE outlast_schema SET checksum = 'of another commit'"""


async def test_instants_are_numbers_but_for_what_callers_pass(
    store: PostgresStore, session: Any
) -> None:
    assert [each for (each,) in await session.fetch(OF_ANOTHER_KIND)] == ["outlast_enqueue_v1"]


async def test_people_read_the_times_of_jobs_in_a_view(store: PostgresStore, session: Any) -> None:
    later, due = await enqueued(store, job(delay=3600.0), job())
    ahead = await session.fetchval(
        "SELECT run_at - enqueued_at FROM outlast_jobs_for_people WHERE id = $1", later
    )
    assert ahead.total_seconds() == pytest.approx(3600)
    query = "SELECT id, ended_at FROM outlast_jobs_for_people WHERE run_at <= now()"
    assert [tuple(row) for row in await session.fetch(query)] == [(due, None)]


@pytest.mark.parametrize("number", ["NaN", "1e300", "-1e300", "9.3e12", "-2.2e11"])
async def test_a_job_whose_time_is_no_time_hides_no_other_in_the_view(
    store: PostgresStore, session: Any, number: str
) -> None:
    """A role that may only enqueue can write any number into run_at."""
    wrong, right = await enqueued(store, job(delay=1.0), job(delay=2.0))
    columns = ", ".join(f"{name} = '{number}'" for name in TIMES)
    await session.execute(f"UPDATE outlast_jobs SET {columns} WHERE id = $1", wrong)
    query = "SELECT * FROM outlast_jobs_for_people ORDER BY id"
    one, other = await session.fetch(query)
    assert (one["id"], *(one[name] for name in TIMES)) == (wrong, *[None] * len(TIMES))
    assert (other["id"], other["run_at"] is None) == (right, False)


async def test_a_store_with_times_of_another_kind_is_refused_with_words(
    store: PostgresStore, session: Any, pg_url: str
) -> None:
    await session.execute(OLDER)
    program = PostgresStore(pg_url)
    for verb in (program.open, program.migrate):
        with pytest.raises(SchemaMismatch, match="the store was made by another build of Outlast"):
            await verb()
    await program.close()
