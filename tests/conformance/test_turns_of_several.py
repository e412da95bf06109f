"""A job that needs several permits at once starts, beside a flood of jobs that need one of them."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from outlast.store.protocol import Store
from outlast.store.values import Claimed, OnKey
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import Hands, ended, enqueued, eventually, job
from tests.conformance.limits_kit import declare, limited, need

FLOOD = 200  # jobs under each limit


@pytest.mark.parametrize("running", [1, 2])
@pytest.mark.parametrize("names", ["ab", "abc"])
async def test_a_job_under_several_limits_starts_beside_floods_under_each(
    store: Store, hands: Hands, names: str, running: int
) -> None:
    floods: set[int] = set()
    for name in names:
        await declare(store, name, running=running)
        floods |= {*await enqueued(store, *[limited(need(name))] * FLOOD)}
    await hands.settle()
    held = deque(await hands.claim())
    assert len(held) == running * len(names)
    (job_id,) = await enqueued(store, limited(*map(need, names)))
    started: list[Claimed] = []
    begun = len(held)
    while held and not started:
        reply = await hands.exchange(ended(held.popleft()), limit=100)
        held.extend(each for each in reply.claimed if each.job_id in floods)
        started = [each for each in reply.claimed if each.job_id == job_id]
        begun += len(reply.claimed) - len(started)
    assert started
    assert begun < len(floods) / 4


async def test_a_permit_that_others_need_is_kept_for_half_of_the_time_at_most(
    store: Store, hands: Hands
) -> None:
    """A job has room under one of its limits, and waits for another one whose job goes on: those
    that need only the first one start meanwhile."""
    await declare(store, "a", running=1)
    await declare(store, "b", running=1)
    (busy,) = await enqueued(store, limited(need("b")))
    assert [each.job_id for each in await hands.claim()] == [busy]
    (waits,) = await enqueued(store, limited(need("a"), need("b")))
    assert await hands.claim() == []
    floods = await enqueued(store, *[limited(need("a"))] * 20)
    begun: list[int] = []
    while len(begun) < len(floods):
        (one,) = await eventually(hands.claim)
        begun.append(one.job_id)
        await hands.hand_in(ended(one))
    assert waits not in begun


@pytest.mark.parametrize("how", ["cancelled", "expired", "replaced"])
async def test_no_place_is_kept_for_a_job_that_waits_there_no_more(
    store: Store, hands: Hands, how: str
) -> None:
    for name in "ab":
        await declare(store, name, running=1)
    ids = dict(zip("ab", await enqueued(store, *map(limited, map(need, "ab"))), strict=True))
    busy = {each.job_id: each for each in await hands.claim(2)}
    own: dict[str, Any] = {"expires": 0.5} if how == "expired" else {}
    own |= {"key": "k", "on_key": OnKey(replaces=True)} if how == "replaced" else {}
    (waits,) = await enqueued(store, limited(need("a"), need("b"), priority=5, **own))
    assert await hands.claim() == []
    async with raw(store.url) as file:  # for two hours
        since = "touched_at = touched_at - 7200"
        assert await file.run(f"UPDATE outlast_streams SET {since} WHERE blocked IS NOT NULL")
    place = await store.inspector.stream_place(waits)
    assert place is not None
    assert place.blocked_by is not None
    name = place.blocked_by.name
    (last,) = await enqueued(store, limited(need(name)))
    assert (await hands.exchange(ended(busy[ids[name]]), limit=10)).claimed == []
    if how == "cancelled":
        await store.cancel([waits])
    elif how == "expired":
        await eventually(lambda: store.expire(100))
    else:
        assert await enqueued(store, job(key="k", delay=60.0, on_key=OnKey(replaces=True))) == [
            waits
        ]
    assert [each.job_id for each in await hands.claim(10)] == [last]
