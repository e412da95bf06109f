"""Rows that came without the numbers of their server, as by logical replication or COPY.

What a sequence gives out next is above all rows again once a worker has come, or `outlast migrate
--after-restore` was run.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from outlast.errors import StoreUnavailable
from outlast.store.postgres.checks import PostgresFacts
from outlast.store.postgres.store import PostgresStore
from outlast.store.rows import JobFilter
from tests.conformance.kit import Hands, enqueued, job
from tests.conformance.shop_kit import an_app

HIGH = 5_000_000
NO_NUMBERS = {
    "outlast_token_seq": "jumps to the time of day",
    "outlast_watch_1_seq": "a register: it numbers nothing",
    "outlast_watch_2_seq": "a register: it numbers nothing",
    "outlast_watch_3_seq": "a register: it numbers nothing",
}
# A row with a number that its sequence has not reached: its table, the column, and other columns.
TIMES = {"run_at": "0", "enqueued_at": "0"}
LANE = {"task": "'t'", "queue": "'q'"}
ROWS: dict[str, tuple[str, str, dict[str, str]]] = {
    "outlast_jobs_id_seq": ("outlast_jobs", "id", {**TIMES, **LANE, "args": "''"}),
    "outlast_position_seq": ("outlast_jobs", "position", {**TIMES, **LANE, "args": "''"}),
    "outlast_turn_seq": (
        "outlast_streams",
        "turn",
        {**LANE, **dict.fromkeys(("id", "touched_at", "rank"), "1")}
        | {"permits": "'{}'", "costs": "'{}'", "needs": "''"},
    ),
    "outlast_workers_id_seq": (
        "outlast_workers",
        "id",
        dict.fromkeys(("name", "host", "boot_id"), "'w'")
        | dict.fromkeys(("started_at", "heartbeat_at", "lease_expires_at"), "0")
        | {"pid": "1", "heartbeat": "1", "lease": "6"},
    ),
    "outlast_refusals_id_seq": (
        "outlast_refusals",
        "id",
        {"job_id": "1", "token": "1", "verb": "'end'", "at": "0"},
    ),
    "outlast_pauses_id_seq": (
        "outlast_pauses",
        "id",
        {"kind": "'queue'", "name": "'x'", "paused_at": "0"},
    ),
    "outlast_actions_id_seq": (
        "outlast_actions",
        "id",
        {"at": "0", "actor": "'a'", "verb": "'v'", "moved_at": "0"},
    ),
    "outlast_notices_id_seq": ("outlast_notices", "id", {"stream": "1"}),
    "outlast_upstream_notices_id_seq": ("outlast_upstream_notices", "id", {"job_id": "1"}),
}
SEQUENCES = """
SELECT c.relname::text FROM pg_class c
WHERE c.relkind = 'S' AND c.relnamespace = 'public'::regnamespace ORDER BY 1"""


async def test_each_sequence_goes_on_above_the_rows_once_a_worker_has_come(
    store: PostgresStore, session: Any
) -> None:
    found = {name for (name,) in await session.fetch(SEQUENCES)}
    assert found == ROWS.keys() | NO_NUMBERS.keys(), "say how a new one is raised"
    wrong = {}
    for name, (table, column, others) in ROWS.items():
        await session.execute(f"ALTER SEQUENCE {name} RESTART")
        columns, values = ", ".join(others), ", ".join(others.values())
        await session.execute(
            f"INSERT INTO {table} ({column}, {columns}) VALUES ({HIGH}, {values})"
        )
        seen = await behind(store)
        await Hands.on(store, name)
        following = await session.fetchval(f"SELECT nextval('{name}')")
        if following <= HIGH or name not in seen or await behind(store):
            wrong[name] = (following, seen)
    assert not wrong


async def behind(store: PostgresStore) -> list[str]:
    """What the doctor says is behind."""
    facts = await store.inspector.environment()
    assert isinstance(facts, PostgresFacts)
    return list(facts.behind)


async def test_numbers_that_are_not_behind_stay(store: PostgresStore, session: Any) -> None:
    await enqueued(store, job(), job(delay=60))
    position = "SELECT last_value, is_called FROM outlast_position_seq"
    before = await session.fetchrow(position)
    await Hands.on(store, "again")
    await store.raise_tokens(0)
    assert (
        await session.fetchrow("SELECT last_value, is_called FROM outlast_position_seq") == before
    )
    (last,) = await enqueued(store)
    assert last == 3


async def test_a_job_that_comes_after_a_move_waits_behind_those_from_before(
    store: PostgresStore, session: Any
) -> None:
    """Also where the operator has set the sequence of ids that an error named, and no more."""
    old = await enqueued(store, *[job() for _ in range(3)])
    await session.execute(
        "UPDATE outlast_jobs SET position = position + 1000000 WHERE position IS NOT NULL"
    )
    hands = await Hands.on(store)
    new = await enqueued(store, *[job() for _ in range(3)])
    claimed = [each.job_id for _ in range(6) for each in await hands.claim(1)]
    assert claimed == [*old, *new]


async def test_a_number_that_is_taken_is_no_value_of_the_callers(
    pg_url: str, store: PostgresStore, session: Any
) -> None:
    await enqueued(store)
    await session.execute("ALTER SEQUENCE outlast_jobs_id_seq RESTART")
    says = "outlast migrate --after-restore"
    with pytest.raises(StoreUnavailable, match=says):
        await enqueued(store)
    app = an_app(pg_url)
    await session.execute("ALTER SEQUENCE outlast_jobs_id_seq RESTART")
    with pytest.raises(StoreUnavailable, match=says):
        await app.tasks["mail"].using(connection=session).enqueue("a")
    await session.execute("ALTER SEQUENCE outlast_jobs_id_seq RESTART")
    with psycopg.connect(pg_url) as mine, pytest.raises(StoreUnavailable, match=says):
        await app.tasks["mail"].using(connection=mine).enqueue("a")
    await app.close()
    await store.raise_tokens(0)  # as that command does
    await enqueued(store)
    assert len(await store.inspector.jobs(JobFilter())) == 2
