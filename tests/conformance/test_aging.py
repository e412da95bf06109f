"""Aging: waiting raises a priority, exactly and without a sweep.

A job's place in its stream is the time at which it became due, less what its priority is worth.
"""

from __future__ import annotations

import random
from typing import Any

from outlast.insight.verify import verify
from outlast.model.lifecycle import OutcomeKind
from outlast.model.limits import Need, needs_text, stream_id
from outlast.store.protocol import Store
from outlast.store.values import NewJob
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import TASK, Hands, ended, enqueued, eventually
from tests.conformance.limits_kit import declare, held, limited, need

STEP = 60.0


def aging(*needs: Need, priority: int = 0, waited: float = 0.0, now: float, **own: Any) -> NewJob:
    """A job of a task with aging=60 that has waited for this long, in seconds."""
    return NewJob(
        task=TASK,
        priority=priority,
        run_at=now - waited,
        stream=stream_id(TASK, "default", None, needs, None),
        needs=needs_text(needs),
        aged_by=priority * STEP,
        **own,
    )


async def _claimed(hands: Hands, count: int) -> list[int]:
    """Claim that many jobs, one by one."""
    got: list[int] = []
    while len(got) < count:
        got += [each.job_id for each in await hands.claim(1)]
    return got


async def test_a_step_of_priority_is_worth_a_time_of_waiting(store: Store, hands: Hands) -> None:
    now = await _now(store)
    ids = await enqueued(
        store,
        aging(now=now),
        aging(now=now, priority=5),
        aging(now=now, waited=301.0),
        aging(now=now, waited=299.0),
        aging(now=now, priority=-1, waited=30.0),
    )
    assert await _claimed(hands, 5) == [ids[2], ids[1], ids[3], ids[0], ids[4]]


async def test_the_order_is_exact_for_any_priorities_and_times(store: Store, hands: Hands) -> None:
    now, dice = await _now(store), random.Random(7)
    jobs = [
        aging(now=now, priority=dice.randint(-100, 100), waited=dice.uniform(1.0, 9_999.0))
        for _ in range(60)
    ]
    ids = await enqueued(store, *jobs)
    places = {one: job.run_at - job.aged_by for one, job in zip(ids, jobs, strict=True)}  # type: ignore[operator]
    got = [each.job_id for each in await hands.claim(20)]
    got += await _claimed(hands, 20)
    while len(got) < 60:
        got += [each.job_id for each in await hands.claim(7)]
    assert got == sorted(ids, key=places.__getitem__)


async def test_a_retry_and_a_delayed_job_keep_their_age(store: Store, hands: Hands) -> None:
    now = await _now(store)
    (old, new) = await enqueued(
        store, aging(now=now, waited=500.0), aging(now=now, priority=5, waited=1.0)
    )
    (first,) = await hands.claim(1)
    assert first.job_id == old
    await hands.hand_in(ended(first, OutcomeKind.RELEASED))
    assert (await eventually(lambda: hands.claim(1)))[0].job_id == old
    assert await _claimed(hands, 1) == [new]
    later = await enqueued(
        store, aging(now=now + 0.2, waited=0.0), aging(now=now + 0.2, priority=9)
    )
    got = [(await eventually(lambda: hands.claim(1)))[0].job_id for _ in later]
    assert got == later[::-1]


async def test_aging_jobs_share_their_limits_and_none_is_forgotten(
    store: Store, hands: Hands
) -> None:
    now = await _now(store)
    await declare(store, running=1)
    ids = await enqueued(
        store,
        aging(need("a"), now=now, key="one"),
        aging(need("a"), now=now, priority=3, key="two"),
        aging(need("a"), now=now, waited=100.0),
    )
    (one,) = await hands.claim()
    assert one.job_id == ids[1]
    assert await held(store) == 1
    place = await store.inspector.stream_place(ids[0])
    assert place is not None
    assert place.ahead == 1
    (two,) = (await hands.exchange(ended(one), limit=5)).claimed or await hands.claim()
    assert two.job_id == ids[2]
    assert [row.priority for row in await store.inspector.jobs_of(ids)] in ([0, 3, 0], [0, 0, 3])
    assert (await verify(store.inspector)).findings == []


async def test_a_paused_tenant_holds_up_no_aging_job_of_others(store: Store, hands: Hands) -> None:
    now = await _now(store)
    ids = await enqueued(
        store, *[aging(now=now, waited=-600.0, tenant=each) for each in ("acme", "zeta")]
    )
    async with raw(store.url) as file:  # as if the stream had been idle for a day
        for table in ("streams", *(["notices"] if store.url.startswith("postgres") else [])):
            await file.run(f"DELETE FROM outlast_{table}")
        await file.run("UPDATE outlast_jobs SET run_at = enqueued_at")  # now they are due
    (one,) = await eventually(lambda: hands.claim(not_tenants=["acme"]))
    assert one.job_id == ids[1]


async def test_beside_other_streams_a_stream_of_aging_jobs_has_priority_0(
    store: Store, hands: Hands
) -> None:
    now = await _now(store)
    for name in ("a", "b"):
        await declare(store, name, running=9)
    ids = await enqueued(
        store, aging(need("a"), now=now, priority=100), limited(need("b"), priority=1)
    )
    assert await _claimed(hands, 2) == ids[::-1]
    ids = await enqueued(
        store,
        aging(need("a"), now=now + 600.0, priority=100),
        limited(need("b"), delay=600.0, priority=1),
    )
    async with raw(store.url) as file:  # as if the streams had been idle for a day
        for table in ("streams", *(["notices"] if store.url.startswith("postgres") else [])):
            await file.run(f"DELETE FROM outlast_{table}")
        await file.run("UPDATE outlast_jobs SET run_at = enqueued_at")  # now they are due

    assert await _claimed(hands, 2) == ids[::-1]


async def _now(store: Store) -> float:
    return (await store.observe()).now
