"""What ended badly is read by index in bounded looks, among many dead and many finished jobs."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.model.job import State
from outlast.store.rows import DEAD_LOOKED_AT, ROWS_LOOKED_AT, AttemptFilter, JobFilter
from tests.postgres.plans_kit import Session, by_index, session

FILL = """
INSERT INTO outlast_jobs (task, queue, state, run_at, enqueued_at, args, attempt_count, token,
                          started_at, ended_at, tenant, fingerprint)
SELECT 't', 'default', CASE WHEN n % 2 = 0 THEN 'dead' ELSE 'completed' END, 0, 0, '{}', 1,
       nextval('outlast_token_seq'), 0, 0, 'many', CASE WHEN n % 2 = 0 THEN n % 7 END
FROM generate_series(1, 50000) n;
INSERT INTO outlast_attempts (token, job_id, number, outcome, charge, started_at, ended_at)
SELECT token, id, 1, 'error', 'failure', 0, 0 FROM outlast_jobs"""


async def scans_of(s: Session) -> list[dict[str, Any]]:
    """Return what was read of tables: no sort or group of that counts as a look of its own."""
    return [one for one in await s.settled() if "Relation Name" in one]


@pytest.mark.parametrize("analyzed", [False, True], ids=["as-made", "analyzed"])
async def test_what_ended_badly_is_read_by_index_in_bounded_looks(
    pg_url: str, analyzed: bool
) -> None:
    async with session(pg_url) as s:
        await s.store.open()
        await s.run(FILL, "ANALYZE" if analyzed else "SELECT 1")
        await s.forget()
        look = s.store.inspector
        found = await look.dead_groups(JobFilter())
        assert (found.looked_at, found.full, len(found.groups)) == (DEAD_LOOKED_AT, True, 7)
        used = by_index(await scans_of(s), most=DEAD_LOOKED_AT)
        assert "outlast_jobs_dead" in used
        s.plans.clear()
        for tenant in ("many", "none"):
            await look.dead_groups(JobFilter(tenant=tenant))
            await look.ended_attempts(AttemptFilter(tenant=tenant, limit=10))
            await look.causes(tenant)
        await look.ended_attempts(AttemptFilter(outcomes=("none",)))
        await look.suspects()
        used = by_index(await scans_of(s), most=ROWS_LOOKED_AT)
        assert {"outlast_jobs_dead", "outlast_jobs_incident", "outlast_attempts_pkey"} <= used


async def test_a_group_is_found_by_the_index_of_dead_jobs(pg_url: str) -> None:
    async with session(pg_url) as s:
        await s.store.open()
        which = JobFilter(state=State.DEAD, fingerprint="none")
        assert (await s.store.inspector.job_ids(which)).ids == []
        used = {one.get("Index Name") for one in await scans_of(s)}
        assert "outlast_jobs_dead" in used
        assert "outlast_jobs_pkey" not in used
