"""A paused queue costs other claims nothing: its jobs are not read."""

from __future__ import annotations

from outlast.store.values import ClaimRequest, NewJob
from tests.conformance.kit import new_worker
from tests.postgres.plans_kit import by_index, session

PAUSED = """
INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args, tenant, position)
SELECT 'p', 'paused', 0, 0, '{}', NULL, nextval('outlast_position_seq')
FROM generate_series(1, 100000) n"""


async def test_a_hundred_thousand_paused_jobs_slow_no_claim_of_others(pg_url: str) -> None:
    async with session(pg_url) as s:
        await s.store.open()
        me = await s.store.register(new_worker("paused"))
        await s.run(PAUSED)
        rest = [NewJob(task="p", queue=f"q{n % 3}") for n in range(40)]
        ids = {one.job_id for one in await s.store.enqueue(rest)}
        request = ClaimRequest(["p"], 10, not_queues=("paused",))
        seen: set[int] = set()
        for _ in range(3):
            s.plans.clear()
            seen |= {each.job_id for each in (await s.store.exchange(me, [], [request])).claimed}
            used = by_index(await s.settled(), most=100)
            assert "outlast_jobs_lane" in used
        assert len(seen) == 30
        assert seen <= ids
