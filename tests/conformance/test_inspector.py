"""Reads for people and screens."""

from __future__ import annotations

import itertools

from outlast.insight.availability import Served
from outlast.insight.queries import read_workers
from outlast.model.job import State
from outlast.model.lifecycle import OutcomeKind
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter, WorkerStatus
from outlast.store.values import Save
from tests.conformance.kit import Hands, crashed, ended, enqueued, job


async def test_an_empty_store_lists_nothing(store: Store) -> None:
    look = store.inspector
    assert await look.job(1) is None
    assert await look.jobs(JobFilter()) == []
    assert await look.attempts(1) == []
    assert await look.last_attempts([1]) == []
    assert await look.last_token() == 0
    assert await look.workers() == []
    assert await look.refusals() == []
    assert await look.counts() == {}


async def test_a_job_is_named_by_its_tokens_and_while_it_is_unfinished_by_its_key(
    store: Store, hands: Hands
) -> None:
    look = store.inspector
    (first, second) = await enqueued(store, job(key="k"), job())
    one, other = await hands.claim(2)
    assert await look.named(one.token, None) == [first]
    assert await look.named(other.token, "k") == [second, first]
    await hands.hand_in(crashed(one), ended(other))
    assert await look.named(one.token, None) == [first], "a closed attempt"
    assert await look.named(other.token, None) == [], "completed: no index knows its token"
    await store.cancel([first])
    assert await look.named(None, "k") == []
    assert await look.named(None, None) == []


async def test_counts_are_by_queue_and_state(store: Store, hands: Hands) -> None:
    await enqueued(store, *[job(queue="a") for _ in range(3)], job(queue="b"))
    one, two = await hands.claim(2, queues=["a"])
    await hands.hand_in(ended(one), ended(two, OutcomeKind.DEAD))
    assert await store.inspector.counts() == {
        ("a", State.COMPLETED): 1,
        ("a", State.DEAD): 1,
        ("a", State.QUEUED): 1,
        ("b", State.QUEUED): 1,
    }


async def test_workers_show_how_many_jobs_they_run(store: Store, hands: Hands) -> None:
    await enqueued(store, job(), job())
    await hands.claim()
    other = await Hands.on(store, "w2")
    await store.set_status(other.me, WorkerStatus.STOPPED)
    one, two = await store.inspector.workers()
    assert (one.running, two.running) == (2, 0)
    assert two.stopped_at is not None


async def test_attempts_are_in_the_order_of_their_tokens(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store)
    for end in (OutcomeKind.RELEASED, OutcomeKind.SNOOZED):
        await hands.hand_in(ended(await hands.claim_one(), end))
    await hands.hand_in(crashed(await hands.claim_one()))
    attempts = await store.inspector.attempts(job_id)
    assert [one.outcome for one in attempts] == ["released", "snoozed", "error"]
    assert [one.number for one in attempts] == [1, 2, 3]
    assert [one.token for one in attempts] == sorted(one.token for one in attempts)


async def test_each_job_is_listed_with_its_last_attempt(store: Store, hands: Hands) -> None:
    ids = await enqueued(store, job(queue="a"), job(queue="b"), job(queue="a"))
    for end in (OutcomeKind.RELEASED, OutcomeKind.SNOOZED, OutcomeKind.DEAD):
        await hands.hand_in(*[ended(one, end) for one in await hands.claim(queues=["a"])])
    found = await store.inspector.last_attempts(ids)
    assert [row for row, _ in found] == await store.inspector.jobs(JobFilter())
    for row, last in found:
        closed = await store.inspector.attempts(row.id)
        assert last == (closed[-1] if closed else None)
    assert [last and last.outcome for _, last in found] == ["dead", None, "dead"]


async def test_the_last_token_is_the_last_that_was_issued(store: Store, hands: Hands) -> None:
    await enqueued(store, *[job() for _ in range(4)])
    before = await store.inspector.last_token()
    tokens = [each.token for each in await hands.claim(3)]
    assert await store.inspector.last_token() == max(tokens) >= before + 3


async def test_refusals_are_newest_first_and_by_job(store: Store) -> None:
    await store.checkpoint([Save(1, 10, 1, "1"), Save(2, 20, 1, "1")])
    await store.checkpoint([Save(1, 11, 1, "1")])
    assert [row.token for row in await store.inspector.refusals(1)] == [11, 10]
    (newest,) = await store.inspector.refusals(limit=1)
    assert newest.token == 11
    older = await store.inspector.refusals(before_id=newest.id)
    assert [row.token for row in older] == [20, 10]
    assert [row.token for row in await store.inspector.refusals(1, 1, older[0].id)] == [10]


async def test_a_refusal_names_the_worker_that_came_too_late(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store)
    lost = await hands.claim_one()
    await hands.hand_in(ended(lost, OutcomeKind.RELEASED))
    other = await Hands.on(store, "w2")
    done = await other.claim_one()
    await other.hand_in(ended(done))
    for claimed in (lost, done):
        assert await store.checkpoint([Save(job_id, claimed.token, 1, "1")]) == ["refused"]
    newest, oldest = await store.inspector.refusals(job_id)
    assert (oldest.worker, oldest.token, oldest.verb) == ("w1", lost.token, "checkpoint")
    assert (newest.worker, newest.token) == ("w2", done.token)
    assert newest.late_by is not None
    await store.checkpoint([Save(job_id, 10_000, 1, "1")])
    assert (await store.inspector.refusals(job_id))[0].worker is None


async def test_only_active_workers_announce_tasks(store: Store, hands: Hands) -> None:
    await store.announce(hands.me, ["t"], {})
    await store.set_status(hands.me, WorkerStatus.DRAINING)
    await Hands.on(store, "w2", tasks=["b", "a"])
    await Hands.on(store, "w3", tasks=["b", "c"], queues=["mail"])
    served = Served(await read_workers(store))
    pairs = itertools.product("abct", ("mail", "other"))
    assert [pair for pair in pairs if not served.has(*pair)] == [
        ("c", "other"),
        ("t", "mail"),
        ("t", "other"),
    ]
