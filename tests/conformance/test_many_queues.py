"""Many queues: each gets its turn in its own order, and a claim does not walk over all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator

import pytest

from harness.stores import held_open
from outlast.model.crash import CrashKind
from outlast.model.lifecycle import OutcomeKind
from outlast.store.postgres import exchange
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import ENQUEUE_MAX, Store
from outlast.store.values import Claimed, ClaimRequest, NewJob, WorkerRef
from tests.conformance.kit import TASK, Hands, crashed, ended, enqueued, eventually, job

MANY = 450


async def drained(hands: Hands, limit: int, tasks: list[str]) -> list[list[Claimed]]:
    """Claim and complete until nothing is left; return what each exchange has brought."""
    trips: list[list[Claimed]] = []
    while claimed := await hands.claim(limit, tasks=tasks):
        trips.append(claimed)
        await hands.hand_in(*[ended(each, OutcomeKind.COMPLETED) for each in claimed])
    return trips


async def test_a_long_queue_does_not_starve_others(store: Store, hands: Hands) -> None:
    await enqueued(store, *[job(queue="long") for _ in range(60)])
    await enqueued(store, job(queue="early"), job(queue="short"))
    queues = [each.queue for _ in range(3) for each in await hands.claim(5)]
    assert {"early", "short"} <= {*queues}


@pytest.mark.parametrize("known", [False, True], ids=["at first", "later"])
async def test_each_of_many_queues_is_read_in_its_own_order(
    store: Store, hands: Hands, known: bool
) -> None:
    """By priority and position over its tasks, also where a claim stops in the middle of it."""
    places = [(task, rank) for task in ("t", "u") for rank in (0, 7, 0, -7)]
    jobs = [job(queue=f"q{n}", task=task, priority=p) for task, p in places for n in range(MANY)]
    if known:
        await enqueued(store, *[job(queue=f"q{n}", task="t") for n in range(MANY)])
        await drained(hands, 100, ["t", "u"])
    ids = await enqueued(store, *jobs)
    order = defaultdict(list)
    for trip in await drained(hands, 101, ["t", "u"]):
        for each in trip:
            order[each.queue].append((-each.priority, each.job_id))
    assert sorted(each for queue in order.values() for _, each in queue) == ids
    for queue in order.values():
        assert queue == sorted(queue)


async def test_a_claim_is_filled_from_as_many_queues_as_needed(store: Store, hands: Hands) -> None:
    await enqueued(store, *[job(queue=f"q{n}", task=f"t{n % 3}") for n in range(MANY)])
    trips = await drained(hands, 100, ["t0", "t1", "t2", "t3"])
    assert [len(trip) for trip in trips] == [100] * 4 + [50]


async def test_lanes_of_one_queue_do_not_hide_one_another(store: Store, hands: Hands) -> None:
    jobs = [job(task=task, priority=p) for p in range(-100, 101) for task in ("t", "u")]
    ids = await enqueued(store, *jobs)
    claimed = [await hands.claim(1, tasks=["t", "u"]) for _ in range(5)]
    assert [each.job_id for trip in claimed for each in trip] == [
        *ids[-2:],
        *ids[-4:-2],
        ids[-6],
    ]


async def test_a_queue_of_suspects_hides_no_other(store: Store, hands: Hands) -> None:
    """Neither when its turn comes."""
    await enqueued(store, job(queue="a"), job(queue="c"))
    suspect, other = [(await hands.claim(1))[0] for _ in range(2)]
    await hands.hand_in(crashed(suspect, CrashKind.BYSTANDER, incident=1), ended(other))
    assert (suspect.queue, other.queue) == ("a", "c")
    ids = await enqueued(store, job(queue="b"))
    assert [each.job_id for each in await hands.claim(1)] == ids


async def test_only_named_queues_get_turns(store: Store, hands: Hands) -> None:
    await enqueued(store, *[job(queue=f"q{n % 9}") for n in range(90)])
    queues = [each.queue for _ in range(3) for each in await hands.claim(7, queues=["q2", "q5"])]
    assert sorted(set(queues)) == ["q2", "q5"]
    assert len(queues) == 20


async def test_a_queue_named_twice_gives_each_job_once(store: Store, hands: Hands) -> None:
    ids = await enqueued(store, *[job(queue="a") for _ in range(3)])
    claimed = await hands.claim(10, queues=["a", "a"], tasks=[TASK, TASK])
    assert [each.job_id for each in claimed] == ids
    ids = await enqueued(store, *[job(queue="a") for _ in range(3)])
    assert [each.job_id for each in await hands.claim(10, tasks=[TASK, TASK])] == ids


async def test_the_queue_with_an_empty_name_gets_one_turn(store: Store, hands: Hands) -> None:
    await enqueued(store, *[job(queue=queue) for queue in ("", "a") for _ in range(3)])
    assert [(await hands.claim_one()).queue for _ in range(4)] == ["", "a", "", "a"]


async def test_a_reply_cut_by_bytes_moves_the_turn_only_past_what_it_took(
    store: Store, hands: Hands
) -> None:
    long = "[" + "1," * 500 + "1]"
    await enqueued(store, *[job(queue=queue, args=long) for queue in "abc" for _ in range(3)])
    trips = [await hands.claim(3, bytes_max=1_100) for _ in range(3)]
    assert [each.queue for trip in trips for each in trip] == ["a", "b", "c"]


@pytest.mark.parametrize("trips", [1, 2], ids=["at once", "one after the other"])
async def test_kinds_of_requests_do_not_share_turns(store: Store, hands: Hands, trips: int) -> None:
    """As where async tasks wait in one queue, and plain functions in queues around it."""
    await enqueued(store, *[job(queue=queue, task="own") for queue in "az" for _ in range(9)])
    requests = [ClaimRequest(["own", "sharing"], 1), ClaimRequest(["sharing"], 1)]
    queues = []
    for _ in range(6):
        await enqueued(store, job(queue="m", task="sharing"), job(queue="m", task="sharing"))
        for part in [requests] if trips == 1 else [requests[:1], requests[1:]]:
            claimed = (await store.exchange(hands.me, [], part)).claimed
            queues += [each.queue for each in claimed if each.task == "own"]
    assert queues == ["a", "z"] * 2


async def test_due_jobs_of_many_queues_are_claimed_when_their_time_has_come(
    store: Store, hands: Hands
) -> None:
    ids = await enqueued(store, *[job(queue=f"q{n}", delay=0.001) for n in range(MANY)])
    found = [each.job_id for trip in await drained(hands, 100, [TASK]) for each in trip]
    assert sorted(found) == ids


# ------------------------------------------------------------------- what it costs (PostgreSQL)

WORK = """SELECT sum(idx_scan) + sum(idx_tup_read) FROM pg_stat_user_indexes
          WHERE relname = 'outlast_jobs'"""


@pytest.fixture
async def alone(pg_url: str) -> AsyncIterator[PostgresStore]:
    """A store with one connection, which can be asked what it has read."""
    async with held_open(PostgresStore(pg_url)) as store:
        yield store


async def work(store: PostgresStore) -> int:
    """Return the numbers of index scans on jobs so far, and of entries that they read."""
    async with store._connections.use() as connection:
        if connection.get_server_version() < (15,):
            pytest.skip("a session cannot be asked for its figures")
        await connection.execute("SELECT pg_stat_force_next_flush()")
        await connection.execute("SELECT pg_stat_clear_snapshot()")
        return int(await connection.fetchval(WORK))


CROWDS = {
    "scheduled": [job(delay=1_000.0)],
    "of an unknown task": [job(task="unknown")],
    "due": [job()],
    "due with several tasks": [job(), job(task="u"), job(task="u", priority=3)],
}


async def crowd(store: Store, kind: str, first: int, last: int) -> None:
    """Enqueue these jobs in each of the queues from the first to before the last."""
    jobs = [
        NewJob(task=one.task, queue=f"q{n}", delay=one.delay, priority=one.priority)
        for n in range(first, last)
        for one in CROWDS[kind]
    ]
    for start in range(0, len(jobs), ENQUEUE_MAX):
        await store.enqueue(jobs[start : start + ENQUEUE_MAX])


@pytest.mark.parametrize("queues", [[], ["mine"]], ids=["all-queues", "one-queue"])
@pytest.mark.parametrize("kind", CROWDS)
async def test_a_claim_reads_as_much_beside_few_queues_as_beside_many(
    alone: PostgresStore, kind: str, queues: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for looks below the floors, which come by the clock."""
    monkeypatch.setattr(exchange, "FULL_SECONDS", 1e9)
    monkeypatch.setattr(exchange, "FULL_SECONDS_MAX", 1e9)
    hands = await Hands.on(alone)
    costs = []
    for first, last in ((0, 300), (300, 1_500)):
        await crowd(alone, kind, first, last)
        seen = []
        for _ in range(4):
            await enqueued(alone, *[job(queue="mine") for _ in range(10)])
            before = await work(alone)
            request = ClaimRequest([TASK, "u"], 10, queues)
            assert len((await alone.exchange(hands.me, [], [request])).claimed) == 10
            seen.append(await work(alone) - before)
        costs.append(max(seen))
    assert costs[1] < 1.3 * costs[0] + 20, costs


async def test_a_peek_reads_as_much_beside_few_queues_as_beside_many(
    alone: PostgresStore,
) -> None:
    costs = []
    await enqueued(alone, job(delay=50.0))
    for first, last in ((0, 100), (100, 2_000)):
        await crowd(alone, "scheduled", first, last)
        before = await work(alone)
        assert (await alone.peek(WorkerRef(0, 0))).next_due is not None
        costs.append(await work(alone) - before)
    assert costs[1] <= costs[0] + 5, costs


async def test_due_jobs_of_unserved_queues_hide_no_others_from_the_sweep(
    alone: PostgresStore,
) -> None:
    await enqueued(alone, *[job(queue="unserved", delay=0.001) for _ in range(9)])
    (last,) = await enqueued(alone, job(queue="mine", delay=0.002))

    async def found() -> bool:
        return last in {each.job_id for each in (await alone.waiting(0.0, 3)).jobs}

    await eventually(found)
