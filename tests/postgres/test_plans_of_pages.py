"""No statement of a page reads more rows than a page may, however many jobs there are."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.insight.lookup import look_up
from outlast.insight.overview import COUNTED_MAX, read_overview
from outlast.insight.queries import PHASES, list_jobs
from outlast.model.job import State
from outlast.store.rows import JobFilter
from outlast.web.job import read_page
from outlast.web.jobs import BOUNDS
from tests.postgres.test_plans import Session, session

MOST = BOUNDS.rows or 0
FILL = """
INSERT INTO outlast_jobs (task, queue, state, run_at, enqueued_at, args, position, ended_at)
SELECT 't', 'default', CASE n % 3 WHEN 0 THEN 'queued' WHEN 1 THEN 'completed' ELSE 'dead' END,
       now(), now(), '{}', CASE n % 3 WHEN 0 THEN n END, CASE n % 3 WHEN 0 THEN NULL ELSE now() END
FROM generate_series(1, 75000) n"""


def largest(scans: list[dict[str, Any]]) -> float:
    """Return the most rows that one look at a table has read."""
    return max(
        one.get("Actual Rows", 0) + one.get("Rows Removed by Filter", 0)
        for one in scans
        if "Relation Name" in one
    )


async def filled(s: Session) -> None:
    await s.store.open()
    async with s.store._connections.use() as connection:
        await connection.execute(FILL)
        await connection.execute("ANALYZE")
    await s.settled()
    s.plans.clear()


@pytest.mark.parametrize("phase", [None, *State, *PHASES], ids=str)
async def test_no_list_reads_more_rows_than_a_page_may(pg_url: str, phase: str | None) -> None:
    state = PHASES.get(str(phase)) or (State(phase) if phase else None)
    async with session(pg_url) as s:
        await filled(s)
        for fields in ({}, {"queue": "none"}, {"tenant": "none"}):
            which = JobFilter(state=state, **fields)  # type: ignore[arg-type]
            await list_jobs(s.store, which, phase, 1.0, BOUNDS)
        assert largest(await s.settled()) <= MOST


async def test_no_other_page_does_either(pg_url: str) -> None:
    async with session(pg_url) as s:
        await filled(s)
        await read_overview(s.store)
        assert await look_up(s.store, "70000") is not None
        for number in (70_000, 70_001, 70_002):
            assert await read_page(s.store, number, 1.0) is not None
        scans = await s.settled()
        assert largest(scans) <= max(MOST, COUNTED_MAX)
        jobs = [one for one in scans if one.get("Relation Name") == "outlast_jobs"]
        assert {one["Node Type"] for one in jobs} <= {"Index Scan", "Index Only Scan"}
