"""Showing flows reads no more rows than it may, however large a flow is."""

from __future__ import annotations

import pytest

from outlast.insight.flows import FLOWS_MAX, LINKS_A_JOB, STEP, list_flows, read_flow
from tests.postgres.plans_kit import session
from tests.postgres.test_plans_of_pages import read_in_all

JOBS, MOST = 30_000, 1_000
KINDS = {
    "j.state = 'blocked' AND j.id <": FLOWS_MAX,
    "WITH RECURSIVE w": 2 * FLOWS_MAX,
    "may_return": STEP,
    "WHERE d.upstream_id = ANY": LINKS_A_JOB * MOST + 2 * STEP,
}
"""A part of each statement -> the rows that it may read."""
FILL = f"""
INSERT INTO outlast_jobs (id, task, queue, state, run_at, enqueued_at, args, position)
SELECT n, 't', 'q', CASE WHEN n > {JOBS} THEN 'blocked' ELSE 'queued' END, 0, 0, '{{}}',
       CASE WHEN n <= {JOBS} THEN n END
FROM generate_series(1, {2 * JOBS}) n;
INSERT INTO outlast_dependencies (job_id, upstream_id, wants, state, place)
SELECT {JOBS + 1}, n, 0, 1, n FROM generate_series(1, {JOBS}) n
UNION ALL SELECT n, {JOBS + 1}, 0, 1, 0 FROM generate_series({JOBS + 2}, {2 * JOBS}) n"""


@pytest.mark.slow
async def test_a_flow_of_any_size_is_read_by_its_indexes(pg_url: str) -> None:
    """A fan-in followed by a fan-out, also before the planner has statistics of them."""
    async with session(pg_url) as s:
        await s.store.open()
        for statement in (FILL, "ANALYZE"):
            await s.run(statement)
            await s.forget()
            for job_id in (1, JOBS + 1, 2 * JOBS):
                flow = await read_flow(s.store, job_id, MOST)
                assert flow is not None
                assert (len(flow.jobs), flow.is_cut) == (MOST, True)
            (one,) = (await list_flows(s.store)).flows
            assert one.is_cut
            await s.store.inspector.now()
            read = [(read_in_all(one["Plan"]), one["Query Text"]) for one in s.plans]
            most = dict.fromkeys(KINDS, 0.0)
            for rows, text in read:
                for kind in KINDS:
                    most[kind] = max(most[kind], rows if kind in text else 0)
            assert {kind for kind in KINDS if not 0 < most[kind] <= KINDS[kind]} == set()
