"""What autoscalers, sparklines and scrapes read is bounded, however much waits or was counted."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.store.minutes import BUCKETS, MINUTES_MAX
from outlast.store.statistics import COUNT_MAX
from tests.conformance.kit import new_worker
from tests.postgres.plans_kit import session

LARGE = {"outlast_jobs", "outlast_minutes"}
WAITING = """
INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args, position)
SELECT 't0', 'q' || n % 2, 0, 0, '{}', nextval('outlast_position_seq')
FROM generate_series(1, 60000) n"""
LATER = """
INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args)
SELECT 't', 'q0', date_part('epoch', now()) + n % 2 * 3600 - 60, date_part('epoch', now()), '{}'
FROM generate_series(1, 60000) n"""
COUNTED = f"""
INSERT INTO outlast_minutes
SELECT l.level, 0, n, date_part('epoch', now())::bigint - n % 3000,
       'attempt', 'q', 't' || n, 'completed', 1, 0, 0, 0{", 0" * 2 * BUCKETS}
FROM unnest('{{minute,total}}'::text[]) l (level) CROSS JOIN generate_series(1, 30000) n"""


def read_by_index(scans: list[dict[str, Any]]) -> float:
    """Return how many rows were read of the large tables, none of which was read as a whole."""
    large = [one for one in scans if one.get("Relation Name") in LARGE]
    assert large
    assert [one for one in large if one["Node Type"] == "Seq Scan"] == []
    return sum(
        (one["Actual Rows"] + one.get("Rows Removed by Filter", 0)) * one["Actual Loops"]
        for one in large
    )


async def test_a_count_for_an_autoscaler_goes_by_index_and_stops(pg_url: str) -> None:
    async with session(pg_url) as s:
        await s.store.open()
        await s.store.register(new_worker(tasks=["t0", "t1", "t2", "t"]))
        await s.run(WAITING, LATER)
        s.plans.clear()
        assert await s.store.inspector.wanted("q0") == COUNT_MAX
        assert read_by_index(await s.settled()) <= 2 * COUNT_MAX
        s.plans.clear()
        assert await s.store.inspector.wanted("q9") == 0
        assert read_by_index(await s.settled()) <= 2 * COUNT_MAX


@pytest.mark.slow
async def test_a_look_at_what_was_counted_reads_the_newest_rows_by_index(pg_url: str) -> None:
    async with session(pg_url) as s:
        await s.store.open()
        await s.run(COUNTED)
        s.plans.clear()
        found = await s.store.inspector.minutes(3_600.0)
        assert found.is_cut
        assert read_by_index(await s.settled()) <= 2 * MINUTES_MAX
