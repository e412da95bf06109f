"""No statement of a page reads more rows than a page may, however many jobs there are."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.insight.acting import Verb
from outlast.insight.bulk import BulkFilter, preview
from outlast.insight.lookup import look_up
from outlast.insight.overview import COUNTED_MAX, read_overview
from outlast.insight.queries import PHASES, list_jobs
from outlast.model.job import State
from outlast.store.rows import JobFilter
from outlast.web.job import read_page
from outlast.web.jobs import BOUNDS
from tests.postgres.test_plans import Session, nodes, session

MOST = BOUNDS.rows or 0
FILL = """
INSERT INTO outlast_jobs (task, queue, state, run_at, enqueued_at, args, position, ended_at)
SELECT 't', 'default', CASE n % 3 WHEN 0 THEN 'queued' WHEN 1 THEN 'completed' ELSE 'dead' END,
       now(), now(), '{}', CASE n % 3 WHEN 0 THEN n END, CASE n % 3 WHEN 0 THEN NULL ELSE now() END
FROM generate_series(1, 75000) n"""

LANES = """
INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args, position)
SELECT 't' || n % 30, 'q' || n % 2, now(), now(), '{}', n FROM generate_series(1, 30000) n;
INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args)
SELECT 't', 'q' || n % 25, now() + interval '1 day', now(), '{}' FROM generate_series(1, 25000) n;
INSERT INTO outlast_workers (name, host, pid, boot_id, status, heartbeat, lease, started_at,
                             heartbeat_at, lease_expires_at, stopped_at)
SELECT 'w', 'h', 1, 'b', 'stopped', 2, 60, now(), now(), now(), now() - n * interval '1 second'
FROM generate_series(1, 25000) n"""


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


async def test_no_statement_reads_more_of_many_lanes_together_than_a_page_may(pg_url: str) -> None:
    """However many lanes, queues and workers that have gone there are: all of them share it."""
    async with session(pg_url) as s:
        await s.store.open()
        async with s.store._connections.use() as connection:
            await connection.execute(LANES)
            await connection.execute("ANALYZE")
        await s.settled()
        s.plans.clear()
        seen = await read_overview(s.store)
        assert len(seen.statistics.lanes) == 30
        assert all(one.at_least for one in seen.statistics.lanes)
        assert await read_page(s.store, 29_000, 1.0) is not None
        await list_jobs(s.store, JobFilter(state=State.QUEUED), None, 1.0, BOUNDS)
        found = await preview(s.store, Verb.CANCEL, BulkFilter(queue="none"))
        assert (found.count, found.at_least) == (0, True)
        await s.settled()
        assert max(read_in_all(plan["Plan"]) for plan in s.plans) <= MOST


def read_in_all(plan: dict[str, Any]) -> float:
    """Return how many rows a statement has read of tables."""
    return sum(
        (one["Actual Rows"] + one.get("Rows Removed by Filter", 0)) * one["Actual Loops"]
        for one in nodes(plan)
        if "Relation Name" in one
    )
