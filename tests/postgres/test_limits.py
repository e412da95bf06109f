"""Limits on PostgreSQL under real concurrent sessions: the laws hold at every moment."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from typing import Any

import asyncpg
import pytest

from outlast.base.clock import SYSTEM
from outlast.model.crash import CrashKind
from outlast.model.lifecycle import OutcomeKind
from outlast.model.limits import LimitSpec, Need, permit_id
from outlast.store.acts import hold_limit, set_limit
from outlast.store.limits import Hold, NewLimit, SetLimit
from outlast.store.postgres.acts import PostgresActing
from outlast.store.postgres.connection import Transaction, begin_text
from outlast.store.postgres.limits import _declare
from outlast.store.postgres.store import PostgresStore
from outlast.store.rows import WorkerStatus
from outlast.store.statements import statements
from outlast.store.values import Answer
from tests.conformance.kit import Hands, crashed, ended, enqueued, eventually, job
from tests.conformance.limits_kit import declare, held, limited, need, permit
from tests.postgres.kit import blocked, exchange_on
from tests.postgres.limits_kit import Fleet, broken_laws, drained, watched

SECONDS = 4.0
ENDED, DEADLINE = 100, 60.0  # a busy machine goes on for longer, until these have ended

OWN = '{"running":40}'  # what a person sets
SQL = statements("postgres", "limits")
WAITS = """
CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS
'BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN OLD; END';
CREATE TRIGGER waits BEFORE DELETE ON outlast_workers FOR EACH ROW EXECUTE FUNCTION waits()"""
MANY = [NewLimit(name, LimitSpec(running=1)) for name in ("a", *map(str, range(300)))]


async def _enqueue(store: PostgresStore, dice: random.Random, count: int) -> None:
    """Jobs of few streams that share permits, some of them with a rate."""
    kinds = [
        [need("all"), need("key", f"k{n}")] if n % 3 else [need("key", f"k{n}")] for n in range(12)
    ] + [[need("all"), need("rate")], []]
    jobs = []
    for _ in range(count):
        needs = dice.choice(kinds)
        tenant = None if needs else f"t{dice.randint(1, 3)}"
        jobs.append(limited(*needs, fair=tenant, tenant=tenant, priority=dice.choice([0, 0, 5])))
    await enqueued(store, *jobs)


async def _declare_three(store: PostgresStore) -> None:
    await declare(store, "all", running=9)
    await declare(store, "key", running=2, per="limit_key")
    await declare(store, "rate", spacing=0.005, burst=5.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("trouble", ["none", "changes", "kills"])
async def test_the_laws_hold_while_sessions_race(
    store: PostgresStore, session: Any, watcher: Any, trouble: str, seed: int
) -> None:
    dice = random.Random(seed)
    await _declare_three(store)
    await _enqueue(store, dice, 400)
    fleet = Fleet(store, seed)
    seen: list[dict[str, Any]] = []
    until = SYSTEM.boot() + SECONDS
    tasks = [asyncio.create_task(fleet.work(f"w{n}")) for n in range(4)]
    watching = asyncio.create_task(watched(watcher, lambda: fleet.stopped, seen))
    while (now := SYSTEM.boot()) < until or (fleet.ended <= ENDED and now < until + DEADLINE):
        await _enqueue(store, dice, dice.randint(1, 30))
        if trouble == "changes":
            name, most = dice.choice([("all", 12), ("key", 3)])
            await store.set_limit(SetLimit(name=name, running=dice.randint(1, most)))
            await store.hold_limit(Hold("key", f"k{dice.randint(0, 11)}", dice.choice([0.0, 0.05])))
        if trouble == "kills":
            await session.execute(
                "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name LIKE 'fleet-%'"
                " ORDER BY random() LIMIT 1) one"
            )
        await asyncio.sleep(dice.random() * 0.1)
    fleet.stopped = True
    await asyncio.gather(*tasks, watching)
    if trouble == "changes":
        seen = [{law: each[law] for law in each if law != "L2"} for each in seen]
        for name in ("all", "key"):
            await store.set_limit(SetLimit(name=name, reset=True))
    assert [each for each in seen if each] == []
    assert fleet.ended > ENDED
    assert (fleet.broken > 0) == (trouble == "kills"), fleet.errors
    await drained(store, session)
    await drained_notices(store, session)
    assert await broken_laws(session) == {}
    assert await session.fetchval("SELECT sum(used) FROM outlast_permits") == 0


async def drained_notices(store: PostgresStore, session: Any) -> None:
    """Fold what the last ends have left."""
    hands = await Hands.on(store, "folds")
    while await session.fetchval("SELECT count(*) FROM outlast_notices"):
        await hands.claim(1)


# -- each rule, with the other side of the race held open


async def test_an_exchange_beside_one_that_claims_from_streams_claims_from_the_line(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    """It hands in its ends, and does all else that needs no limit."""
    await declare(store, running=2)
    await enqueued(store, *[limited(need("a"))] * 3)
    one = await hands.claim_one()
    async with session.transaction():
        await session.execute("SELECT pg_advisory_xact_lock(outlast_keeper_lock_v1())")
        plain = await enqueued(store, job(), job())
        reply = await hands.exchange(ended(one), limit=9)
        assert (reply.answers, reply.contended) == ([Answer.ACCEPTED], True)
        assert [each.job_id for each in reply.claimed] == plain
        assert reply.next_due is not None
        assert 0 < reply.next_due < 0.1
        assert (await permit(store)).noted == 1
        later = await enqueued(store, job(delay=0.001))
        assert [each.job_id for each in await eventually(lambda: hands.claim(9))] == later
        full = await hands.exchange(limit=0)
        assert not full.contended
    assert len(await hands.claim()) == 2
    assert await held(store) == 2


async def test_a_worker_without_a_task_of_an_open_stream_needs_no_lock(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    await declare(store, running=2)
    await enqueued(store, limited(need("a"), task="app.none"))
    await hands.claim()  # makes the stream
    async with session.transaction():
        await session.execute("SELECT pg_advisory_xact_lock(outlast_keeper_lock_v1())")
        assert not (await hands.exchange(limit=1)).contended
        assert (await hands.exchange(limit=1, tasks=["app.none"])).contended
    assert await hands.claim(tasks=["app.none"])


async def test_an_exchange_waits_its_turn_for_the_lock_of_limits(
    store: PostgresStore, hands: Hands, session: Any, watcher: Any
) -> None:
    """It waits for 30 ms: a busy machine may look too late, and looks again."""
    waits = """SELECT count(*) FROM pg_stat_activity
               WHERE datname = current_database() AND wait_event = 'advisory'"""

    async def was_seen_waiting() -> bool:
        async with session.transaction():
            await session.execute("SELECT pg_advisory_xact_lock(outlast_keeper_lock_v1())")
            asking = asyncio.create_task(hands.exchange(limit=1))
            seen = 0
            while not (seen or asking.done()):
                seen = await watcher.fetchval(waits)
            assert (await asking).contended
        return bool(seen)

    await declare(store, running=1)
    await enqueued(store, limited(need("a")))
    await eventually(was_seen_waiting)
    assert await eventually(hands.claim)


async def test_a_declaration_puts_in_force_what_a_person_sets_meanwhile(
    store: PostgresStore, session: Any, watcher: Any
) -> None:
    await declare(store, running=5)
    other = await asyncpg.connect(store.url)
    try:
        async with other.transaction():
            await other.execute("SELECT pg_advisory_xact_lock(outlast_keeper_lock_v1())")
            await other.execute("UPDATE outlast_limits SET own = $1, running = 40", OWN)
            declaring = asyncio.create_task(declare(store, running=7))
            await blocked(watcher)
        await declaring
    finally:
        await other.close()
    (row,) = await store.inspector.limits()
    assert (row.running, row.declared) == (40, LimitSpec(running=7))


async def test_limits_that_others_change_for_long_are_left_to_a_later_declaration(
    store: PostgresStore, session: Any
) -> None:
    async with session.transaction():
        await session.execute("SELECT pg_advisory_xact_lock(outlast_keeper_lock_v1())")
        async with asyncio.timeout(30):
            assert not await store.declare_limits(MANY)
    assert await store.inspector.limits() == []
    assert await store.declare_limits(MANY)


async def test_a_change_that_stalls_in_its_transaction_loses_the_lock(
    store: PostgresStore, hands: Hands
) -> None:
    """As does that of a person who has stopped the process."""
    await declare(store, running=1)
    await enqueued(store, limited(need("a")))
    stalled = await asyncpg.connect(store.url)
    await stalled.execute("BEGIN")
    assert await set_limit(PostgresActing(stalled, notify=False), SetLimit(name="a", running=0))
    assert (await hands.exchange(limit=1)).contended
    assert await eventually(hands.claim)
    await eventually(lambda: _is_closed(stalled))


async def test_an_exchange_that_stalls_in_its_transaction_loses_the_lock(
    store: PostgresStore, hands: Hands
) -> None:
    """Behind a pooler its COMMIT is another message, which a stopped worker does not send."""
    await declare(store, running=9)
    await enqueued(store, limited(need("a")), limited(need("a"), priority=-1))
    stalled = await asyncpg.connect(store.url)
    await stalled.execute(begin_text(Transaction.COMMITTED, 30.0))
    await exchange_on(stalled, hands, limit=1)
    other = await Hands.on(store, "other")
    assert await eventually(other.claim, 25.0)
    await eventually(lambda: _is_closed(stalled))


async def _is_closed(session: Any) -> bool:
    return bool(session.is_closed())


async def test_many_limits_are_declared_with_few_statements(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another worker has declared them since this one has looked."""
    sent: list[str] = []
    fetch = asyncpg.Connection.fetch

    def counting(self: Any, query: str, *values: Any) -> Any:
        sent.append(query.partition("(")[0])
        return fetch(self, query, *values)

    monkeypatch.setattr(asyncpg.Connection, "fetch", counting)
    look, lock, put = (SQL[name].partition("(")[0] for name in ("known", "lock_in_time", "put"))
    assert await store.declare_limits(MANY)
    assert sent == [look, lock, look, put]
    sent.clear()
    assert await store.declare_limits(MANY)
    assert sent == [look]
    async with store._connections.use() as connection:
        assert await _declare(connection, {limit.name: limit.spec for limit in MANY[:9]})
    assert sent == [look, lock, look]


async def test_an_exchange_that_meets_many_new_keys_takes_few_locks(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    """The server has some thousand locks for all sessions: beyond them statements fail."""
    await declare(store, running=1, per="limit_key")
    await enqueued(store, *(limited(need("a", str(n))) for n in range(1_000)))
    locks = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'"
    async with session.transaction():
        await exchange_on(session, hands, limit=10)
        assert await session.fetchval(locks) == 1
        assert await session.fetchval("SELECT count(*) FROM outlast_streams") == 1_000


async def test_ends_that_no_claim_folds_are_noted(store: PostgresStore, hands: Hands) -> None:
    await declare(store, running=2)
    await enqueued(store, limited(need("a")))
    await hands.hand_in(ended(await hands.claim_one()))
    assert (await permit(store)).noted == 1


async def test_a_changed_limit_waits_for_the_exchange_that_has_read_it(
    store: PostgresStore, other_store: PostgresStore, hands: Hands, session: Any, watcher: Any
) -> None:
    await declare(store, running=1)
    await enqueued(store, *[limited(need("a"))] * 4)
    other = await Hands.on(other_store, "other")
    await hands.hand_in(ended(await hands.claim_one()))
    await other.exchange(*map(ended, await other.claim(1)))
    await enqueued(store, limited(need("a")))
    async with session.transaction():
        await exchange_on(session, hands, limit=1)
        changing = asyncio.create_task(store.set_limit(SetLimit(name="a", running=3)))
        await blocked(watcher)
        assert await other.claim() == []  # waits for no one
    assert await changing
    assert len(await other.claim()) == 2


async def test_a_change_of_a_limit_gets_in_between_exchanges_that_overlap_without_end(
    store: PostgresStore, pg_url: str
) -> None:
    """Each of twelve sessions ends its exchange only after another one has begun one, so there is
    no moment without any, unless those that begin make room for the change."""
    await declare(store, running=1)
    attempt = "SELECT pg_try_advisory_xact_lock(outlast_keeper_lock_v1())"
    sessions = [await asyncpg.connect(pg_url) for _ in range(12)]
    begun, is_over = [0], asyncio.Event()

    async def overlap(session: Any) -> None:
        while not is_over.is_set():
            async with session.transaction():
                await session.fetchval(attempt)
                begun[0] += 1
                mine = begun[0]
                while begun[0] == mine and not is_over.is_set():
                    await asyncio.sleep(0)

    async def all_overlap() -> bool:
        return begun[0] > 10 * len(sessions)

    exchanges = [asyncio.create_task(overlap(each)) for each in sessions]
    await eventually(all_overlap)
    async with asyncio.timeout(20.0):
        assert await store.set_limit(SetLimit(name="a", running=2))
    is_over.set()
    await asyncio.gather(*exchanges)
    for each in sessions:
        await each.close()


async def test_a_permit_left_with_room_opens_what_it_blocks(
    store: PostgresStore, hands: Hands
) -> None:
    first, other = sorted("ab", key=lambda name: permit_id(name, ""))
    for name in (first, other):
        await declare(store, name, running=1)
    await enqueued(store, limited(need(first)))
    one = await hands.claim_one()
    await enqueued(store, limited(need(other)))
    await hands.claim_one()
    await enqueued(store, limited(need(first), need(other)), limited(need(first), priority=-1))
    assert await hands.claim() == []
    assert (await permit(store, first)).waiting == 2
    await hands.exchange(ended(one), limit=5)  # opens the first stream, which waits for the other
    assert (await permit(store, other)).waiting == 1
    assert len(await eventually(hands.claim)) == 1  # the place was kept for the first one a while
    assert await held(store, first) == 1


async def test_a_stream_that_no_worker_serves_holds_no_permit(
    store: PostgresStore, hands: Hands
) -> None:
    await declare(store, running=1)
    await enqueued(store, limited(need("a")))
    one = await hands.claim_one()
    await enqueued(store, *[limited(need("a"), task=f"app.none{n}") for n in range(3)])
    await hands.claim(tasks=[f"app.none{n}" for n in range(3)])
    (job_id,) = await enqueued(store, limited(need("a"), priority=1))
    await hands.claim()
    assert (await permit(store)).waiting == 4
    assert await hands.hand_in(ended(one)) == [Answer.ACCEPTED]
    assert [each.job_id for each in await hands.claim()] == [job_id]


async def test_jobs_for_which_a_reply_has_no_room_are_read_after_it(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    await declare(store, running=10)
    sizes = [10, 40_000, 40_000, 100_000, 10]
    jobs = [limited(need("a"), args=json.dumps({"x": "x" * size})) for size in sizes]
    ids = await enqueued(store, *jobs)
    saved = "UPDATE outlast_jobs SET checkpoint = repeat('c', 70000) WHERE id = $1"
    await session.execute(saved, ids[4])
    claimed = await hands.claim()
    assert [(each.job_id, each.args) for each in claimed] == [
        (job_id, each.args) for job_id, each in zip(ids, jobs, strict=True)
    ]
    assert [len(each.checkpoint or "") for each in claimed] == [0, 0, 0, 0, 70_000]
    mine, closed, ended_since = claimed[:3]
    await hands.hand_in(ended(ended_since))
    tokens = {mine.job_id: mine.token, closed.job_id: closed.token - 1}
    tokens[ended_since.job_id] = ended_since.token
    left = [{"job_id": one, "token": token, "args": None} for one, token in tokens.items()]
    whole = {"job_id": claimed[3].job_id, "args": claimed[3].args}
    read = [(row["job_id"], row["args"]) for row in await store._read_apart([*left, whole])]
    assert read == [(whole["job_id"], whole["args"]), (mine.job_id, mine.args)]


async def test_one_reply_brings_200_jobs_at_most_beside_those_under_limits(
    store: PostgresStore, hands: Hands
) -> None:
    """Since it has to fit into the buffers of its connection; the worker comes again at once."""
    await declare(store, running=1_000)
    await enqueued(store, *[limited(need("a"))] * 150)
    await enqueued(store, *[job()] * 150)
    reply = await hands.exchange(limit=400)
    assert (len(reply.claimed), reply.cut) == (200, True)
    reply = await hands.exchange(limit=400)
    assert (len(reply.claimed), reply.cut) == (100, False)


async def test_a_dear_job_is_not_held_up_for_good_by_cheap_ones(
    store: PostgresStore, hands: Hands
) -> None:
    await declare(store, spacing=0.1, burst=5.0)
    await enqueued(store, *[limited(need("a"))] * 500)
    await hands.claim(3)
    (dear,) = await enqueued(store, limited(need("a", cost=5.0)))
    got: list[int] = []
    tenants = itertools.count()

    async def take() -> bool:
        await enqueued(store, limited(need("a"), fair=f"t{next(tenants)}"))  # a stream that is open
        got.extend(each.job_id for each in await hands.claim(3))
        return dear in got

    await eventually(take)
    assert len(got) < 30


async def test_unused_rows_are_deleted_and_made_again(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    await declare(store, running=2, per="limit_key")
    await enqueued(store, *[limited(need("a", f"k{n}")) for n in range(3)])
    claimed = await hands.claim()
    await hands.hand_in(*map(ended, claimed[:2]))
    await hands.claim()
    aged = "touched_at = touched_at - 90000"
    await session.execute(f"UPDATE outlast_streams SET idle = true, {aged}")
    await session.execute(f"UPDATE outlast_permits SET {aged}, tat = 0")
    await store.prune(jobs_older_than=9e9, workers_older_than=9e9)
    counts = (
        "SELECT (SELECT count(*) FROM outlast_streams), (SELECT sum(used) FROM outlast_permits)"
    )
    assert tuple(await session.fetchrow(counts)) == (1, 1)
    await hands.hand_in(ended(claimed[2]))  # noted: the stream stays until that is folded
    await store.prune(jobs_older_than=9e9, workers_older_than=9e9)
    assert await hands.claim() == []
    await enqueued(store, *[limited(need("a", f"k{n}")) for n in range(3)])
    assert len(await hands.claim()) == 3
    assert await broken_laws(session) == {}
    await session.execute("DELETE FROM outlast_permits WHERE used = 1")
    await enqueued(store, *[limited(need("a", f"k{n}")) for n in range(3)])
    assert await eventually(hands.claim)


async def test_a_hold_that_is_not_committed_keeps_the_row_that_it_is_about(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    await declare(store, running=2, per="limit_key")
    await store.hold_limit(Hold("a", "k", 0.0))
    await hands.claim()
    await session.execute("UPDATE outlast_permits SET touched_at = 1, tat = 0")
    async with session.transaction():
        assert await hold_limit(PostgresActing(session, notify=False), Hold("a", "k", 60.0))
        await store.prune(jobs_older_than=9e9, workers_older_than=9e9)
    await hands.claim()
    assert (await permit(store, key="k")).held_until


async def test_a_permit_that_a_claim_blocks_by_while_a_prune_is_under_way_stays(
    store: PostgresStore, hands: Hands, session: Any, watcher: Any
) -> None:
    """The claim starts nothing under it, and so leaves its row as it was."""
    await declare(store, running=0, per="limit_key")
    await store.hold_limit(Hold("a", "k", 0.0))
    await hands.claim()
    gone = await Hands.on(store, "gone")
    await store.set_status(gone.me, WorkerStatus.STOPPED)
    await session.execute("UPDATE outlast_permits SET touched_at = 1, tat = 0")
    await session.execute(WAITS)
    other = PostgresStore(store.url)
    try:
        await session.execute("SELECT pg_advisory_lock(4711)")
        pruning = asyncio.create_task(other.prune(jobs_older_than=9e9, workers_older_than=0.0))
        await blocked(watcher)
        await enqueued(store, limited(need("a", "k")))
        assert await hands.claim() == []
        await session.execute("SELECT pg_advisory_unlock(4711)")
        await pruning
    finally:
        await other.close()
        await session.execute("DROP FUNCTION waits CASCADE")
    await store.set_limit(SetLimit(name="a", running=1))
    assert await eventually(hands.claim)


async def test_a_stream_whose_job_waits_to_run_again_is_not_deleted(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    """Its holder would be forgotten, and a later job would pass it."""
    await declare(store, "o", running=1, ordered=True)
    mine = Need(permit_id("o", ""), "o", "", 1.0, True)
    await enqueued(store, limited(mine))
    await hands.hand_in(ended(await hands.claim_one(), OutcomeKind.SNOOZED, delay=90_000.0))
    await hands.claim()
    aged = "touched_at = touched_at - 90000"
    await session.execute(f"UPDATE outlast_streams SET {aged}")
    await session.execute(f"UPDATE outlast_permits SET {aged}, tat = 0")
    await store.prune(jobs_older_than=9e9, workers_older_than=9e9)
    await enqueued(store, limited(mine))
    assert await hands.claim() == []


async def test_suspects_need_their_permits_and_give_way_to_others(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    await declare(store, running=2)
    ids = await enqueued(store, *[limited(need("a"), priority=9)] * 2, job())
    claimed = await hands.claim()
    assert len(claimed) == 3
    ends = [crashed(one, CrashKind.BYSTANDER, incident=1) for one in claimed]
    await hands.hand_in(*ends)
    await store.set_limit(SetLimit(name="a", running=1))
    first = await hands.exchange(limit=9, solo=1)
    assert sorted(each.job_id for each in first.claimed) == [ids[0], ids[2]]
    assert await held(store) == 1
    assert await hands.claim(9, solo=1) == [], "the other suspect of the limit waits"
    await hands.hand_in(ended(first.claimed[0]))
    await hands.claim()
    assert [each.job_id for each in await hands.claim(9, solo=1)] == [ids[1]]
    assert await held(store) == 1
    assert await broken_laws(session) == {}


async def test_a_worker_that_only_peeks_learns_of_notices_and_of_what_opens(
    store: PostgresStore, hands: Hands
) -> None:
    await declare(store, running=1)
    await enqueued(store, *[limited(need("a"))] * 2)
    one = await hands.claim_one()
    assert (await store.peek(hands.me)).next_due is None
    await hands.hand_in(ended(one))
    assert (await store.peek(hands.me)).next_due == pytest.approx(0, abs=0.5)
    await hands.claim()
    await declare(store, "b", spacing=30.0)
    await enqueued(store, *[limited(need("b"))] * 2)
    await hands.claim(2)
    assert (await store.peek(hands.me)).next_due == pytest.approx(30, abs=10)


# -- many queues, and a stream that is marked idle


@pytest.mark.parametrize("named", [False, True])
async def test_more_pairs_of_task_and_queue_than_a_look_reads_come_in_turn(
    store: PostgresStore, hands: Hands, named: bool
) -> None:
    await declare(store, running=1_000)
    queues = [f"q{number:03}" for number in range(300)]
    paused = [limited(need("a"), tenant="acme", queue=each) for each in queues]
    await enqueued(store, *paused)
    (last,) = await enqueued(store, limited(need("a"), queue="q299"))
    asked = {"not_tenants": ["acme"], "queues": queues if named else ()}
    got = await eventually(lambda: hands.claim(20, **asked))
    assert [each.job_id for each in got] == [last]


async def test_few_open_streams_are_found_among_many_pairs_at_once(
    store: PostgresStore, hands: Hands
) -> None:
    await declare(store, running=1_000)
    queues = [f"q{number:03}" for number in range(300)]
    (last,) = await enqueued(store, limited(need("a"), queue="q299"))
    assert [each.job_id for each in await hands.claim(2, queues=queues)] == [last]


async def test_streams_whose_jobs_others_hold_keep_no_worker_busy(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    """More of them than one exchange looks at, as in a transaction of a caller that replaces jobs
    and stays open."""
    await declare(store, "host", running=1, per="limit_key")
    ids = await enqueued(store, *[limited(need("host", f"h{number}")) for number in range(30)])
    await hands.settle()
    async with session.transaction():
        await session.execute("SELECT FROM outlast_jobs FOR NO KEY UPDATE")
        for _ in range(9):
            reply = await hands.exchange(limit=1)
            assert (reply.claimed, reply.contended) == ([], True)
            assert reply.next_due
    assert sorted(each.job_id for each in await hands.claim()) == ids


async def test_a_stream_with_jobs_that_were_passed_over_is_not_marked_idle(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    await declare(store, running=5)
    ids = await enqueued(store, *[limited(need("a"), tenant="acme")] * 2, limited(need("a")))
    async with session.transaction():  # its first job is locked, the second is paused
        await session.execute("SELECT FROM outlast_jobs WHERE id = $1 FOR UPDATE", ids[0])
        got = await hands.claim(not_tenants=["acme"])
        assert [each.job_id for each in got] == ids[2:]
        assert not await session.fetchval("SELECT idle FROM outlast_streams")
    assert [each.job_id for each in await hands.claim()] == ids[:2]
    assert await session.fetchval("SELECT idle FROM outlast_streams")


async def test_a_job_that_comes_while_its_stream_is_being_marked_idle_is_started(
    store: PostgresStore, other_store: PostgresStore, hands: Hands, session: Any, watcher: Any
) -> None:
    await declare(store, running=5)
    await enqueued(store, limited(need("a")))
    async with session.transaction():
        await exchange_on(session, hands, limit=1)  # marks the stream idle; not committed
        (following,) = await enqueued(other_store, limited(need("a")))
        other = await Hands.on(other_store, "other")
        assert await other.claim() == []
    assert await session.fetchval("SELECT idle FROM outlast_streams")
    assert [each.job_id for each in await other.claim()] == [following]
    assert await broken_laws(session) == {}
