"""Tokens on PostgreSQL: they never decrease, and raising them blocks no other call."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from outlast.errors import StoreUnavailable
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import Store
from tests.conformance.kit import Hands, enqueued, job
from tests.postgres.kit import blocked, exchange_on


@pytest.mark.parametrize("steps", [(3, 3), (3, 150_000), (150_000, 150_000)])
async def test_tokens_never_decrease_while_they_are_raised(
    store: PostgresStore, hands: Hands, steps: tuple[int, int]
) -> None:
    await enqueued(store, *[job() for _ in range(200)])
    raisers = [PostgresStore(store.url) for _ in range(2)]
    tokens: list[int] = []

    async def keep_raising(each: PostgresStore, step: int) -> None:
        for _ in range(40):
            with contextlib.suppress(StoreUnavailable):  # a jump waits for a short while only
                await each.raise_tokens(max(tokens, default=0) + step)

    async def keep_claiming() -> None:
        while claimed := await hands.claim(2):
            tokens.extend(sorted(c.token for c in claimed))

    await asyncio.gather(keep_claiming(), *map(keep_raising, raisers, steps))
    assert tokens == sorted(set(tokens))
    assert tokens[-1] > max(steps)
    for each in raisers:
        await each.close()


async def test_a_reconnect_with_the_newest_token_blocks_no_other_call(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    await enqueued(store, *[job() for _ in range(3)])
    token = (await hands.claim_one()).token
    mine = await Hands.on(store, "mine")
    async with session.transaction():
        await exchange_on(session, hands, limit=1)  # a slow one
        newest = await session.fetchval("SELECT last_value FROM outlast_token_seq")
        assert newest > token
        async with asyncio.timeout(25):
            again = await store.reconnect(mine.me, newest)
        assert again is not None
        table_locks = await session.fetchval(
            "SELECT count(*) FROM pg_locks WHERE relation = 'outlast_workers'::regclass"
            " AND mode = 'ExclusiveLock'"
        )
        assert table_locks == 0
        assert (await store.heartbeat(mine.me)).renewed
    assert (await Hands(store, again).claim_one()).token > newest


async def test_a_jump_of_the_tokens_lets_the_beats_through_while_an_exchange_is_open(
    store: PostgresStore, other_store: Store, hands: Hands, session: Any, watcher: Any
) -> None:
    await enqueued(store)
    async with session.transaction():
        await exchange_on(session, hands, limit=1)
        far = await session.fetchval("SELECT last_value FROM outlast_token_seq") + 10_000_000
        jumping = asyncio.create_task(store.raise_tokens(far))
        await blocked(watcher)
        assert (await other_store.heartbeat(hands.me)).renewed  # as soon as the jump gives up
        with pytest.raises(StoreUnavailable):
            await jumping
    await store.raise_tokens(far)
    await enqueued(store)
    assert (await hands.claim_one()).token > far


@pytest.mark.parametrize("breaks_off", [False, True], ids=["commits", "breaks off"])
async def test_after_a_crash_one_of_several_workers_draws_the_incarnation(
    breaks_off: bool, store: PostgresStore, hands: Hands, session: Any, watcher: Any
) -> None:
    """The others wait for it; if it breaks off, the next one draws it, and tokens jump again."""
    await enqueued(store)
    await session.execute("DELETE FROM outlast_incarnation")  # as a crash does
    jumping = session.transaction()
    await jumping.start()
    await session.execute("SELECT outlast_begin_incarnation_v1()")
    jumped = await session.fetchval("SELECT last_value FROM outlast_token_seq")
    others = [PostgresStore(store.url) for _ in range(3)]
    coming = [asyncio.create_task(each.raise_tokens(0)) for each in others]
    await blocked(watcher, len(others))
    await (jumping.rollback() if breaks_off else jumping.commit())
    await asyncio.gather(*coming)
    assert await session.fetchval("SELECT count(*) FROM outlast_incarnation") == 1
    again = await store.reconnect(hands.me, 0)
    assert again is not None
    token = (await Hands(store, again).claim_one()).token
    assert token > jumped if breaks_off else token == jumped + 1
    for each in others:
        await each.close()
