"""`outlast verify` finds each row that was spoilt so that a job is stuck, or runs too often."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from outlast.insight.verify import verify
from outlast.model.lifecycle import OutcomeKind
from outlast.model.limits import LimitSpec
from outlast.store.limits import NewLimit
from outlast.store.protocol import Store
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import Hands, crashed, ended, enqueued, job
from tests.conformance.limits_kit import declare, limited, need
from tests.conformance.test_dependencies import after
from tests.conformance.test_ordered import ordered

Put = Callable[[Store], Awaitable[Any]]


async def due(store: Store) -> None:
    await enqueued(store)


async def blocked(store: Store) -> None:
    await enqueued(store, job(), after(-1))


async def retried(store: Store) -> None:
    await enqueued(store)
    hands = await Hands.on(store)
    await hands.hand_in(crashed(await hands.claim_one()))


async def full(store: Store) -> None:
    await declare(store, running=1)
    await enqueued(store, *[limited(need("a"))] * 2)
    hands = await Hands.on(store)
    await hands.claim()
    await hands.claim()


async def slow(store: Store) -> None:
    await declare(store, spacing=600.0, burst=1.0)
    await enqueued(store, *[limited(need("a"))] * 2)
    hands = await Hands.on(store)
    await hands.hand_in(*map(ended, await hands.claim()))
    await hands.claim()


async def in_order(store: Store) -> None:
    await store.declare_limits([NewLimit("o", LimitSpec(running=1, per=None, ordered=True))])
    await enqueued(store, *[ordered()] * 2)
    hands = await Hands.on(store)
    await hands.claim()
    await hands.claim()


async def for_an_event(store: Store) -> None:
    await enqueued(store)
    hands = await Hands.on(store)
    await hands.hand_in(ended(await hands.claim_one(), OutcomeKind.SNOOZED, delay=99, event="e"))
    await hands.exchange(limit=1, tasks=["app.none"])


OF_THE_JOB = "UPDATE outlast_jobs SET {} WHERE state = 'queued'"
SPOILT: list[tuple[Put, str]] = [
    *((due, OF_THE_JOB.format(each)) for each in ("solo = 5", "stream = 99, needs = '[]'")),
    (due, OF_THE_JOB.format("run_at = 'NaN', position = NULL")),
    (due, OF_THE_JOB.format("run_at = 'Infinity', position = NULL")),
    (due, OF_THE_JOB.format("state = 'blocked', position = NULL")),
    (due, "DELETE FROM outlast_lanes"),
    (retried, OF_THE_JOB.format("failures = 0")),
    (blocked, "DELETE FROM outlast_dependencies"),
    (blocked, "UPDATE outlast_dependencies SET state = 2"),
    (blocked, "UPDATE outlast_dependencies SET upstream_id = 99"),
    (blocked, "UPDATE outlast_jobs SET awaited = (1 = 0)"),
    (blocked, "UPDATE outlast_jobs SET state = 'queued', position = 7 WHERE state = 'blocked'"),
    *((full, OF_THE_JOB.format(each)) for each in ("stream = 99", "task = 'z'", "queue = 'z'")),
    *((full, f"DELETE FROM outlast_{table}") for table in ("permits", "streams")),
    *(
        (full, f"UPDATE outlast_streams SET {each}")
        for each in ("blocked = -3", "blocked = 77", "blocked = NULL, idle = (1 = 1)", "task = 'z'")
    ),
    *((full, f"UPDATE outlast_permits SET used = {used}") for used in (0, 5)),
    (slow, "UPDATE outlast_permits SET opens_at = 1e12"),
    (slow, "UPDATE outlast_permits SET opens_at = NULL"),
    *((in_order, f"UPDATE outlast_streams SET holder = {each}") for each in ("id", "NULL", "99")),
    (for_an_event, "UPDATE outlast_waits SET woken = (1 = 1)"),
]


@pytest.mark.parametrize(("put", "spoil"), SPOILT)
async def test_a_row_that_would_hold_a_job_or_run_it_too_often_is_found(
    store: Store, store_url: str, put: Put, spoil: str
) -> None:
    await put(store)
    assert (await verify(store.inspector)).findings == []
    async with raw(store_url) as file:
        is_accepted = await file.run(spoil)
    assert bool((await verify(store.inspector)).violations) == is_accepted
