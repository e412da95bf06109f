"""A list reads no more rows than it needs, however many jobs there are."""

from __future__ import annotations

from outlast.model.job import State
from outlast.store.rows import JobFilter
from tests.postgres.plans_kit import session
from tests.postgres.test_plans_of_pages import filled, largest

SHOWN = 30


async def test_a_list_that_finds_enough_reads_only_that_and_else_says_how_far_it_looked(
    pg_url: str,
) -> None:
    async with session(pg_url) as s:
        await filled(s)
        for state in (None, State.COMPLETED):
            found = await s.store.inspector.job_ids(JobFilter(state=state, limit=SHOWN))
            assert len(found.ids) == SHOWN
            assert found.before == found.ids[-1]
            assert largest(await s.settled()) <= 4 * SHOWN, "one of three rows is of this state"
            s.plans.clear()
        found = await s.store.inspector.job_ids(JobFilter(queue="none", look_rows=1_000))
        assert (found.ids, found.before) == ([], 74_001)
        assert largest(await s.settled()) <= 1_000
