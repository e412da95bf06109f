"""A claim on PostgreSQL reads lanes that are named, so all that joins the line names its lane."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import asyncpg
import pytest

from harness.stores import held_open
from outlast.base.clock import SYSTEM
from outlast.insight.verify import verify
from outlast.model.lifecycle import OutcomeKind
from outlast.store.foreign import checked
from outlast.store.postgres.checks import LANES_MAX, PostgresFacts
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import NewEvent, NewJob, OnKey, Upstream
from tests.conformance.kit import TASK, Hands, ended, enqueued, eventually, job, on, reclaimed
from tests.conformance.test_children import spawned, waits
from tests.postgres.kit import change_function

FORGET = "DELETE FROM outlast_lanes"
OLD = "UPDATE outlast_lanes SET added_at = added_at - 172800"
NAMED = "SELECT queue, count(*) FROM outlast_lanes GROUP BY queue ORDER BY queue"
TIDY = "SELECT outlast_thin_lanes_v1()"


@pytest.fixture
def url(pg_url: str, request: pytest.FixtureRequest) -> str:
    """By way of a pooler of transactions, if a test asks for that."""
    if getattr(request, "param", None) == "pooler":
        return str(request.getfixturevalue("pgbouncer").through(pg_url))
    return pg_url


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    async with held_open(PostgresStore(url)) as store:
        yield store


@pytest.fixture
async def session(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url, statement_cache_size=0)
    yield connection
    await connection.close()


@pytest.fixture
async def hands(store: PostgresStore) -> Hands:
    return await Hands.on(store)


async def ids_claimed(hands: Hands) -> list[int]:
    return [each.job_id for each in await hands.claim()]


async def test_verify_finds_jobs_of_a_lane_that_is_missing(
    store: PostgresStore, session: asyncpg.Connection
) -> None:
    await enqueued(store, job(), job(queue="other"), job(delay=60.0))
    assert (await verify(store.inspector)).findings == []
    await session.execute(f"{FORGET} WHERE queue = 'other'")
    (found,) = (await verify(store.inspector)).findings
    assert found.rule == "no_stream_is_forgotten"
    assert "in the queue 'other' wait, but no worker would find them" in found.sentence


# ------------------------------------------------------------------------------- enqueues


@pytest.mark.parametrize(
    "url", ["direct", pytest.param("pooler", marks=pytest.mark.pgbouncer)], indirect=True
)
async def test_a_lane_counts_as_named_only_once_that_is_committed(
    hands: Hands, session: asyncpg.Connection
) -> None:
    """The first enqueue of a queue is rolled back; the next one on that connection names it."""
    for _ in range(2):
        transaction = session.transaction()
        await transaction.start()
        for _ in range(3):
            await on(session).enqueue([job(queue="new")])
        await transaction.rollback()
    async with session.transaction():
        savepoint = session.transaction()
        await savepoint.start()
        await on(session).enqueue([job(queue="new")])
        await savepoint.rollback()
        (stored,) = await on(session).enqueue([job(queue="new")])
    assert await ids_claimed(hands) == [stored.job_id]
    (again,) = await on(session).enqueue([job(queue="new")])
    assert await ids_claimed(hands) == [again.job_id]


async def test_a_session_that_believes_its_own_transaction_leaves_a_job_behind(
    hands: Hands, session: asyncpg.Connection
) -> None:
    """The twin of the test above."""
    known = "a.added_by IS NOT NULL AND a.added_by IS DISTINCT FROM"
    await session.execute(
        change_function("outlast_add_lanes_v1", f"{known} pg_current_xact_id_if_assigned()", "true")
    )
    transaction = session.transaction()
    await transaction.start()
    await on(session).enqueue([job(queue="new")])
    await transaction.rollback()
    await on(session).enqueue([job(queue="new")])
    assert await ids_claimed(hands) == []


async def test_an_enqueue_waits_for_no_other_that_names_the_same_lane(
    hands: Hands, session: asyncpg.Connection, pg_url: str
) -> None:
    other = await asyncpg.connect(pg_url, server_settings={"lock_timeout": "1s"})
    async with session.transaction():
        await on(session).enqueue([job(queue="new")])
        (first,) = await on(other).enqueue([job(queue="new")])
        assert await ids_claimed(hands) == [first.job_id]
    await other.close()
    assert len(await hands.claim()) == 1


async def test_of_two_serializable_callers_that_are_first_in_a_lane_one_comes_again(
    hands: Hands, session: asyncpg.Connection, pg_url: str
) -> None:
    """Neither waits; both have looked for the lane, and each has written what the other looked
    for."""
    other = await asyncpg.connect(pg_url)
    transactions = [each.transaction(isolation="serializable") for each in (session, other)]
    for each, transaction in zip((session, other), transactions, strict=True):
        await transaction.start()
        await on(each).enqueue([job(queue="new")])
    await transactions[0].commit()
    with pytest.raises(asyncpg.SerializationError):
        await transactions[1].commit()
    async with other.transaction(isolation="serializable"):
        await on(other).enqueue([job(queue="new")])
    await other.close()
    assert len(await hands.claim()) == 2


async def test_a_session_names_a_lane_twice_and_then_not_for_minutes(
    session: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call cannot know whether it is committed, the second one sees that it was."""
    calls = []
    fetch = asyncpg.Connection.fetch

    async def counted(self: Any, statement: str, *values: Any) -> Any:
        calls.append("outlast_add_lanes_v1" in statement)
        return await fetch(self, statement, *values)

    monkeypatch.setattr(asyncpg.Connection, "fetch", counted)
    for _ in range(4):
        await on(session).enqueue([job()])
    assert calls == [True, False, True, False, False, False]
    monkeypatch.setattr(type(SYSTEM), "boot", lambda _: 9e9)
    await on(session).enqueue([job()])
    assert calls[6:] == [True, False], "it relies on that for some minutes"


@pytest.mark.parametrize(
    "jobs",
    [
        [job(queue="new")],
        [job(queue="new", key="k")],
        [job(queue="new"), job(queue="new")],
        [job(queue="new"), job(queue="other")],
        [job(queue="new", key="k"), job(queue="new", key="l")],
        [job(queue="new", key="k", on_key=OnKey(window=1e9))],
        [job(queue="new", run_at=1.0)],
        [job(queue="new", priority=7), job(queue="new", task="u")],
    ],
)
async def test_each_way_to_enqueue_names_the_lanes(
    store: PostgresStore, hands: Hands, jobs: list[NewJob]
) -> None:
    await enqueued(store, job())
    await hands.claim()
    ids = await enqueued(store, *jobs)
    assert sorted(each.job_id for each in await hands.claim(tasks=[TASK, "u"])) == ids


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_delay_below_a_microsecond_is_none(
    store: PostgresStore, hands: Hands, key: str | None
) -> None:
    ids = await enqueued(store, job(queue="new", delay=4e-7, key=key))
    assert await ids_claimed(hands) == ids


async def test_a_session_that_goes_to_another_schema_names_its_lanes_there(
    pg_url: str, session: asyncpg.Connection
) -> None:
    for name in ("first", "second"):
        await session.execute(f"CREATE SCHEMA {name}; SET search_path = {name}")
        store = PostgresStore(f"{pg_url}?options=-csearch_path%3D{name}")
        await store.open()
        hands = await Hands.on(store)
        for _ in range(3):
            here = await checked(session, await store.store_id())
            await here.enqueue([job()])
        assert len(await hands.claim()) == 3
        await store.close()


async def test_an_enqueue_by_sql_names_the_lane(hands: Hands, session: asyncpg.Connection) -> None:
    await session.execute(
        "INSERT INTO outlast_tasks (name, limits, fair, priority) VALUES ($1, '[]', false, 0)", TASK
    )
    produce = "SELECT outlast_enqueue_v1($1, queue => 'new')"
    ids = [await session.fetchval(produce, TASK) for _ in range(2)]
    assert await ids_claimed(hands) == ids
    assert [tuple(row) for row in await session.fetch(NAMED)] == [("new", 1)]


# -------------------------------------------------------------- what comes back into the line


async def fall_due(store: PostgresStore, hands: Hands, forget: Callable[[], Awaitable[Any]]) -> int:
    (due,) = await enqueued(store, job(delay=0.01))
    await forget()
    return due


async def retry(store: PostgresStore, hands: Hands, forget: Callable[[], Awaitable[Any]]) -> int:
    await enqueued(store, job())
    claimed = await hands.claim_one()
    await forget()
    await hands.hand_in(ended(claimed, OutcomeKind.RELEASED))
    return claimed.job_id


async def reclaim(store: PostgresStore, hands: Hands, forget: Callable[[], Awaitable[Any]]) -> int:
    await enqueued(store, job())
    other = await Hands.on(store, "gone")
    claimed = await other.claim_one()
    await forget()
    await other.vanish()
    await reclaimed(store)
    return claimed.job_id


async def requeue(store: PostgresStore, hands: Hands, forget: Callable[[], Awaitable[Any]]) -> int:
    (cancelled,) = await enqueued(store, job())
    await store.cancel([cancelled])
    await forget()
    await store.requeue([cancelled])
    return cancelled


async def follow(store: PostgresStore, hands: Hands, forget: Callable[[], Awaitable[Any]]) -> int:
    first, second = await enqueued(store, job(), job(queue="b", after=(Upstream(-1),)))
    claimed = await hands.claim_one()
    assert claimed.job_id == first
    await forget()
    await hands.hand_in(ended(claimed))
    return second


async def replace(store: PostgresStore, hands: Hands, forget: Callable[[], Awaitable[Any]]) -> int:
    later = OnKey(replaces=True, due_max=0.0)
    (held,) = await enqueued(store, job(key="k", delay=60.0, on_key=later))
    await forget()
    (same,) = await enqueued(store, job(key="k", delay=60.0, queue="moved", on_key=later))
    assert same == held
    return held


async def await_children(
    store: PostgresStore, hands: Hands, forget: Callable[[], Awaitable[Any]]
) -> int:
    """The last child has ended before its parent waits for it."""
    await enqueued(store, job())
    parent = await hands.claim_one()
    await store.spawn([job(queue="children")], spawned(parent))
    child = await hands.claim_one()
    await store.watch_children(parent.job_id, parent.token, [child.job_id])
    await hands.hand_in(ended(child))
    assert await hands.claim() == []  # resolves the child's end
    await forget()
    await hands.hand_in(waits(parent))
    return parent.job_id


async def wake(store: PostgresStore, hands: Hands, forget: Callable[[], Awaitable[Any]]) -> int:
    await enqueued(store, job())
    claimed = await hands.claim_one()
    await hands.hand_in(ended(claimed, OutcomeKind.SNOOZED, delay=3600, event="answer"))
    await forget()
    await store.send_event(NewEvent("answer", "[1]"))
    return claimed.job_id


@pytest.mark.parametrize(
    "come_back", [fall_due, retry, reclaim, requeue, follow, replace, await_children, wake]
)
async def test_what_comes_back_into_the_line_names_its_lane_again(
    store: PostgresStore, hands: Hands, session: asyncpg.Connection, come_back: Any
) -> None:
    """It may have been away for so long that the lane was forgotten."""

    async def forget() -> None:
        await session.execute(FORGET)

    expected = await come_back(store, hands, forget)
    assert expected in await eventually(lambda: ids_claimed(hands))


# --------------------------------------------------------------------- what is named for how long


async def test_lanes_without_jobs_are_forgotten_after_a_day(
    store: PostgresStore, hands: Hands, session: asyncpg.Connection
) -> None:
    await enqueued(store, job(queue="empty"))
    await hands.claim()
    await enqueued(store, job(queue="full"))
    await session.execute(TIDY)
    assert [row["queue"] for row in await session.fetch(NAMED)] == ["empty", "full"]
    await session.execute(OLD)
    await store.prune(jobs_older_than=1e9, workers_older_than=1e9)
    assert [tuple(row) for row in await session.fetch(NAMED)] == [("full", 1)]
    assert len(await hands.claim()) == 1


async def test_an_old_name_is_renewed_so_that_a_day_is_left(
    store: PostgresStore, hands: Hands, session: asyncpg.Connection
) -> None:
    await enqueued(store, job())
    await session.execute(OLD)
    await session.execute("SELECT outlast_add_lanes_v1($1, $2, '{0}')", [TASK], ["default"])
    assert [tuple(row) for row in await session.fetch(NAMED)] == [("default", 2)]
    await hands.claim()
    await session.execute(TIDY)
    assert [tuple(row) for row in await session.fetch(NAMED)] == [("default", 1)]


async def test_lanes_in_which_jobs_stand_are_named_if_no_row_says_so(
    store: PostgresStore, hands: Hands, session: asyncpg.Connection
) -> None:
    ids = await enqueued(store, *[job(queue=q, priority=p) for q in "ab" for p in (-1, 0, 9)])
    await session.execute(FORGET)
    assert await ids_claimed(hands) == []
    await store.prune(jobs_older_than=1e9, workers_older_than=1e9)
    assert sorted(await ids_claimed(hands)) == ids


async def test_each_run_of_the_pruner_names_them(store: PostgresStore, hands: Hands) -> None:
    """So a job whose lane nothing has named waits for a minute, not for ten."""
    ids = await enqueued(store, job())
    await store._fetch(FORGET)
    await store.prune(jobs_older_than=1e9, workers_older_than=1e9, onward=True)
    assert await ids_claimed(hands) == ids


async def test_a_copy_reads_its_lanes_from_its_jobs(
    store: PostgresStore, session: asyncpg.Connection
) -> None:
    ids = await enqueued(store, job(queue="a"), job(queue="b"))
    await session.execute(FORGET)
    await session.execute("UPDATE outlast_incarnation SET home = 'elsewhere'")
    assert await ids_claimed(await Hands.on(store)) == ids


async def test_a_reply_names_the_lanes_only_if_they_are_others(
    store: PostgresStore, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = []
    note = store._lanes.note_lanes

    def noted(seen: int, keys: Any, now: float) -> None:
        named.append([queue for queue, _, _ in keys])
        note(seen, keys, now)

    monkeypatch.setattr(store._lanes, "note_lanes", noted)
    for queue in ("a", "a", "b", "a"):
        await enqueued(store, job(queue=queue))
        assert len(await hands.claim()) == 1
    assert named == [["a"], ["a", "b"]]


async def test_a_client_sees_that_as_many_lanes_have_come_as_have_gone(
    store: PostgresStore, hands: Hands, session: asyncpg.Connection
) -> None:
    for queue in ("a", "b"):
        await enqueued(store, job(queue=queue))
    assert len(await hands.claim()) == 2
    await session.execute(OLD)
    await session.execute(TIDY)
    ids = await enqueued(store, job(queue="c"))
    assert await ids_claimed(hands) == ids


async def test_a_lane_whose_priority_no_job_can_have_is_refused(
    store: PostgresStore, hands: Hands, session: asyncpg.Connection
) -> None:
    """Each role that may enqueue may name lanes."""
    for priority in (-32768, 32767, -101, 101):
        with suppress(asyncpg.PostgresError):
            await session.execute("SELECT outlast_add_lanes_v1('{x}', '{y}', $1)", [priority])
    ids = await enqueued(store, job(priority=-100), job(priority=100))
    assert sorted(await ids_claimed(hands)) == ids
    assert await session.fetchval("SELECT count(*) FROM outlast_lanes") == 2


async def test_lanes_that_a_role_names_without_jobs_are_seen_and_then_forgotten(
    store: PostgresStore, hands: Hands, session: asyncpg.Connection
) -> None:
    """Each role that may enqueue may name any number. They slow claims, for a day at most."""
    await session.execute(
        "SELECT outlast_add_lanes_v1(array_agg('x' || n), array_agg('y'::text),"
        " array_agg(0::smallint)) FROM generate_series(1, 1001) n"
    )
    ids = await enqueued(store, job())
    assert await ids_claimed(hands) == ids
    facts = await store.inspector.environment()
    assert isinstance(facts, PostgresFacts)
    assert facts.lanes > LANES_MAX  # of which the doctor tells
    await session.execute(OLD)
    await store.prune(jobs_older_than=1e9, workers_older_than=1e9)
    assert await session.fetchval("SELECT count(*) FROM outlast_lanes") == 0
