"""Plans that a session keeps from when its tables were all but empty are right on full ones.

A table of one row is read as a whole for less than one look by index, so where the statistics
say that (autovacuum takes them once 50 rows have changed), no cost keeps the planner from it: a
statement must leave it no such plan. It was seen for ends, which then read all jobs each time.
"""

from __future__ import annotations

import msgspec
import pytest

from outlast.model.crash import CrashKind, Progress
from outlast.model.job import Policy
from outlast.store.logs import JobLog, LogLine
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import (
    Claimed,
    ClaimRequest,
    NamedStep,
    NewJob,
    Report,
    Save,
    Upstream,
    WorkerRef,
)
from tests.conformance.kit import crashed, ended, lost_worker, new_worker
from tests.postgres.plans_kit import Session, by_index, session
from tests.postgres.test_plans import FINISHED_JOBS

OTHERS = 5_000  # jobs of each kind that fill the table later
READ_MAX = 600  # rows that a scan may read on the way of 50 jobs

WAITING_JOBS = """
INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args, position)
SELECT 'other', 'others', 0, 0, '{}', nextval('outlast_position_seq')
FROM generate_series(1, $1::integer);"""
RUNNING_JOBS = """
INSERT INTO outlast_jobs (task, queue, state, run_at, enqueued_at, args, attempt_count, token,
                          worker_id, started_at)
SELECT 'other', 'others', 'running', 0, 0, '{}', 1, nextval('outlast_token_seq'), $2, 0
FROM generate_series(1, $1::integer)"""
LOGS = """
INSERT INTO outlast_logs (token, job_id, number, printed, lines)
SELECT token, id, 1, 0, '[]' FROM outlast_jobs WHERE task = 'other' AND state = 'running'"""
LINKS = """
INSERT INTO outlast_dependencies (job_id, upstream_id, wants, state, place)
SELECT 1000000 + n, 2000000 + n, 0, 1, 0 FROM generate_series(1, $1::integer) n"""


async def claim(s: Session, me: WorkerRef, jobs: int, *requests: ClaimRequest) -> list[Claimed]:
    """Return what an exchange claims; it must be that many."""
    claimed = (await s.store.exchange(me, [], requests or [ClaimRequest(["t"], jobs)])).claimed
    assert len(claimed) == jobs
    return claimed


async def run_jobs(s: Session, me: WorkerRef, jobs: int) -> None:
    """Let jobs live in every way that sessions with kept plans write: many at a time."""
    await complete(s, me, jobs)
    await suspect(s, me, jobs)
    await lose(s, me, jobs)
    await follow(s, me, jobs)


async def complete(s: Session, me: WorkerRef, jobs: int) -> None:
    """Run jobs that save, report and complete twice, then some that fell due or are not kept."""
    plain = [NewJob(task="t")] * jobs
    await s.store.enqueue(plain)
    held = await claim(s, me, jobs)
    await s.store.checkpoint([Save(each.job_id, each.token, 1, "{}") for each in held])
    await s.store.progress([Report(each.job_id, each.token, Progress(0.5)) for each in held])
    lines = [LogLine(0.0, "seen")]
    await s.store.keep_logs([JobLog(each.job_id, each.token, 1, lines) for each in held])
    await s.store.cancel([held[0].job_id])
    assert (await s.store.heartbeat(me)).cancels
    done = [ended(each) for each in held]
    assert set((await s.store.exchange(me, done, [])).answers) == {"accepted"}
    assert set((await s.store.exchange(me, done, [])).answers) == {"already"}

    for _ in range(2):
        await s.store.enqueue([NewJob(task="t", key="k", delay=1e-6)])
    scheduled = [NewJob(task="t", delay=1e-6)] * (jobs - 1)
    await s.store.enqueue(scheduled)
    away = [NewJob(task="t", policy=Policy(keep=0.0))] * jobs
    await s.store.enqueue(away)
    held = await claim(s, me, 2 * jobs)
    done = [ended(each) for each in held]
    assert set((await s.store.exchange(me, done, [])).answers) == {"accepted"}


async def suspect(s: Session, me: WorkerRef, jobs: int) -> None:
    """Run jobs, again after an error, and as suspects that are cleared."""
    await s.store.enqueue([NewJob(task="t")] * jobs)
    held = await claim(s, me, jobs)
    tried = [crashed(each, delay=0.0) for each in held]
    assert set((await s.store.exchange(me, tried, [])).answers) == {"accepted"}
    held = await claim(s, me, jobs)  # each for the second time
    suspects = [
        crashed(each, CrashKind.BYSTANDER, delay=0.0, incident=held[0].token) for each in held
    ]
    assert set((await s.store.exchange(me, suspects, [])).answers) == {"accepted"}
    held = await claim(s, me, jobs, ClaimRequest(["t"], jobs, solo=1))
    innocent = [msgspec.structs.replace(ended(each), clears=held[0].incident) for each in held]
    assert set((await s.store.exchange(me, innocent, [])).answers) == {"accepted"}


async def lose(s: Session, me: WorkerRef, jobs: int) -> None:
    """Lose jobs of several lanes, requeue them, and give them up."""
    policy = Policy(max_losses=0)
    mixed = [
        NewJob(task="t", queue=f"q{n % 3}", priority=n % 2, policy=policy) for n in range(jobs)
    ]
    await s.store.enqueue(mixed)
    held = await claim(s, me, jobs)
    assert (
        len(await s.store.reclaim(lost_worker, only=[(one.job_id, one.token) for one in held]))
        == jobs
    )
    dead = [one.job_id for one in held]
    await s.store.requeue(dead)
    await claim(s, me, jobs)
    assert len(await s.store.reconcile(me, [])) == jobs
    await s.store.cancel(dead)
    await s.store.reclaim(lost_worker)


async def follow(s: Session, me: WorkerRef, jobs: int) -> None:
    """Run jobs that keep a step, each before another one."""
    last = NewJob(task="t", after=(Upstream(-jobs),))
    await s.store.enqueue([*[NewJob(task="t")] * jobs, *[last] * jobs])
    for _ in range(2):
        held = await claim(s, me, jobs)
        steps = [NamedStep(each.job_id, each.token, "a", "1") for each in held]
        assert set(await s.store.keep_steps(steps)) == {"accepted"}
        done = [ended(each) for each in held]
        assert set((await s.store.exchange(me, done, [])).answers) == {"accepted"}


@pytest.mark.slow_but("0-", "1-ANALYZE")
@pytest.mark.parametrize("statistics", ["", "ANALYZE", "VACUUM ANALYZE"])
@pytest.mark.parametrize("jobs", [0, 1])
async def test_a_plan_made_on_an_empty_table_is_right_on_a_full_one(
    pg_url: str, statistics: str, jobs: int
) -> None:
    store = PostgresStore(pg_url)
    await store.open()
    async with session(pg_url) as s, store._connections.use() as other:
        await other.execute(
            "ALTER TABLE outlast_jobs SET (autovacuum_enabled = false);"
            "ALTER TABLE outlast_attempts SET (autovacuum_enabled = false);"
            "ALTER TABLE outlast_dependencies SET (autovacuum_enabled = false)"
        )
        me = await s.store.register(new_worker("early"))
        await s.store.enqueue([NewJob(task="never")] * jobs)
        if statistics:
            await other.execute(statistics)
        for _ in range(7):  # prepared statements keep a plan after a few runs
            await run_jobs(s, me, 2)
        busy = await s.store.register(new_worker("busy"))
        await other.execute(FINISHED_JOBS.format(finished=OTHERS))
        await other.execute(WAITING_JOBS, OTHERS)
        await other.execute(RUNNING_JOBS, OTHERS, busy.worker_id)
        await other.execute(LOGS)
        await other.execute(LINKS, OTHERS)
        await s.forget()
        await run_jobs(s, me, 50)
        by_index(await s.settled(), most=READ_MAX)
    await store.close()
