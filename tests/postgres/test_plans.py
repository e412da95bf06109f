"""The statements of the hot path find their rows by index among 100,000 finished jobs."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from harness.servers import PostgresServer
from outlast.model.crash import CrashKind, Progress
from outlast.model.job import Policy, State
from outlast.store.postgres.store import PostgresStore
from outlast.store.rows import JobFilter
from outlast.store.values import ClaimRequest, NewJob, Report, Save
from tests.conformance.kit import crashed, ended, lost_worker, new_worker
from tests.databases import make_tables
from tests.postgres.plans_kit import WIDE, by_index, session

pytestmark = pytest.mark.xdist_group("plans")  # all share one pair of filled databases

FINISHED = 100_000

FINISHED_JOBS = """
INSERT INTO outlast_jobs (task, queue, state, run_at, enqueued_at, args, attempt_count, token,
                          started_at, ended_at, result, key)
SELECT 't', 'default', 'completed', 0, 0, '{{}}', 1, nextval('outlast_token_seq'), 0,
       date_part('epoch', now()), '1', 'old' || n
FROM generate_series(1, {finished}) n;
INSERT INTO outlast_attempts (token, job_id, number, outcome, charge, started_at, ended_at)
SELECT nextval('outlast_token_seq'), n, 1, 'error', 'failure', 0, 0
FROM generate_series(1, {finished}) n"""

UNSERVABLE = """
INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args, priority, position)
SELECT 'unknown', 'mixed', 0, 0, '{}', 50, nextval('outlast_position_seq')
FROM generate_series(1, 20000) n"""


WAITING = """
INSERT INTO outlast_jobs (task, queue, priority, run_at, enqueued_at, args, position)
SELECT 't', queue, priority, 0, 0, '{}', nextval('outlast_position_seq')
FROM (VALUES ('default', 0), ('other', 5)) AS lane (queue, priority), generate_series(1, %s)"""

SUSPECTS = """
INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args, solo, incident, position)
SELECT CASE WHEN n % 10 = 0 THEN 't' ELSE 'unknown' || n % 3 END, 'suspects' || n % 2,
       0, 0, '{}', 1 + (n % 50 = 0)::integer, n / 100, nextval('outlast_position_seq')
FROM generate_series(1, 1000) n"""


DEBIAN = pytest.mark.debian_postgres
SERVERS = ["pg_server", pytest.param("debian_server", marks=DEBIAN)]


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> PostgresServer:
    """The wheel's PostgreSQL, and Debian's."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, PostgresServer)
    return found


@pytest.fixture(scope="module", params=["stale", "fresh"])
def full_url(request: pytest.FixtureRequest, server: PostgresServer) -> Iterator[str]:
    """A store with 100,000 finished jobs. Stale: the statistics say that all jobs wait."""
    name = f"outlast_plans_{request.param}"
    url = server.create_database(name)
    asyncio.run(fill(url, fresh=request.param == "fresh"))
    yield url
    server.drop_database(name)


async def fill(url: str, *, fresh: bool, finished: int = FINISHED) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.enqueue([NewJob(task="t") for _ in range(2_000)])
    await store.close()
    connection = await asyncpg.connect(url)
    for table in ("jobs", "attempts", "workers", "refusals"):
        await connection.execute(f"ALTER TABLE outlast_{table} SET (autovacuum_enabled = false)")
    await connection.execute(
        "ANALYZE; DELETE FROM outlast_jobs; " + FINISHED_JOBS.format(finished=finished)
    )
    if fresh:
        await connection.execute("ANALYZE")
    await connection.close()


async def test_an_exchange_finds_everything_by_index(full_url: str) -> None:
    async with session(full_url) as s:
        me = await s.store.register(new_worker("exchange"))
        await s.store.enqueue([NewJob(task="t") for _ in range(120)])
        await s.store.enqueue([NewJob(task="t", delay=0.001), NewJob(task="t", delay=60)])
        held = await s.claim(me, 100)
        completed = [ended(each) for each in held[:90]]
        again = [crashed(each, delay=0.0) for each in held[90:]]
        await s.store.exchange(me, completed + again, [ClaimRequest(["t"], 10, ["default"])])
        late = await s.store.exchange(me, completed, [ClaimRequest(["t"], 100)])
        assert set(late.answers) == {"already"}
        used = by_index(await s.settled())
        assert {"outlast_jobs_lane", "outlast_jobs_run_at", "outlast_jobs_pkey"} <= used
        assert "outlast_jobs_cancel" in used or "outlast_jobs_worker" in used


@pytest.fixture(scope="module")
def waiting_url(server: PostgresServer) -> Iterator[str]:
    url = server.create_database("outlast_plans_waiting")
    asyncio.run(make_tables(url))
    yield url
    server.drop_database("outlast_plans_waiting")


async def test_a_claim_reads_as_many_blocks_however_many_jobs_wait(waiting_url: str) -> None:
    """In the lanes that the client knows, and in a search for others between them."""
    async with session(waiting_url) as s:
        me = await s.store.register(new_worker("waiting"))
        blocks = []
        for count in (1_000, 60_000):
            await s.store.enqueue([NewJob(task="t"), NewJob(task="t", queue="other", priority=5)])
            await s.run(WAITING % (count // 2), "VACUUM ANALYZE outlast_jobs")
            held = await s.claim(me, 5)  # the lanes are known from here on
            await s.forget()
            for _ in range(3):
                ends = [ended(each) for each in held]
                held = (await s.store.exchange(me, ends, [ClaimRequest(["t"], 5)])).claimed
            await s.settled()
            blocks.append(count_blocks(s.plans))
            await s.store.exchange(me, [ended(each) for each in held], [])
        assert blocks[1] <= 1.3 * blocks[0]


def count_blocks(plans: list[dict[str, Any]]) -> int:
    """Return the blocks that the exchanges among these plans have read."""
    roots = [plan["Plan"] for plan in plans if "outlast_exchange_v1" in plan["Query Text"]]
    assert roots
    return sum(root["Shared Hit Blocks"] + root["Shared Read Blocks"] for root in roots)


async def test_superseded_attempts_are_found_by_index(server: PostgresServer) -> None:
    """Also in a table that is small enough for a plan to read it as a whole, for each attempt."""
    url = server.create_database("outlast_plans_superseded")
    await fill(url, fresh=False, finished=12_000)
    async with session(url) as s:
        me = await s.store.register(new_worker("superseded"))
        await s.store.enqueue([NewJob(task="t") for _ in range(50)])
        held = [(each.job_id, each.token) for each in await s.claim(me, 50)]
        lost = [(held[0][0], held[0][1] - 1), *((-n, n) for n in range(1, 900))]
        s.plans.clear()
        assert await s.store.superseded([*held, *lost]) == [lost[0][1]]  # others are gone
        assert by_index(await s.settled()) >= {"outlast_jobs_pkey"}
    server.drop_database("outlast_plans_superseded")


async def test_a_claim_does_not_read_jobs_of_unknown_tasks(full_url: str) -> None:
    async with session(full_url) as s:
        me = await s.store.register(new_worker("unservable"))
        lane = "INSERT INTO outlast_lanes (task, queue, priority) VALUES ('unknown', 'mixed', 50)"
        await s.run(UNSERVABLE, lane)
        s.plans.clear()
        own = [NewJob(task=f"u{n % 3}", queue="mixed", priority=n % 2) for n in range(30)]
        made = await s.store.enqueue(own)
        requests = [ClaimRequest(["u0", "u1", "u2"], 20)]
        claimed = (await s.store.exchange(me, [], requests)).claimed
        ids = [one.job_id for one in made]
        assert [each.job_id for each in claimed] == (ids[1::2] + ids[::2])[:20]
        assert "outlast_jobs_lane" in by_index(await s.settled())
        s.plans.clear()  # what waits unpublished: by the heads of the lanes
        first = [one for one in (await s.store.waiting(0.0, 5)).jobs if one.queue == "mixed"]
        assert Counter(one.task for one in first)["unknown"] == 5
        assert "outlast_jobs_lane" in by_index(await s.settled())
        await s.store.reconcile(me, [])


async def test_a_thousand_suspects_slow_no_ordinary_claim_and_are_found_by_index(
    full_url: str,
) -> None:
    async with session(full_url) as s:
        me = await s.store.register(new_worker("suspects"))
        await s.store.enqueue([NewJob(task="t") for _ in range(20)])
        await s.run(SUSPECTS)
        s.plans.clear()
        reply = await s.store.exchange(me, [], [ClaimRequest(["t"], 10)])
        assert len(reply.claimed) == 10
        by_index(scans := await s.settled(), most=100)
        assert [one for one in scans if one.get("Index Name") == "outlast_jobs_suspect"]
        s.plans.clear()
        culprit, _ = (await s.store.exchange(me, [], [ClaimRequest(["t"], 2, solo=1)])).claimed
        (alone,) = (await s.store.exchange(me, [], [ClaimRequest(["t"], 1, solo=2)])).claimed
        assert (culprit.solo, alone.solo) == (1, 2)
        end = crashed(culprit, CrashKind.SIGNALLED)
        await s.store.exchange(me, [end], [ClaimRequest(["unknown"], 10, solo=1)])
        used = by_index(await s.settled(), most=300)
        assert {"outlast_jobs_suspect", "outlast_jobs_incident"} <= used
        await s.store.reconcile(me, [])
        await s.run("DELETE FROM outlast_jobs WHERE queue LIKE 'suspects%'")


async def test_reconciling_and_beating_find_own_jobs_by_index(full_url: str) -> None:
    async with session(full_url) as s:
        me = await s.store.register(new_worker("reconcile"))
        await s.store.enqueue([NewJob(task="t") for _ in range(20)])
        held = await s.claim(me, 20)
        await s.store.cancel([held[0].job_id])
        assert (await s.store.heartbeat(me)).cancels
        assert len(await s.store.reconcile(me, [])) == len(held)
        used = by_index(await s.settled())
        assert used & {"outlast_jobs_worker", "outlast_jobs_cancel"}


async def test_reaping_and_reclaiming_find_orphans_by_index(full_url: str) -> None:
    async with session(full_url) as s:
        me = await s.store.register(new_worker("reap"))
        await s.store.enqueue([NewJob(task="t") for _ in range(20)])
        held = await s.claim(me, 20)
        for seen in (await s.store.observe()).workers:
            await s.store.reap(seen)
        closed = {each.token for each in await s.store.reclaim(lost_worker)}
        assert {each.token for each in held} <= closed
        assert "outlast_jobs_worker" in by_index(await s.settled())


async def test_saving_and_reporting_find_their_rows_by_index(full_url: str) -> None:
    async with session(full_url) as s:
        me = await s.store.register(new_worker("save"))
        await s.store.enqueue([NewJob(task="t") for _ in range(5)])
        held = await s.claim(me, 5)
        saves = [Save(each.job_id, each.token, 1, "{}") for each in held]
        assert set(await s.store.checkpoint(saves)) == {"accepted"}
        reports = [Report(each.job_id, each.token, Progress(fraction=0.5)) for each in held]
        assert set(await s.store.progress(reports)) == {"accepted"}
        assert "outlast_jobs_pkey" in by_index(await s.settled())
        await s.store.reconcile(me, [])


async def test_enqueuing_with_a_key_finds_the_holder_by_index(full_url: str) -> None:
    async with session(full_url) as s:
        first = await s.store.enqueue([NewJob(task="t", key="k")])
        again = await s.store.enqueue([NewJob(task="t", key="k"), NewJob(task="t")])
        assert again[0].job_id == first[0].job_id
        assert "outlast_jobs_key" in by_index(await s.settled())


@pytest.mark.parametrize("verb", ["last_attempts", "last_ends"])
async def test_the_last_attempt_of_each_listed_job_is_found_by_index(
    full_url: str, verb: str
) -> None:
    async with session(full_url) as s:
        found = await getattr(s.store.inspector, verb)(range(20_000, 20_300))
        assert len(found) == 300
        attempts = [
            one for one in await s.settled() if one.get("Relation Name") == "outlast_attempts"
        ]
        indexes = {"outlast_attempts_job", "outlast_attempts_pkey"}
        assert {node["Index Name"] for node in attempts} == indexes
        assert all(node["Actual Rows"] <= 1 for node in attempts)  # for each job
        assert all(node.get("Rows Removed by Filter", 0) == 0 for node in attempts)


async def test_a_page_of_the_history_reads_no_attempts_of_later_pages(full_url: str) -> None:
    async with session(full_url) as s:
        found = await s.store.inspector.history(5_000, 300)
        assert len(found.jobs) == 300
        scans = [one for one in await s.settled() if "attempts" in str(one.get("Relation Name"))]
        assert scans
        for node in scans:
            assert node.get("Actual Rows", 0) + node.get("Rows Removed by Filter", 0) <= WIDE


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.DEAD])
async def test_listed_jobs_of_a_state_are_found_among_finished_ones_by_an_index_of_their_own(
    full_url: str, state: State
) -> None:
    async with session(full_url) as s:
        await s.store.inspector.job_ids(JobFilter(state=state, queue="no"))
        jobs = [one for one in await s.settled() if one.get("Relation Name") == "outlast_jobs"]
        assert {node["Node Type"] for node in jobs} <= {"Index Scan", "Index Only Scan"}
        used = {node["Index Name"] for node in jobs}
        assert used
        if state is State.DEAD:
            assert "outlast_jobs_dead" in used
        else:
            assert "outlast_jobs_pkey" not in used


async def test_jobs_of_a_label_are_found_by_its_index(full_url: str) -> None:
    async with session(full_url) as s:
        policy = Policy(labels=("few",))
        await s.store.enqueue([NewJob(task="t", policy=policy) for _ in range(20)])
        await s.forget()
        found = await s.store.inspector.job_ids(JobFilter(label="few", task="t", limit=10))
        assert len(found.ids) == 10
        looks = [one for one in await s.settled() if "labels" in str(one.get("Relation Name"))]
        assert looks
        assert all(node["Index Name"] == "outlast_labels_name" for node in looks)
        assert all(node["Actual Rows"] <= WIDE for node in looks)


async def test_counts_for_people_use_an_index(full_url: str) -> None:
    """`outlast why` and `outlast stats`: every count reads an index, and filters out few rows
    that the index could not exclude."""
    async with session(full_url) as s:
        await s.store.enqueue([NewJob(task="t") for _ in range(20)])
        (made,) = await s.store.enqueue([NewJob(task="t", key="looked at", delay=60)])
        await s.forget()
        assert await s.store.inspector.place(made.job_id) is not None
        await s.store.inspector.statistics()
        await s.store.inspector.unencrypted()
        jobs = [one for one in await s.settled() if one.get("Relation Name") == "outlast_jobs"]
        assert len(jobs) > 10
        for node in jobs:
            assert node["Node Type"] in {"Index Scan", "Index Only Scan"}, json.dumps(node)
            assert node.get("Rows Removed by Filter", 0) <= WIDE, json.dumps(node)
        used = {node["Index Name"] for node in jobs}
        assert {"outlast_jobs_lane", "outlast_jobs_ended_at"} <= used
