"""Sessions that keep plans, on PostgreSQL: only the calls that ask for them use them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from outlast.store.backend import StoreOptions
from outlast.store.postgres.pool import Connections
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import ClaimRequest, NewJob, WorkerRef

KEPT, REPLANNED = "force_generic_plan", "force_custom_plan"


@pytest.fixture
async def two(pg_url: str) -> AsyncIterator[Connections]:
    """At most two connections."""
    connections = Connections(pg_url, StoreOptions(connections=2))
    yield connections
    await connections.close()


async def plans(connection: Any) -> str:
    """Return what the session does about plans."""
    return str(await connection.fetchval("SHOW plan_cache_mode"))


async def test_plans_are_kept_only_for_calls_that_ask_for_it(two: Connections) -> None:
    for keeps_plans, mode in ((True, KEPT), (False, REPLANNED)) * 2:
        async with two.use(keeps_plans=keeps_plans) as connection:
            assert await plans(connection) == mode
    assert {len(idle) for idle in two.loop_pool().idle.values()} == {1}


async def test_a_call_that_needs_new_plans_gets_no_session_that_keeps_them(
    two: Connections,
) -> None:
    async with contextlib.AsyncExitStack() as both:
        held = [await both.enter_async_context(two.use(keeps_plans=True)) for _ in range(2)]
        assert [await plans(connection) for connection in held] == [KEPT, KEPT]
    async with two.use() as connection:
        assert await plans(connection) == REPLANNED
    assert sum(connection.is_closed() for connection in held) == 1


async def test_a_call_goes_on_without_kept_plans_where_no_session_is_free(
    two: Connections,
) -> None:
    async with two.use():
        async with two.use() as other:
            pass
        async with two.use(keeps_plans=True) as connection:
            assert connection is other
            assert await plans(connection) == REPLANNED


async def test_plans_are_kept_again_after_two_calls_needed_new_ones(
    two: Connections,
) -> None:
    async with contextlib.AsyncExitStack() as both:
        held = [await both.enter_async_context(two.use()) for _ in range(2)]
    async with two.use(keeps_plans=True) as connection:
        assert await plans(connection) == KEPT
    assert sum(connection.is_closed() for connection in held) == 1
    assert [len(idle) for idle in two.loop_pool().idle.values()] == [1, 1]


async def test_a_single_connection_plans_again(pg_url: str) -> None:
    one = Connections(pg_url)
    async with one.use(keeps_plans=True) as connection:
        assert await plans(connection) == REPLANNED
    await one.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return what comes to hold, for each connection that is lent, whether it may keep plans."""
    asked = []
    run = Connections.run_notifying

    async def spied(self: Connections, work: Any, *, keeps_plans: bool = False, **more: Any) -> Any:
        asked.append(keeps_plans)
        return await run(self, work, keeps_plans=keeps_plans, **more)

    monkeypatch.setattr(Connections, "run_notifying", spied)
    return asked


async def test_only_the_look_for_a_key_needs_new_plans(
    pg_url: str, store: PostgresStore, asked: list[bool]
) -> None:
    plain = NewJob(task="t")
    await store.enqueue([plain])
    await store.enqueue([plain, NewJob(task="other")])
    await store.enqueue([NewJob(task="t", key="k")])
    assert asked == [True, True, True]
    await store.enqueue([NewJob(task="t", key="k")])
    assert asked[3:] == [True, False]


async def test_of_a_worker_only_the_exchange_keeps_its_plan(
    pg_url: str, store: PostgresStore, asked: list[bool]
) -> None:
    await store.exchange(WorkerRef(1, 1), [], [ClaimRequest(["t"], 1, [])])
    await store.observe()
    assert asked == [True, False]
