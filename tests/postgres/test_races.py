"""Real concurrent sessions on PostgreSQL, each race held open at its worst moment.

A test takes one side of a race by hand, in a transaction of its own on a raw connection, waits
until the server says that the other side is blocked (or has passed), and lets go.
"""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from outlast.errors import StoreUnavailable
from outlast.model.job import Policy, State
from outlast.model.lifecycle import OutcomeKind
from outlast.store.minutes import Counted
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import Store
from outlast.store.statements import statements
from outlast.store.values import Answer, Cancelled, ClaimRequest, NamedStep, Requeued, Spawn
from tests.conformance.kit import TASK, Hands, ended, enqueued, job, lost_worker, on, row_of
from tests.postgres.kit import blocked, change_function, exchange_on, until

JOBS = statements("postgres", "jobs")
RECLAIM = statements("postgres", "reclaim")
WORKERS = statements("postgres", "workers")
BLOCKED = """SELECT string_agg(query, ';') FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock'"""


async def state_of(store: Store, job_id: int) -> State:
    row = await row_of(store, job_id)
    return row.state


# -- a claim whose reply is lost


async def test_a_claim_committed_after_its_client_died_is_released_by_reconciling(
    store: PostgresStore, hands: Hands, session: Any, watcher: Any
) -> None:
    (job_id,) = await enqueued(store)
    doomed = PostgresStore(store.url)
    hold = session.transaction()
    await hold.start()
    await session.fetch(
        WORKERS["reconnect"], hands.me.worker_id, None
    )  # the exchange will wait for this
    claiming = asyncio.create_task(doomed.exchange(hands.me, [], [ClaimRequest([TASK], 1)]))
    await blocked(watcher)
    assert "outlast_exchange_v1" in await watcher.fetchval(BLOCKED)
    claiming.cancel()  # the socket is closed, the server goes on
    with pytest.raises(asyncio.CancelledError):
        await claiming
    await hold.rollback()

    await until(lambda: _is(store, job_id, State.RUNNING))
    assert (await hands.exchange(limit=1)).claimed == []  # no worker knows its task yet

    again = await store.reconnect(hands.me, 0)
    assert again is not None
    assert [each[0] for each in await store.reconcile(again, [])] == [job_id]
    claimed = await Hands(store, again).claim_one()
    assert (claimed.job_id, claimed.number) == (job_id, 2)
    await doomed.close()


async def _is(store: Store, job_id: int, state: State) -> bool:
    return await state_of(store, job_id) is state


# -- claims that race the end of their worker's authority


@pytest.mark.parametrize("verb", ["reconnect", "reap", "stop"])
async def test_an_exchange_that_waits_for_the_end_of_its_epoch_claims_nothing(
    verb: str, store: PostgresStore, hands: Hands, session: Any, watcher: Any
) -> None:
    (job_id,) = await enqueued(store)
    arguments = {
        "reconnect": (WORKERS["reconnect"], hands.me.worker_id, None),
        "reap": (WORKERS["reap"], hands.me.worker_id, 0, "silence", None),
        "stop": (WORKERS["set_status"], hands.me.worker_id, "stopped", None, None),
    }[verb]
    async with session.transaction():
        assert await session.fetch(*arguments)
        claiming = asyncio.create_task(hands.exchange(limit=1))
        await blocked(watcher)
    reply = await claiming
    assert (reply.valid, reply.claimed) == (False, [])
    assert await state_of(store, job_id) is State.QUEUED


async def test_a_reconnect_waits_for_the_exchange_under_way_and_then_sees_its_claims(
    store: PostgresStore, hands: Hands, session: Any, watcher: Any
) -> None:
    (job_id,) = await enqueued(store)
    async with session.transaction():
        await exchange_on(session, hands, limit=1)
        reconnecting = asyncio.create_task(store.reconnect(hands.me, 0))
        await blocked(watcher)
    again = await reconnecting
    assert again is not None
    assert [each[0] for each in await store.reconcile(again, [])] == [job_id]


async def test_a_reap_comes_after_the_exchange_under_way_whose_claims_become_orphans(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    (job_id,) = await enqueued(store)
    seen = await hands.seen()
    async with session.transaction():
        await exchange_on(session, hands, limit=1)
        with pytest.raises(StoreUnavailable, match="another session of worker w1 holds its row"):
            await store.reap(seen)
    assert await store.reap(seen)
    assert [end.job_id for end in await store.reclaim(lost_worker)] == [job_id]


async def test_a_beat_that_commits_before_the_reap_keeps_the_worker_alive(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    seen = await hands.seen()
    async with session.transaction():
        await session.fetch(WORKERS["heartbeat"], hands.me.worker_id, None)
        with pytest.raises(StoreUnavailable):
            await store.reap(seen)
    assert not await store.reap(seen)
    assert (await store.heartbeat(hands.me)).renewed


async def test_a_beat_that_waits_for_the_reap_is_not_renewed(
    store: PostgresStore, hands: Hands, session: Any, watcher: Any
) -> None:
    async with session.transaction():
        await session.fetch(WORKERS["reap"], hands.me.worker_id, 0, "silence", None)
        beating = asyncio.create_task(store.heartbeat(hands.me))
        await blocked(watcher)
    assert not (await beating).renewed


async def test_a_beat_does_not_wait_for_an_exchange(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    await enqueued(store)
    async with session.transaction():
        await exchange_on(session, hands, limit=1)
        async with asyncio.timeout(25):
            assert (await store.heartbeat(hands.me)).renewed


# -- the stale reap: three sessions


LISTED = "INTO v_ids, v_tokens FROM orphan o;"
PAUSE = "PERFORM pg_advisory_xact_lock_shared(42);"

NAIVE = """
SELECT j.id AS job_id, j.token
FROM (SELECT pg_advisory_xact_lock_shared(42)::text OFFSET 0) p CROSS JOIN outlast_jobs j
WHERE j.state = 'running' AND NOT EXISTS (
    SELECT FROM outlast_workers w WHERE w.id = j.worker_id AND w.status IN ('active', 'draining'))
FOR NO KEY UPDATE OF j SKIP LOCKED"""


async def pause_between_list_and_lock(session: Any) -> None:
    """Make the function as it is in the migration wait for lock 42 after it made its list."""
    await session.execute(change_function("outlast_orphans_v1", LISTED, f"{LISTED} {PAUSE}"))


async def take_over(store: PostgresStore) -> tuple[int, int]:
    """Another reaper gives the job back, and a worker that is new claims it."""
    other = PostgresStore(store.url)
    assert len(await other.reclaim(lost_worker)) == 1
    await other.close()
    claimed = await (await Hands.on(store, "w2")).claim_one()
    return claimed.job_id, claimed.token


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_stale_reap_leaves_the_new_owner_untouched(
    guarded: bool, store: PostgresStore, hands: Hands, session: Any, watcher: Any, pg_url: str
) -> None:
    """With the naive statement the same schedule takes the new owner's job."""
    await enqueued(store)
    await hands.claim_one()
    await hands.vanish()
    original = await watcher.fetchval("SELECT pg_get_functiondef('outlast_orphans_v1'::regproc)")
    await pause_between_list_and_lock(session)
    slow = await asyncpg.connect(pg_url)
    await session.execute("SELECT pg_advisory_lock(42)")
    statement = (RECLAIM["orphans"], 10) if guarded else (NAIVE,)
    stale = asyncio.create_task(slow.fetch(*statement))
    await blocked(watcher)
    await session.execute(original)  # other tests run the original function
    new_owner = await take_over(store)
    await session.execute("SELECT pg_advisory_unlock(42)")
    found = [(row["job_id"], row["token"]) for row in await stale]
    await slow.close()
    assert found == ([] if guarded else [new_owner])


# -- rows that another session has locked


async def test_a_row_under_an_open_complete_in_is_busy_and_delays_no_other(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    await enqueued(store, *[job() for _ in range(4)])
    held, *others = await hands.claim(3)
    async with session.transaction():
        assert await on(session).complete(held.job_id, held.token, "1")
        async with asyncio.timeout(25):
            reply = await hands.exchange(*map(ended, [held, *others]), limit=2)
            again = await hands.exchange(ended(held), limit=1)
    assert reply.answers == [Answer.BUSY, Answer.ACCEPTED, Answer.ACCEPTED]
    assert len(reply.claimed) == 1  # the busy one still takes a slot
    assert (again.answers, again.claimed) == ([Answer.BUSY], [])
    assert await hands.hand_in(ended(held)) == [Answer.ALREADY]


async def test_a_complete_in_that_waited_for_the_loss_of_its_token_is_stale(
    store: PostgresStore, hands: Hands, session: Any, watcher: Any, pg_url: str
) -> None:
    await enqueued(store)
    claimed = await hands.claim_one()
    await hands.vanish()
    other = await asyncpg.connect(pg_url)
    async with session.transaction():
        (orphan,) = await session.fetch(RECLAIM["orphans"], 1)
        completing = asyncio.create_task(on(other).complete(claimed.job_id, claimed.token, "1"))
        await blocked(watcher)
        await session.execute(
            "SELECT * FROM outlast_close_v1(json_build_array(json_build_object("
            "'job_id', $1::bigint, 'token', $2::bigint, 'state', 'queued', 'outcome',"
            "'lost_worker', 'charge', 'loss', 'failures', 0, 'losses', 1))::text, false)",
            orphan["job_id"],
            orphan["token"],
        )
    assert await completing is False
    await other.close()
    assert await state_of(store, claimed.job_id) is State.QUEUED


async def test_a_cancel_that_waits_for_a_completion_comes_too_late(
    store: PostgresStore, hands: Hands, session: Any, watcher: Any
) -> None:
    (job_id,) = await enqueued(store)
    claimed = await hands.claim_one()
    async with session.transaction():
        await on(session).complete(job_id, claimed.token, "1")
        cancelling = asyncio.create_task(store.cancel([job_id]))
        await blocked(watcher)
    assert await cancelling == {job_id: Cancelled.ENDED}


async def test_an_enqueue_neither_locks_nor_waits_for_the_running_holder_of_its_key(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    (first,) = await enqueued(store, job(key="k"))
    claimed = await hands.claim_one()
    async with session.transaction():
        await session.fetch("SELECT 1 FROM outlast_jobs WHERE id = $1 FOR UPDATE", claimed.job_id)
        async with asyncio.timeout(25):
            (again,) = await store.enqueue([job(key="k")])
    assert (again.job_id, again.created) == (first, False)


@pytest.mark.parametrize(
    ("commits", "answer"), [(True, Requeued.KEY_TAKEN), (False, Requeued.REQUEUED)]
)
async def test_a_requeue_waits_for_an_enqueue_of_a_key_and_goes_on_with_the_other_jobs(
    store: PostgresStore, session: Any, watcher: Any, commits: bool, answer: Requeued
) -> None:
    ids = await enqueued(store, job(key="j"), job(key="k"), job())
    await store.cancel(ids)
    caller = session.transaction()
    await caller.start()
    await on(session).enqueue([job(key="k")])
    requeuing = asyncio.create_task(store.requeue(ids))
    await blocked(watcher)
    await (caller.commit() if commits else caller.rollback())
    first, second, third = ids
    done = Requeued.REQUEUED
    assert await requeuing == {first: done, second: answer, third: done}
    states = [await state_of(store, one) for one in ids]
    assert states == [State.QUEUED, State.CANCELLED if commits else State.QUEUED, State.QUEUED]


# -- a completion of a job that is kept for no time


async def test_lines_written_while_complete_in_waits_go_with_the_job(
    store: PostgresStore, hands: Hands, session: Any, watcher: Any
) -> None:
    await enqueued(store, job(policy=Policy(keep=0.0, logs=True)))
    claimed = await hands.claim_one()
    writes = session.transaction()
    await writes.start()
    lines = (f"{{{claimed.job_id}}}", f"{{{claimed.token}}}", "{1}", "{0}", ['[[1.0,"a line"]]'], 5)
    await session.fetch(JOBS["keep_logs"], *lines)
    task = await asyncpg.connect(store.url)
    async with task.transaction():
        done = asyncio.create_task(on(task).complete(claimed.job_id, claimed.token, "null"))
        await blocked(watcher)
        await writes.commit()
        assert await done
    await task.close()
    assert await store.inspector.job(claimed.job_id) is None
    assert await watcher.fetchval("SELECT count(*) FROM outlast_logs") == 0


async def test_an_enqueue_waits_for_what_holds_its_expired_key(
    store: PostgresStore, hands: Hands, session: Any, watcher: Any
) -> None:
    """It must not be answered with a job that a sweep is about to end."""
    (job_id,) = await enqueued(store, job(key="k", expires_at=1e9))
    sweep = session.transaction()
    await sweep.start()
    await session.fetch(JOBS["expire"], 10)
    enqueuing = asyncio.create_task(store.enqueue([job(key="k"), job(key="l")]))
    await blocked(watcher)
    await sweep.commit()
    first, _ = await enqueuing
    assert (first.created, first.job_id == job_id) == (True, False)


# -- a step in the task's own transaction


@pytest.mark.parametrize("commits", [True, False])
async def test_a_reclaim_waits_for_the_commit_of_a_step_in_a_transaction(
    store: PostgresStore, hands: Hands, session: Any, commits: bool
) -> None:
    await enqueued(store)
    first = await hands.claim_one()
    task = session.transaction()
    await task.start()
    kept = NamedStep(first.job_id, first.token, "book", '"order 1"')
    assert await on(session).keep_step(kept)
    await hands.vanish()
    assert await store.reclaim(lost_worker) == []
    await (task.commit if commits else task.rollback)()
    assert len(await store.reclaim(lost_worker)) == 1
    second = await (await Hands.on(store, "w2")).claim_one()
    (found,) = await store.find_steps([NamedStep(second.job_id, second.token, "book")])
    assert found.value == ('"order 1"' if commits else None)


async def test_a_step_in_a_transaction_that_waited_for_a_reclaim_is_refused(
    store: PostgresStore, hands: Hands, session: Any, watcher: Any
) -> None:
    await enqueued(store)
    first = await hands.claim_one()
    reclaims = session.transaction()
    await reclaims.start()
    await session.execute("SELECT FROM outlast_jobs FOR NO KEY UPDATE")
    task = await asyncpg.connect(store.url)
    async with task.transaction():
        kept = NamedStep(first.job_id, first.token, "book", '"order 1"')
        keeping = asyncio.create_task(on(task).keep_step(kept))
        await blocked(watcher)
        await session.execute("UPDATE outlast_jobs SET token = token + 1")
        await reclaims.commit()
        assert not await keeping
    await task.close()
    assert await store.inspector.steps(first.job_id) == []


async def test_a_step_whose_row_is_locked_is_sent_again(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    await enqueued(store)
    claimed = await hands.claim_one()
    step = NamedStep(claimed.job_id, claimed.token, "cover", "1")
    holds = session.transaction()
    await holds.start()
    await session.execute("SELECT FROM outlast_jobs FOR NO KEY UPDATE")
    assert await store.keep_steps([step]) == [Answer.BUSY]
    await holds.rollback()
    assert await store.keep_steps([step]) == [Answer.ACCEPTED]


# -- children of a dead parent


async def test_a_child_that_a_person_cancels_as_its_parent_dies_stays_cancelled(
    store: PostgresStore, hands: Hands, session: Any, watcher: Any
) -> None:
    """Between the look at the children and their locks: it had come back, and run."""
    name, listed = (
        "outlast_follow_children_v1",
        "v_held := ARRAY(SELECT j.id FROM unnest(v_children)",
    )
    original = await watcher.fetchval(f"SELECT pg_get_functiondef('{name}'::regproc)")
    await enqueued(store)
    parent = await hands.claim_one()
    step = NamedStep(parent.job_id, parent.token, "spawn 0", '"work"')
    (child,) = await store.spawn([job(delay=3600)], Spawn(step, 0))
    await hands.hand_in(ended(parent, OutcomeKind.DEAD))
    await session.execute(change_function(name, listed, f"{PAUSE} {listed}"))
    await session.execute("SELECT pg_advisory_lock(42)")
    following = asyncio.create_task(hands.exchange(limit=1))
    await blocked(watcher)
    await session.execute(original)  # other tests run the original function
    other = PostgresStore(store.url)  # the store's own connection waits
    assert await other.cancel([child.job_id]) == {child.job_id: Cancelled.CANCELLED}
    await other.close()
    await session.execute("SELECT pg_advisory_unlock(42)")
    await following
    assert await state_of(store, child.job_id) is State.CANCELLED


# -- counters


async def test_a_merge_of_counts_leaves_all_rows_to_one_that_is_under_way(
    store: PostgresStore, session: Any
) -> None:
    await store.note_minute(1, 1, [Counted(kind="attempt", jobs=3)])
    await session.execute("UPDATE outlast_minutes SET at = 0")
    async with session.transaction():
        await session.fetch(statements("postgres", "minutes")["turn"])
        assert await store.merge_minutes() == 0
    assert await store.merge_minutes() > 0
