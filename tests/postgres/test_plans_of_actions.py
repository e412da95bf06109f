"""What people do goes by index, however many jobs there are."""

from __future__ import annotations

from outlast.store.actions import Bulk, BulkStep, Note
from tests.postgres.plans_kit import by_index, session

DEAD = """
INSERT INTO outlast_jobs (task, queue, state, run_at, enqueued_at, started_at, ended_at, args,
                          token)
SELECT 't', 'q', 'dead', date_part('epoch', now()), date_part('epoch', now()), 0, 0, '{}', n
FROM generate_series(1, 50000) n"""


async def test_a_step_of_a_bulk_action_reads_its_own_jobs_alone(pg_url: str) -> None:
    async with session(pg_url) as s:
        await s.store.open()
        await s.run(DEAD)
        bulk = Bulk(up_to_id=50_000, as_of=1e12, expected=9)
        action_id = await s.store.note(Note(actor="ada", verb="requeue", bulk=bulk))
        ids = list(range(40_000, 40_500))
        tokens = {one: one for one in ids}
        s.plans.clear()
        step = BulkStep(action_id=action_id, before_id=50_001, then=40_000)
        assert len(await s.store.requeue(ids, tokens=tokens, record=step)) == 500
        used = by_index(await s.settled(), most=1_000)
        assert "outlast_jobs_pkey" in used
