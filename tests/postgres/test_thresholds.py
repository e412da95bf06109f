"""Numbers of one round, lowered to a few: what stays keeps no other from going on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness.rounds import MOST, lower_functions, restore_functions
from outlast.store.protocol import Store
from tests.conformance.kit import Hands, ended, enqueued, eventually, job
from tests.conformance.test_children import spawned
from tests.conformance.test_children import waits as waits_for_children
from tests.conformance.test_dependencies import after
from tests.conformance.test_events import send, waits


@pytest.fixture(params=[1, 2, 5])
def most(request: pytest.FixtureRequest, pg_url: str, store: Store) -> Iterator[int]:
    """Lower the numbers to this one for a test."""
    if MOST:
        pytest.skip("the numbers are lowered already")
    was = lower_functions(pg_url, request.param)
    yield request.param
    restore_functions(pg_url, was)


async def takes(hands: Hands, *ids: int) -> None:
    """Claim until these jobs have come."""
    left = {*ids}

    async def look() -> bool:
        left.difference_update([each.job_id for each in await hands.claim()])
        return not left

    await eventually(look)


async def test_a_parent_waits_for_no_child_that_it_does_not_wait_for(
    store: Store, hands: Hands, most: int
) -> None:
    await enqueued(store)
    parent = await hands.claim_one()
    await store.spawn([job(), *[job(delay=3600)] * 60], spawned(parent))
    child = await hands.claim_one()
    assert await store.watch_children(parent.job_id, parent.token, [child.job_id])
    await hands.hand_in(waits_for_children(parent))
    await hands.hand_in(ended(child))
    await takes(hands, parent.job_id)
    assert await store.inspector.unresolved() == []


async def test_notices_that_have_to_stay_hide_no_others(
    store: Store, hands: Hands, session: Any, most: int
) -> None:
    """A session holds jobs whose upstream jobs end, as an open transaction of a caller does."""
    held = [(await enqueued(store, job(), after(-1)))[1] for _ in range(most + 1)]
    upstream = await hands.claim()
    (waiter,) = await enqueued(store)
    await hands.hand_in(waits(await hands.claim_one()))
    assert await hands.claim() == []  # the notice of that wait is done
    async with session.transaction():
        await session.fetch("SELECT FROM outlast_jobs WHERE id = ANY ($1) FOR UPDATE", held)
        await hands.hand_in(*map(ended, upstream))
        await send(store)
        await takes(hands, waiter)
    await takes(hands, *held)


async def test_jobs_that_another_session_holds_hide_no_other_that_waits_for_an_event(
    store: Store, hands: Hands, session: Any, most: int
) -> None:
    ids = await enqueued(store, *[job()] * (most + 1))
    for each in await hands.claim():
        await hands.hand_in(waits(each))
    async with session.transaction():
        await session.fetch("SELECT FROM outlast_jobs WHERE id = ANY ($1) FOR UPDATE", ids[:-1])
        await send(store)
        await takes(hands, ids[-1])
    await takes(hands, *ids[:-1])
