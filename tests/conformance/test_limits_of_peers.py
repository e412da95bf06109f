"""Faults that users of other queues met with limits, by the number of the thread that reports each.

They are of three kinds: a permit leaks or is given back twice, since it is kept apart from the
attempt; all who look for work meet blocked jobs again and again; more run than the limit allows.
"""

from __future__ import annotations

import asyncio

from outlast.insight.verify import verify
from outlast.store.limits import SetLimit
from outlast.store.protocol import Store
from outlast.store.values import Answer, Claimed
from tests.conformance.kit import Hands, ended, enqueued, eventually, job, lost_worker
from tests.conformance.limits_kit import declare, held, limited, need

# -- a permit leaks, or is given back twice


async def test_a_worker_that_was_thought_dead_gives_nothing_back(
    store: Store, hands: Hands
) -> None:
    """solid_queue#761: a pruned worker's late end gave the permit back again, and 11 ran of 1."""
    await declare(store, running=1)
    await enqueued(store, *[limited(need("a"))] * 9)
    for number in range(3):
        late = await Hands.on(store, f"late{number}")
        stale = await late.claim_one()
        await late.vanish()
        await store.reclaim(lost_worker)
        (current,) = await eventually(hands.claim)
        assert (await store.exchange(late.me, [ended(stale)], [])).answers != [Answer.ACCEPTED]
        assert await held(store) == 1
        assert await hands.claim() == []
        assert await hands.hand_in(ended(current)) == [Answer.ACCEPTED]
    assert await held(store) == 0
    assert (await verify(store.inspector)).findings == []


async def test_a_reclaim_gives_the_permits_of_all_jobs_back(store: Store) -> None:
    """trigger.dev#2907: jobs that were taken back from a silent consumer kept their slots."""
    await declare(store, running=3, per="tenant")
    for number in range(3):  # a limit of 3 would be used up
        await enqueued(store, *[limited(need("a", "acme"), tenant="acme")] * 3)
        lost = await Hands.on(store, f"lost{number}")
        assert len(await lost.claim(3)) == 3
        await lost.vanish()
        await store.reclaim(lost_worker)
        assert await held(store, key="acme") == 0
    assert (await verify(store.inspector)).findings == []


async def test_a_job_that_is_enqueued_while_the_holder_ends_is_not_left_behind(
    store: Store, other_store: Store, hands: Hands
) -> None:
    """solid_queue#456: an enqueue saw the slot taken, the holder ended, and no one looked again
    until the lock expired after 30 minutes; solid_queue#630 is a report of the same kind."""
    await declare(store, running=1)
    await enqueued(store, limited(need("a")))
    current = await hands.claim_one()
    for _ in range(20):
        _, (following,) = await asyncio.gather(
            hands.hand_in(ended(current)), enqueued(other_store, limited(need("a")))
        )
        current = await hands.claim_one()
        assert current.job_id == following


# -- blocked jobs are met by all who look for work


async def test_many_blocked_keys_hold_up_no_free_one(store: Store, hands: Hands) -> None:
    """oban#1050: jobs of a free partition stayed available while producers met the others;
    oban#750 is a report of the same kind."""
    await declare(store, running=1, per="limit_key")
    keys = [f"k{number}" for number in range(300)]
    await enqueued(store, *[limited(need("a", key)) for key in keys for _ in range(3)])
    first = await hands.claim(1000)
    while len(first) < len(keys):
        more = await hands.claim(1000)
        assert more
        first += more
    assert await hands.claim(1000) == []
    (free,) = await enqueued(store, limited(need("a", "free")))
    assert [each.job_id for each in await hands.claim(1)] == [free]
    (plain,) = await enqueued(store, job())
    assert [each.job_id for each in await hands.claim(1)] == [plain]
    await hands.hand_in(ended(first[137]))
    (following,) = await hands.claim(1000)
    assert following.job_id == first[137].job_id + 1


# -- more run than the limit allows


async def test_workers_that_claim_at_once_start_no_more_than_the_limit(
    store: Store, other_store: Store
) -> None:
    """pgqueuer#761: two workers counted what runs, both saw room, and each started a job;
    bullmq#3210 is a report of the same kind."""
    await declare(store, running=2)
    await enqueued(store, *[limited(need("a"))] * 100)
    fleet = [await Hands.on(each, f"w{n}") for n, each in enumerate([store, other_store] * 3)]
    running: list[tuple[Hands, list[Claimed]]] = []
    for _ in range(15):
        replies = await asyncio.gather(*(each.claim(2) for each in fleet))
        running += [(each, got) for each, got in zip(fleet, replies, strict=True) if got]
        assert await held(store) == sum(len(got) for _, got in running) <= 2
        if running:
            worker, got = running.pop(0)
            await worker.hand_in(*map(ended, got))
    assert (await verify(store.inspector)).findings == []


async def test_late_arrivals_that_come_first_take_no_place_beyond_the_limit(
    store: Store, hands: Hands
) -> None:
    """hatchet#4806: of a limit of 2 ran 3 or 4: places were counted by the rank in the order, which
    new jobs of a higher priority changed."""
    await declare(store, running=2, per="limit_key")
    key = need("a", "alice")
    await enqueued(store, *[limited(key)] * 3, limited(need("a", "bob")))
    await hands.settle()
    assert len(await hands.claim()) == 3
    for priority in (1, 5, 9):
        await enqueued(store, *[limited(key, priority=priority)] * 2)
        assert await hands.claim() == []
        assert await held(store, key="alice") == 2
    await store.set_limit(SetLimit(name="a", key="alice", running=3))
    (first,) = await hands.claim()
    assert first.priority == 9
