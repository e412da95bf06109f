"""No statement of a page reads more rows than a page may, however many jobs there are."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.insight.acting import Verb
from outlast.insight.bulk import BulkFilter, preview
from outlast.insight.filters import PHASES
from outlast.insight.queries import list_jobs, look_up, read_details
from outlast.insight.stats import read_overview
from outlast.model.job import State
from outlast.store.rows import JobFilter
from outlast.store.statistics import STATISTICS_MAX
from outlast.web.job import read_page
from outlast.web.jobs import BOUNDS
from tests.postgres.plans_kit import Session, nodes, session

MOST = BOUNDS.rows or 0
PAGES_MAX = 5_000  # of 8 kB, in the cache or not
FILL = """
INSERT INTO outlast_jobs (task, queue, state, run_at, enqueued_at, args, position, ended_at)
SELECT 't', 'default', CASE n % 3 WHEN 0 THEN 'queued' WHEN 1 THEN 'completed' ELSE 'dead' END,
       0, 0, '{}', CASE n % 3 WHEN 0 THEN n END, CASE n % 3 WHEN 0 THEN NULL ELSE 0 END
FROM generate_series(1, 75000) n"""

LANES = """
INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args, position)
SELECT 't' || n % 30, 'q' || n % 2, 0, 0, '{}', n FROM generate_series(1, 30000) n;
INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args)
SELECT 't', 'q' || n % 25, 9e9, 0, '{}' FROM generate_series(1, 25000) n;
INSERT INTO outlast_workers (name, host, pid, boot_id, status, heartbeat, lease, started_at,
                             heartbeat_at, lease_expires_at, stopped_at)
SELECT 'w', 'h', 1, 'b', 'stopped', 2, 60, 0, 0, 0, 1e9 - n
FROM generate_series(1, 25000) n"""

FEW = """
INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args, position)
SELECT 't0', 'q0', 0, 0, '{}', 0 FROM generate_series(1, 20);
INSERT INTO outlast_workers (name, host, pid, boot_id, status, heartbeat, lease, started_at,
                             heartbeat_at, lease_expires_at)
SELECT 'w', 'h', 1, 'b', 'active', 2, 60, 0, 0, 0 FROM generate_series(1, 20) n"""
TASKS = """
INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args, position)
SELECT 'm' || n, 'many', 0, 0, '{}', n FROM generate_series(1, 2000) n"""


def largest(scans: list[dict[str, Any]]) -> float:
    """Return the most rows that one look at a table has read."""
    return max(
        one.get("Actual Rows", 0) + one.get("Rows Removed by Filter", 0)
        for one in scans
        if "Relation Name" in one
    )


async def filled(s: Session) -> None:
    await s.store.open()
    await s.run(FILL, "ANALYZE")
    await s.forget()


@pytest.mark.slow
async def test_no_list_reads_more_rows_than_a_page_may(pg_url: str) -> None:
    async with session(pg_url) as s:
        await filled(s)
        most: dict[tuple[str, str], float] = {}
        for phase in (None, *State, *PHASES):
            state = PHASES.get(str(phase)) or (State(phase) if phase else None)
            for fields in ({}, {"queue": "none"}, {"tenant": "none"}):
                which = JobFilter(state=state, **fields)  # type: ignore[arg-type]
                await list_jobs(s.store, which, phase, BOUNDS)
                most[str(phase), str(fields)] = largest(await s.settled())
                s.plans.clear()
        assert {which: rows for which, rows in most.items() if rows > MOST} == {}


@pytest.mark.slow
async def test_no_other_page_does_either(pg_url: str) -> None:
    async with session(pg_url) as s:
        await filled(s)
        await read_overview(s.store)
        assert await look_up(s.store, "70000") is not None
        for number in (70_000, 70_001, 70_002):
            assert await read_page(s.store, number, 1.0) is not None
        scans = await s.settled()
        assert largest(scans) <= max(MOST, STATISTICS_MAX)
        jobs = [one for one in scans if one.get("Relation Name") == "outlast_jobs"]
        assert {one["Node Type"] for one in jobs} <= {"Index Scan", "Index Only Scan"}


@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "stale"])
async def test_no_statement_reads_more_of_many_lanes_together_than_a_page_may(
    pg_url: str, fresh: bool
) -> None:
    """However many lanes, queues and workers that have gone there are: all of them share it, also
    where the statistics are of a store with few jobs, whose workers all live."""
    async with session(pg_url) as s:
        await s.store.open()
        async with s.store._connections.use() as connection:
            for text in (FEW, LANES, "ANALYZE") if fresh else (FEW, "ANALYZE", LANES):
                await connection.execute(text)
        await s.forget()
        seen = await read_overview(s.store)
        assert len(seen.statistics.lanes) == 30
        assert all(one.at_least for one in seen.statistics.lanes)
        assert await read_page(s.store, 29_000, 1.0) is not None
        await list_jobs(s.store, JobFilter(state=State.QUEUED), None, BOUNDS)
        found = await preview(s.store, Verb.CANCEL, BulkFilter(queue="none"))
        assert (found.count, found.at_least) == (0, False)
        await list_jobs(s.store, JobFilter(state=State.QUEUED), "scheduled", BOUNDS)
        await look_up(s.store, "70000")
        await s.run(TASKS)
        assert await read_details(s.store, 29_000, 1.0) is not None
        await s.store.inspector.now()  # the reports have arrived; settled() would add a look
        looks = [plan for plan in s.plans if "INSERT" not in plan["Query Text"]]
        assert max((read_in_all(one["Plan"]), one["Query Text"]) for one in looks) <= (MOST, "~")
        assert max((pages_read(one["Plan"]), one["Query Text"]) for one in looks) <= (
            PAGES_MAX,
            "~",
        )


def read_in_all(plan: dict[str, Any]) -> float:
    """Return how many rows a statement has read of tables."""
    return sum(
        (one["Actual Rows"] + one.get("Rows Removed by Filter", 0)) * one["Actual Loops"]
        for one in nodes(plan)
        if "Relation Name" in one
    )


def pages_read(plan: dict[str, Any]) -> int:
    """Return how many pages a statement has read, from the cache or not."""
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
