"""A job that needs several permits at once starts, beside a flood of jobs that need one of them."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from outlast.model.pause import PauseKind
from outlast.store.protocol import Store
from outlast.store.values import Claimed, NewPause, OnKey
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import TASK, Hands, ended, enqueued, eventually, job
from tests.conformance.limits_kit import declare, limited, need

OTHER = "app.other"
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


async def keep_a_place(store: Store, hands: Hands, **own: Any) -> tuple[int, int]:
    """Let a place be kept for a job that has waited for two hours, and another job wait for that
    place; return the two."""
    tasks = [TASK, OTHER]
    for name in "ab":
        await declare(store, name, running=1)
    ids = dict(zip("ab", await enqueued(store, *map(limited, map(need, "ab"))), strict=True))
    busy = {each.job_id: each for each in await hands.claim(2, tasks=tasks)}
    (waits,) = await enqueued(store, limited(need("a"), need("b"), priority=5, **own))
    assert await hands.claim(tasks=tasks) == []
    async with raw(store.url) as file:
        since = "touched_at = touched_at - 7200"
        assert await file.run(f"UPDATE outlast_streams SET {since} WHERE blocked IS NOT NULL")
    place = await store.inspector.stream_place(waits)
    assert place is not None
    assert place.blocked_by is not None
    name = place.blocked_by.name
    assert (await hands.exchange(ended(busy[ids[name]]), limit=10, tasks=tasks)).claimed == []
    (last,) = await enqueued(store, limited(need(name)))
    assert await hands.claim(10, tasks=tasks) == []
    return waits, last


@pytest.mark.parametrize("how", ["cancelled", "expired", "replaced"])
async def test_no_place_is_kept_for_a_job_that_waits_there_no_more(
    store: Store, hands: Hands, how: str
) -> None:
    own: dict[str, Any] = {"expires": 0.5} if how == "expired" else {}
    own |= {"key": "k", "on_key": OnKey(replaces=True)} if how == "replaced" else {}
    waits, last = await keep_a_place(store, hands, **own)
    if how == "cancelled":
        await store.cancel([waits])
    elif how == "expired":
        await eventually(lambda: store.expire(100))
    else:
        assert await enqueued(store, job(key="k", delay=60.0, on_key=OnKey(replaces=True))) == [
            waits
        ]
    assert [each.job_id for each in await hands.claim(10)] == [last]


@pytest.mark.parametrize(
    ("pause", "passed_over"),
    [
        (NewPause(kind=PauseKind.QUEUE, name="q"), {"not_queues": ["q"]}),
        (NewPause(kind=PauseKind.TASK, name=OTHER), {"tasks": [TASK]}),
        (NewPause(kind=PauseKind.TENANT, name="x"), {"not_tenants": ["x"]}),
    ],
    ids=lambda value: value.kind if isinstance(value, NewPause) else "",
)
async def test_no_place_is_kept_for_a_job_that_is_paused(
    store: Store, hands: Hands, pause: NewPause, passed_over: dict[str, Any]
) -> None:
    _, last = await keep_a_place(store, hands, queue="q", task=OTHER, fair="x")
    made = await store.pause(pause)
    await store.acknowledge_pauses(hands.me, str(made.id))
    claimed = await hands.claim(10, **{"tasks": [TASK, OTHER], **passed_over})
    assert [each.job_id for each in claimed] == [last]
