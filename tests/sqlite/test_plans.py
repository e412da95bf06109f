"""The exchange on SQLite: a constant number of statements, and each by the right index."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from typing import Any

import pytest

from outlast.model.lifecycle import OutcomeKind
from outlast.model.limits import LimitSpec, Per, permit_id
from outlast.store.limit_counts import PROBE
from outlast.store.limits import BLOCKING_LOOKED_AT, PERMITS_SHOWN, NewLimit
from outlast.store.queue_turns import Turns
from outlast.store.sqlite import exchange, schema, workers
from outlast.store.sqlite import jobs as sqlite_jobs
from outlast.store.sqlite import limits as sqlite_limits
from outlast.store.sqlite.lanes import DUE_MAX
from outlast.store.sqlite.statements import statements
from outlast.store.values import Answer, Claimed, ClaimRequest, WorkerRef
from tests.conformance.kit import TASK, ended, job, new_worker
from tests.conformance.limits_kit import limited, need
from tests.sqlite.inspector_kit import inspector_on

NOW = 1_000.0
MANY = 300


@pytest.fixture
def cursor() -> Iterator[sqlite3.Cursor]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        cursor = connection.cursor()
        schema.migrate(cursor, NOW)
        sqlite_jobs.enqueue(cursor, NOW, [job() for _ in range(2 * MANY)])
        yield cursor


def registered(cursor: sqlite3.Cursor) -> WorkerRef:
    return workers.register(cursor, NOW, new_worker())


def claim(cursor: sqlite3.Cursor, me: WorkerRef, limit: int) -> list[Claimed]:
    requests = [ClaimRequest(tasks=[TASK], limit=limit)]
    return exchange.exchange(cursor, NOW, me, [], requests).claimed


def statements_of_a_trip(cursor: sqlite3.Cursor, me: WorkerRef, size: int) -> list[str]:
    """Hand in and claim ``count`` jobs; return the verbs of the statements in their order. With a
    trigger a statement is shown once more for each row."""
    ends = [ended(one, OutcomeKind.COMPLETED, result="1") for one in claim(cursor, me, size)]
    seen: list[str] = []
    cursor.connection.set_trace_callback(seen.append)
    reply = exchange.exchange(cursor, NOW, me, ends, [ClaimRequest(tasks=[TASK], limit=size)])
    cursor.connection.set_trace_callback(None)
    assert reply.answers == [Answer.ACCEPTED] * size
    assert len(reply.claimed) == size
    return [text.split(" ")[0] for text, _ in groupby(seen)]


def test_a_trip_takes_as_many_statements_for_one_job_as_for_many(cursor: sqlite3.Cursor) -> None:
    me = registered(cursor)
    assert statements_of_a_trip(cursor, me, 1) == statements_of_a_trip(cursor, me, MANY - 1)


def test_enqueuing_takes_as_many_statements_for_one_job_as_for_many(
    cursor: sqlite3.Cursor,
) -> None:
    seen: list[int] = []
    for size in (1, MANY):
        before = len(seen)
        cursor.connection.set_trace_callback(lambda _: seen.append(1))
        sqlite_jobs.enqueue(cursor, NOW, [job(args=str(n)) for n in range(size)])
        cursor.connection.set_trace_callback(None)
        assert len(seen) - before == 2


def test_declaring_takes_as_many_statements_for_one_limit_as_for_many(
    cursor: sqlite3.Cursor,
) -> None:
    seen: list[str] = []
    for size in (1, MANY):
        limits = [NewLimit(f"{size}-{n}", LimitSpec(running=1)) for n in range(size)]
        seen.clear()
        cursor.connection.set_trace_callback(seen.append)
        assert sqlite_limits.find_news(cursor, NOW, limits, []) == (limits, [])
        sqlite_limits.declare_limits(cursor, NOW, limits, [])
        assert sqlite_limits.find_news(cursor, NOW, limits, []) == ([], [])
        cursor.connection.set_trace_callback(None)
        assert len(seen) == 8


def test_many_long_arguments_go_in_several_texts(
    cursor: sqlite3.Cursor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_jobs, "TEXT_MAX", 100)
    texts = [f'"{n:030}"' for n in range(20)]
    texts_seen: list[str] = []
    cursor.connection.set_trace_callback(texts_seen.append)
    made = sqlite_jobs.enqueue(cursor, NOW, [job(args=text) for text in texts])
    cursor.connection.set_trace_callback(None)
    assert max(map(len, texts_seen)) < 1_000
    rows = cursor.execute(
        "SELECT args FROM outlast_jobs WHERE id >= ? ORDER BY position", (made[0].job_id,)
    ).fetchall()
    assert [row[0] for row in rows] == texts


def plan(cursor: sqlite3.Cursor, name: str) -> str:
    text = exchange._SQL[name]
    values = {"now": NOW, "results": "{}", "worker_id": 1, "token": 1, "ids": "[]"}
    values |= {"lanes": f'[["default", "{TASK}"]]', "most": 1, "long": 1, "tenants": "[]"}
    rows = cursor.execute(f"EXPLAIN QUERY PLAN {text}", values).fetchall()
    return "; ".join(row[3] for row in rows)


@pytest.mark.parametrize("analyzed", [False, True], ids=["as-made", "analyzed"])
def test_rows_are_found_one_by_one_and_the_line_by_its_index(
    cursor: sqlite3.Cursor, analyzed: bool
) -> None:
    claim(cursor, registered(cursor), MANY)
    if analyzed:
        cursor.execute("ANALYZE")
    for name in ("complete", "claim"):
        assert plan(cursor, name).endswith("SEARCH j USING INTEGER PRIMARY KEY (rowid=?)"), name
    lanes = plan(cursor, "first_of_lanes")
    assert "SEARCH n USING COVERING INDEX outlast_jobs_line (task=? AND queue=?)" in lanes
    assert "SEARCH j USING INTEGER PRIMARY KEY (rowid=?)" in lanes
    assert "TEMP B-TREE" not in lanes


@pytest.mark.parametrize("analyzed", [False, True], ids=["as-made", "analyzed"])
def test_the_last_attempt_of_each_listed_job_is_found_by_its_index(
    cursor: sqlite3.Cursor, analyzed: bool
) -> None:
    me = registered(cursor)
    for _ in range(2):
        ends = [ended(one, OutcomeKind.RELEASED) for one in claim(cursor, me, MANY)]
        exchange.exchange(cursor, NOW, me, ends, [])
    if analyzed:
        cursor.execute("ANALYZE")
    values = {"ids": "[]", "whole": True}
    text = statements("evidence")["last_ends"]
    rows = cursor.execute(f"EXPLAIN QUERY PLAN {text}", values).fetchall()
    found = "; ".join(row[3] for row in rows)
    assert "SEARCH o USING COVERING INDEX outlast_attempts_job (job_id=?)" in found
    assert "SEARCH a USING INTEGER PRIMARY KEY (rowid=?)" in found
    assert "TEMP B-TREE" not in found


@pytest.mark.parametrize("analyzed", [False, True], ids=["as-made", "analyzed"])
def test_groups_of_dead_jobs_read_an_index_and_no_rows(
    cursor: sqlite3.Cursor, analyzed: bool
) -> None:
    me = registered(cursor)
    ends = [ended(one, OutcomeKind.DEAD) for one in claim(cursor, me, MANY)]
    exchange.exchange(cursor, NOW, me, ends, [])
    if analyzed:
        cursor.execute("ANALYZE")
    look = statements("evidence")
    values = {"rows": 100, "groups": 10, "tenant": None, "now": NOW, "before": 10**9, "floor": 0}
    values |= {"outcomes": None, "worker_id": None, "limit": 10}
    plans = {
        name: "; ".join(
            row[3] for row in cursor.execute(f"EXPLAIN QUERY PLAN {look[name]}", values)
        )
        for name in ("dead_groups", "ended_floor", "ended", "causes", "suspects")
    }
    assert "USING COVERING INDEX outlast_jobs_dead" in plans["dead_groups"]
    assert "SEARCH a USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)" in plans["ended"]
    assert "TEMP B-TREE" not in plans["ended"] + plans["ended_floor"] + plans["suspects"]
    assert "USING INDEX outlast_jobs_incident" in plans["suspects"]


def steps(cursor: sqlite3.Cursor, me: WorkerRef, limit: int = 10, **request: Any) -> int:
    """Claim jobs of the queue "mine" or of those that the request names; return how many steps of
    SQLite's machine that took."""
    sqlite_jobs.enqueue(cursor, NOW, [job(queue="mine") for _ in range(limit)])
    count = [0]

    def counts() -> None:
        count[0] += 1

    cursor.connection.set_progress_handler(counts, 1)
    requests = [ClaimRequest(tasks=[TASK], limit=limit, **request)]
    reply = exchange.exchange(cursor, NOW, me, [], requests, turns=Turns())
    cursor.connection.set_progress_handler(None, 1)
    assert len(reply.claimed) == limit
    return count[0]


CROWDS: dict[str, dict[str, Any]] = {
    "scheduled": {"delay": 1_000.0},
    "of an unknown task": {"task": "unknown"},
    "due": {},
}


@pytest.mark.parametrize("queues", [[], ["mine"]], ids=["all-queues", "one-queue"])
@pytest.mark.parametrize("crowd", CROWDS)
def test_a_claim_costs_the_same_beside_few_queues_and_beside_many(
    cursor: sqlite3.Cursor, crowd: str, queues: list[str]
) -> None:
    cursor.execute("DELETE FROM outlast_jobs")
    me = registered(cursor)
    costs = []
    for first, last in ((0, 50), (50, 5_000)):
        jobs = [job(queue=f"q{n}", **CROWDS[crowd]) for n in range(first, last)]
        sqlite_jobs.enqueue(cursor, NOW, jobs)
        costs.append(steps(cursor, me, queues=queues))
    assert costs[1] < 1.2 * costs[0]


def test_scheduled_jobs_of_many_queues_fall_due_in_bounded_parts_and_delay_no_other(
    cursor: sqlite3.Cursor,
) -> None:
    cursor.execute("DELETE FROM outlast_jobs")
    me = registered(cursor)
    crowd = [job(queue=f"q{n}", task="unknown", delay=1.0) for n in range(3 * DUE_MAX)]
    sqlite_jobs.enqueue(cursor, NOW - 10.0, crowd)
    first, second = (steps(cursor, me) for _ in range(2))
    assert second < 1.2 * first
    for left in (DUE_MAX, 0):
        scheduled = "SELECT count(*) FROM outlast_jobs WHERE state = 'queued' AND position IS NULL"
        assert cursor.execute(scheduled).fetchone()[0] == left
        reply = exchange.exchange(cursor, NOW, me, [], [ClaimRequest(tasks=[TASK], limit=1)])
        assert (reply.claimed, reply.next_due) == ([], 0.0 if left > DUE_MAX else None)


PAUSED = """
WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 100000)
INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args, position)
SELECT :task, 'a paused one', 0, 0, '{}', -value FROM n"""


def steps_of_a_claim(cursor: sqlite3.Cursor, me: WorkerRef, request: ClaimRequest) -> int:
    """Claim ten jobs; return how many thousand steps of SQLite's machine that took."""
    steps: list[int] = []
    cursor.connection.set_progress_handler(lambda: steps.append(1), 1_000)
    assert len(exchange.exchange(cursor, NOW, me, [], [request]).claimed) == 10
    cursor.connection.set_progress_handler(None, 0)
    return len(steps)


def test_a_hundred_thousand_paused_jobs_slow_no_claim_of_others(cursor: sqlite3.Cursor) -> None:
    me = registered(cursor)
    usual = steps_of_a_claim(cursor, me, ClaimRequest(tasks=[TASK], limit=10))
    cursor.execute(PAUSED, {"task": TASK})
    request = ClaimRequest(tasks=[TASK], limit=10, not_queues=("a paused one",))
    assert steps_of_a_claim(cursor, me, request) <= usual + 2


OF_TENANT = """
WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 100000)
INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args, tenant, stream, needs, position)
SELECT task, queue, 0, 0, '{}', tenant, stream, needs, -value FROM outlast_jobs, n WHERE id = :id"""


@pytest.mark.parametrize("kind", ["in turns", "under a limit of its own", "behind a shared limit"])
def test_a_hundred_thousand_jobs_in_the_stream_of_a_paused_tenant_slow_no_claim(
    cursor: sqlite3.Cursor, kind: str
) -> None:
    """Behind a limit that is full: once a permit is free, an exchange opens streams."""
    me = registered(cursor)
    per = Per.TENANT if kind == "under a limit of its own" else None
    sqlite_limits.declare_limits(cursor, NOW, [NewLimit("a", LimitSpec(running=40, per=per))], [])
    stored = []
    for tenant, count in (("other", 30), ("paused", 1)):
        needs = [] if kind == "in turns" else [need("a", tenant if per else "")]
        one = limited(*needs, fair=None if per else tenant, tenant=tenant)
        stored = sqlite_jobs.enqueue(cursor, NOW, [one] * count)
    request = ClaimRequest(tasks=[TASK], limit=10, not_tenants=("paused",))
    steps = []
    for statement in ("SELECT 1", "SELECT 1", OF_TENANT):
        cursor.execute(statement, {"id": stored[0].job_id})
        steps.append(steps_of_a_claim(cursor, me, request))
        if kind == "behind a shared limit":
            assert cursor.execute("UPDATE outlast_permits SET freed = 1").rowcount == 1
            cursor.execute("UPDATE outlast_streams SET blocked = ?", (permit_id("a", ""),))
    assert steps[2] <= steps[1] + 2


LANES = """
WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 30000)
INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args, position)
SELECT 'many' || (value % 30), 'default', 0, 0, '{}', value FROM n"""
SCHEDULED = """
WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 30000)
INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args)
SELECT 't', 'q' || (value % 30), 1e9, 0, '{}' FROM n"""


async def test_what_many_lanes_take_together_is_bounded(cursor: sqlite3.Cursor) -> None:
    cursor.execute(LANES)
    cursor.execute(SCHEDULED)
    count = [0]

    def counts() -> None:
        count[0] += 1_000

    cursor.connection.set_progress_handler(counts, 1_000)
    found = await inspector_on(cursor, NOW).statistics(1_000, 1_000)
    of_numbers, count[0] = count[0], 0
    values = {"id": 2 * MANY + 20_000, "now": NOW, "most": 1_000, "named": 10}
    place = cursor.execute(statements("place")["place"], values).fetchone()
    cursor.connection.set_progress_handler(None, 0)
    many = [one for one in found.lanes if one.task.startswith("many")]
    assert [(one.number, one.at_least) for one in many] == [(1_000 // 31 - PROBE, True)] * 30
    assert {one.at_least for one in found.scheduled} == {True}
    assert of_numbers < 100_000, "2 x 1,000 rows of lanes, and as many of queues"
    assert place[0] == 1_000
    assert count[0] < 100_000, "1,000 rows for each number"


def test_a_job_is_found_by_its_token_or_its_key_among_many_finished_ones(
    cursor: sqlite3.Cursor,
) -> None:
    text = statements("inspect")["named"]
    values = {"token": 17, "key": "k", "limit": 10}
    plan_of = "; ".join(row[3] for row in cursor.execute(f"EXPLAIN QUERY PLAN {text}", values))
    assert "USING INDEX outlast_jobs_worker" in plan_of
    assert "USING INDEX outlast_jobs_key (key=?)" in plan_of
    assert "SCAN outlast_jobs\n" not in plan_of + "\n"


KEYS = """
WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 20000)
INSERT INTO outlast_permits (id, name, key) SELECT value, 'host', 'k' || value FROM n"""
BLOCKED = """
INSERT INTO outlast_streams (id, task, queue, rank, needs, turn, touched_at, blocked)
SELECT id, 't', 'q', 0, '[]', id, 0, id FROM outlast_permits"""
BEHIND = """
INSERT INTO outlast_jobs (task, queue, run_at, enqueued_at, args, position, stream, needs)
SELECT 't', 'q', 0, 0, '{}', id, id, '[]' FROM outlast_streams"""


async def test_what_people_read_of_limits_is_bounded(cursor: sqlite3.Cursor) -> None:
    spec = LimitSpec(running=1, per=Per.LIMIT_KEY)
    sqlite_limits.declare_limits(cursor, NOW, [NewLimit("host", spec)], [])
    for statement in (KEYS, BLOCKED, BEHIND):
        cursor.execute(statement)
    count = [0]

    def counts() -> None:
        count[0] += 1_000

    inspector = inspector_on(cursor, NOW)
    cursor.connection.set_progress_handler(counts, 1_000)
    (host,) = await inspector.limits()
    of_list, count[0] = count[0], 0
    permits = await inspector.permits("host")
    cursor.connection.set_progress_handler(None, 0)
    assert (host.permits, host.waiting) == (PERMITS_SHOWN, BLOCKING_LOOKED_AT)
    assert host.at_least == ["permits", "waiting"]
    assert [one.waiting for one in permits] == [1] * PERMITS_SHOWN
    assert of_list < 150_000, "1,000 permits that block, and a job of each"
    assert count[0] < 300_000


@pytest.mark.parametrize("analyzed", [False, True], ids=["as-made", "analyzed"])
def test_what_changes_for_an_end_is_found_by_its_state(
    cursor: sqlite3.Cursor, analyzed: bool
) -> None:
    """The links that have been met already are not read again."""
    if analyzed:
        cursor.execute("ANALYZE")
    text = statements("dependencies")["pairs"]
    rows = cursor.execute(f"EXPLAIN QUERY PLAN {text}", {"ids": "[]", "most": 9}).fetchall()
    found = "; ".join(row[3] for row in rows)
    assert "outlast_dependencies_upstream (upstream_id=? AND state=?)" in found
