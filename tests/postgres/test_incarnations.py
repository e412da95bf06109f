"""A worker that stays up while its database becomes another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from harness.pgbouncer import PgBouncerServer
from harness.stores import held_open
from outlast.errors import StoreUnavailable
from outlast.model.job import State
from outlast.store.limits import DeclaredTask
from outlast.store.postgres import enqueue
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import Answer, NewJob, Save
from tests.conformance.kit import TASK, Hands, ended, enqueued, job, on, row_of
from tests.conformance.limits_kit import limited, need
from tests.postgres.kit import blocked


async def become_another(session: Any) -> None:
    """Do what a recovery does, and what the first worker does that comes back after it: a restore
    to an earlier moment leaves the rows of the other workers at their epochs."""
    await session.execute("DELETE FROM outlast_incarnation")
    await session.execute("SELECT outlast_begin_incarnation_v1()")


async def test_a_claim_from_another_incarnation_counts_as_lost(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    first, second = await enqueued(store, job(), job())
    done = await hands.claim_one()
    await become_another(session)
    with pytest.raises(StoreUnavailable):
        await hands.exchange(ended(done), limit=1)
    assert (await row_of(store, second)).state is State.RUNNING

    again = await store.reconnect(hands.me, done.token)
    assert again is not None
    released = await store.reconcile(again, [done.token])
    assert [job_id for job_id, _ in released] == [second]
    back = Hands(store, again)
    reply = await back.exchange(ended(done), limit=1)
    assert reply.answers == [Answer.ALREADY]
    assert (await row_of(store, first)).state is State.COMPLETED
    (claimed,) = reply.claimed
    assert (claimed.job_id, claimed.failures, claimed.losses) == (second, 0, 0)
    assert [each.charge for each in await store.inspector.attempts(second)] == ["none"]


async def test_an_epoch_belongs_to_the_incarnation_in_which_it_was_given(
    store: PostgresStore, session: Any
) -> None:
    """A worker may not claim for long after it has registered or reconnected."""
    await enqueued(store, job())
    hands = await Hands.on(store)
    for _ in range(2):
        await become_another(session)
        with pytest.raises(StoreUnavailable):
            await hands.exchange(limit=1)
        again = await store.reconnect(hands.me, 0)
        assert again is not None
        assert await store.reconcile(again, [])
        hands = Hands(store, again)
    assert len((await hands.exchange(limit=1)).claimed) == 1, "no second reconnect is needed"


async def test_what_an_attempt_writes_outlives_the_incarnation(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    """Its token is the one on the row: the attempt began before the moment of the restore."""
    await enqueued(store, job())
    claimed = await hands.claim_one()
    await become_another(session)
    assert (await store.heartbeat(hands.me)).renewed
    save = Save(claimed.job_id, claimed.token, 1, "{}", 0)
    assert await store.checkpoint([save]) == [Answer.ACCEPTED]
    assert (await hands.exchange(ended(claimed))).answers == [Answer.ACCEPTED]


# -- ids of jobs that a failover has lost

STEP = 1_000_000


async def lose_the_newest(session: Any, kept: int) -> None:
    """Be a standby that is promoted without the last jobs, before a worker has come back."""
    await session.execute("DELETE FROM outlast_jobs WHERE id > $1", kept)
    await session.execute("SELECT setval('outlast_jobs_id_seq', $1::bigint)", kept)
    await session.execute("DELETE FROM outlast_incarnation")


async def test_ids_jump_when_a_worker_comes_after_a_recovery(
    store: PostgresStore, session: Any
) -> None:
    first, *_ = await enqueued(store, *[job() for _ in range(3)])
    await lose_the_newest(session, first)
    hands = await Hands.on(store)
    (after,) = await enqueued(store)
    assert after > first + STEP
    await Hands.on(store, "again")
    assert await enqueued(store) == [after + 1]
    assert (await row_of(store, first)).id == first
    assert [each.job_id for each in await hands.claim()] == [first, after, after + 1]


@pytest.mark.parametrize(
    "jobs",
    [
        pytest.param([job()], id="one"),
        pytest.param([job(), job()], id="alike"),
        pytest.param([job(), job(queue="other")], id="many"),
        pytest.param([job(key="k")], id="key"),
        pytest.param([job(key="k"), job(key="l")], id="keys"),
        pytest.param([job(delay=60.0)], id="delayed"),
        pytest.param([limited(need("a"))], id="limited"),
        pytest.param([limited(need("a")), limited(need("a"))], id="limited alike"),
    ],
)
async def test_no_session_gives_a_lost_id_again_before_a_worker_has_come(
    store: PostgresStore, session: Any, jobs: list[NewJob]
) -> None:
    ids = await enqueued(store, *[job() for _ in range(3)])
    await lose_the_newest(session, ids[0])
    others = [PostgresStore(store.url) for _ in range(4)]
    given = await asyncio.gather(*(enqueued(each, *jobs) for each in others))
    flat = [each for some in given for each in some]
    assert min(flat) > ids[0] + STEP
    assert len(set(flat)) == len(flat) == len(jobs) * len(others) or jobs[0].key
    for each in others:
        await each.close()


@pytest.fixture
async def pooled(pg_url: str, pgbouncer: PgBouncerServer) -> AsyncIterator[PostgresStore]:
    """A program behind a pooler of transactions, whose session outlives a recovery."""
    async with held_open(PostgresStore(pgbouncer.through(pg_url), connections=1)) as store:
        yield store


@pytest.mark.pgbouncer
async def test_ids_jump_for_a_program_behind_a_pooler_once_another_comes(
    pooled: PostgresStore, session: Any
) -> None:
    first, *_ = await enqueued(pooled, *[job() for _ in range(3)])
    for comes in (Hands.on, enqueued):
        await lose_the_newest(session, first)
        other = PostgresStore(pooled.url)
        await comes(other)
        (after,) = await enqueued(pooled)
        assert after > first + STEP
        await other.close()
        first = after


@pytest.mark.pgbouncer
@pytest.mark.parametrize("new", [job(), job(delay=60.0)], ids=["in the line", "delayed"])
async def test_ids_jump_behind_a_pooler_after_some_minutes(
    pooled: PostgresStore, session: Any, monkeypatch: pytest.MonkeyPatch, new: NewJob
) -> None:
    monkeypatch.setattr(enqueue, "KNOWN_SECONDS", 0.0)
    (first,) = await enqueued(pooled, new)
    await lose_the_newest(session, first)
    assert (await enqueued(pooled, new))[0] > first + STEP


async def test_no_job_by_sql_gets_a_lost_id(store: PostgresStore, session: Any) -> None:
    ids = await enqueued(store, *[job() for _ in range(3)])
    assert await store.declare_limits([], [DeclaredTask(TASK)])
    await lose_the_newest(session, ids[0])
    assert await session.fetchval(f"SELECT outlast_enqueue_v1('{TASK}')") > ids[0] + STEP


async def test_the_jump_waits_for_no_open_transaction_of_an_enqueue(
    store: PostgresStore, session: Any
) -> None:
    (first,) = await enqueued(store)
    await lose_the_newest(session, first)
    other = PostgresStore(store.url)
    async with session.transaction():
        (mine,) = await on(session).enqueue([job()])
        async with asyncio.timeout(25):
            (theirs,) = await enqueued(other)
    assert first + STEP < mine.job_id < theirs
    await other.close()


async def test_ids_of_a_new_store_begin_with_one(bare_pg_url: str) -> None:
    """Whether a worker or an enqueue comes first, and however many of them."""
    store, other = PostgresStore(bare_pg_url), PostgresStore(bare_pg_url)
    await store.open()
    assert await enqueued(store) == [1]
    assert await enqueued(other) == [2]
    await Hands.on(store)
    assert await enqueued(other) == [3]
    await store.close()
    await other.close()


async def test_ids_are_not_set_back_by_a_worker_that_compares_them_with_the_rows(
    store: PostgresStore, session: Any, watcher: Any
) -> None:
    """The jump of an enqueue and the one of a worker wait for each other."""
    (first,) = await enqueued(store)
    await session.execute("SELECT setval('outlast_jobs_id_seq', 1, false)")
    await session.execute("DELETE FROM outlast_incarnation")
    other = PostgresStore(store.url)
    async with session.transaction():
        await session.execute("SELECT outlast_raise_numbers_v1(true)")
        enqueuing = asyncio.create_task(enqueued(other))
        await blocked(watcher)
    (after,) = await enqueuing
    assert after > first + STEP
    await other.close()
