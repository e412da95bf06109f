"""What claims, and people, read of limits is bounded, however many keys a limit has."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from outlast.insight.queries import list_jobs
from outlast.model.job import State
from outlast.model.limits import Per, permit_id
from outlast.store.limits import BLOCKING_LOOKED_AT, PERMITS_SHOWN, WAITING_SHOWN
from outlast.store.rows import JobFilter
from outlast.store.statistics import STATISTICS_MAX
from outlast.store.values import Claimed, ClaimRequest
from outlast.web.jobs import BOUNDS
from tests.conformance.kit import ended, new_worker
from tests.conformance.limits_kit import declare, limited, need
from tests.postgres.plans_kit import Session, session
from tests.postgres.test_plans_of_pages import MOST, largest

SHOWN = 30
KEYS = 1000
ROWS = 2 * STATISTICS_MAX + 3 * PERMITS_SHOWN
API = permit_id("api", "")
JOBS = """INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args, position, stream, needs)
SELECT 't', 'q', 0, 0, '{}', nextval('outlast_position_seq'), """
STREAMS = """INSERT INTO outlast_streams
(id, turn, blocked, touched_at, rank, task, queue, permits, costs, needs)
SELECT n, n, nullif(%s, 0), 0, 0, 't', 'q', ARRAY[n], '{1}', '[]' FROM generate_series(%s) n"""
CROWD = [
    """INSERT INTO outlast_permits (id, name, key, touched_at, used)
    SELECT n, 'host', 'k' || n, 0, CASE WHEN n > 20000 THEN 3 ELSE 0 END
    FROM generate_series(1, 20001) n""",
    STREAMS % ("n", "1, 20000"),
    STREAMS % ("0", "20001, 20001"),
    f"{JOBS} n, '[]' FROM generate_series(1, 20000) n",
    """INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args, state, worker_id, token,
        attempt_count, started_at, stream, needs)
    SELECT 't', 'q', 0, 0, '{}', 'running', 1, nextval('outlast_token_seq'),
        1, date_part('epoch', now()), 20001, '[]' FROM generate_series(1, 3)""",
    f"INSERT INTO outlast_permits (id, name, key, touched_at) VALUES ({API}, 'api', '', 0)",
    STREAMS % (API, "20002, 20002"),
    f"{JOBS} 20002, '[]' FROM generate_series(1, 30000)",
    "ANALYZE",
]


def read_of(scans: list[dict[str, Any]], table: str) -> float:
    """Return how many rows were read of a table, by index."""
    mine = [one for one in scans if one.get("Relation Name") == table]
    assert [one for one in mine if one["Node Type"] == "Seq Scan"] == [], json.dumps(mine)
    return sum(
        (one["Actual Rows"] + one.get("Rows Removed by Filter", 0)) * one["Actual Loops"]
        for one in mine
    )


async def crowded(s: Session) -> None:
    """Make a limit with 20,000 keys that block a job each, one of which runs three; and one for all
    that blocks 30,000 jobs."""
    await s.store.open()
    await declare(s.store, "host", running=1, per="limit_key")
    await declare(s.store, "api", running=1)
    await s.store.register(new_worker())
    await s.run(*CROWD)
    s.plans.clear()


async def test_an_exchange_reads_jobs_and_keys_by_their_ids(pg_url: str) -> None:
    """Also by plans from the time when there was one: then each other way looks cheap."""
    async with session(pg_url) as s:
        await s.store.open()
        await declare(s.store, running=1, per="limit_key")
        me = await s.store.register(new_worker(tasks=["t"]))
        await s.run("VACUUM ANALYZE")
        requests = [ClaimRequest(["t"], 100, ["default"])]
        held: list[Claimed] = []
        for first, last in pairwise((0, 1, KEYS, 2 * KEYS, 3 * KEYS)):
            s.plans.clear()
            jobs = [limited(need("a", str(key)), task="t") for key in range(first, last)]
            await s.store.enqueue(jobs)
            lost = [ended(replace(each, token=1)) for each in held[:1]]
            held = (await s.store.exchange(me, [*lost, *map(ended, held)], requests)).claimed
            assert len(held) == min(last - first, 100)
            assert [one for one in await s.settled() if walked(one) > 2 * KEYS] == []


OF_TENANT = """INSERT INTO outlast_jobs
(task, queue, run_at, enqueued_at, args, tenant, stream, needs, position)
SELECT task, queue, 0, 0, '{}', tenant, stream, needs, nextval('outlast_position_seq')
FROM outlast_jobs, generate_series(1, 20000) WHERE tenant = 'paused'"""


@pytest.mark.parametrize("kind", ["in turns", "under a limit of its own", "behind a shared limit"])
async def test_an_exchange_reads_no_jobs_of_a_paused_tenant_in_its_own_stream(
    pg_url: str, kind: str
) -> None:
    """Behind a limit that is full: once there is room, an exchange opens streams."""
    per = Per.TENANT if kind == "under a limit of its own" else None
    async with session(pg_url) as s:
        await s.store.open()
        await declare(s.store, running=2, per=per)
        me = await s.store.register(new_worker(tasks=["t"]))
        for tenant, count in (("other", 30), ("paused", 1)):
            needs = [] if kind == "in turns" else [need("a", tenant if per else "")]
            one = limited(*needs, fair=None if per else tenant, tenant=tenant, task="t")
            await s.store.enqueue([one] * count)
        request = ClaimRequest(["t"], 2, not_tenants=("paused",))
        held = (await s.store.exchange(me, [], [request])).claimed
        await s.run(OF_TENANT, "ANALYZE")
        for _ in range(2):
            await s.forget()
            held = (await s.store.exchange(me, [*map(ended, held)], [request])).claimed
            assert [each.tenant for each in held] == ["other"] * 2
            assert [one for one in await s.settled() if walked(one) > KEYS] == []


def walked(node: dict[str, Any]) -> float:
    """Return how many rows a part of a plan has looked at."""
    removed = ("Rows Removed by Filter", "Rows Removed by Join Filter")
    rows: float = node["Actual Rows"] + sum(node.get(each, 0) for each in removed)
    return rows * node["Actual Loops"]


async def test_a_list_of_limits_stops_counting(pg_url: str) -> None:
    async with session(pg_url) as s:
        await crowded(s)
        api, host = await s.store.inspector.limits()
        assert (host.permits, host.used, host.at_least) == (
            PERMITS_SHOWN,
            3,
            ["permits", "waiting"],
        )
        assert host.waiting == BLOCKING_LOOKED_AT
        assert (api.waiting, api.at_least) == (STATISTICS_MAX // 2 - 2, ["waiting"])
        scans = await s.settled()
        tables = ("outlast_permits", "outlast_streams", "outlast_jobs")
        assert {one: read_of(scans, one) <= ROWS for one in tables} == dict.fromkeys(tables, True)


@pytest.mark.slow
async def test_jobs_that_wait_for_a_limit_are_listed_by_a_bounded_look(pg_url: str) -> None:
    async with session(pg_url) as s:
        await crowded(s)
        await s.store.register(new_worker(tasks=["t"]))
        for phase, number in (("limited", SHOWN), ("throttled", 0)):
            s.plans.clear()
            which = JobFilter(state=State.QUEUED, limit=SHOWN)
            found = await list_jobs(s.store, which, phase, BOUNDS)
            assert len(found.rows) == number
            assert found.before is not None
            assert largest(await s.settled()) <= MOST


async def test_the_busiest_keys_are_found_among_many(pg_url: str) -> None:
    async with session(pg_url) as s:
        await crowded(s)
        found = await s.store.inspector.permits("host")
        assert (found[0].key, found[0].used, found[0].waiting) == ("k20001", 3, 0)
        assert [one.waiting for one in found[1:]] == [1] * (PERMITS_SHOWN - 1)
        assert [one.waiting for one in await s.store.inspector.permits("api")] == [WAITING_SHOWN]
        scans = await s.settled()
        assert read_of(scans, "outlast_permits") <= 2 * ROWS
