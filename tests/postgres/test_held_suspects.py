"""A suspect whose row another session holds delays no other one."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.store.protocol import Store
from tests.conformance.kit import Hands
from tests.conformance.test_suspects import ids_of, lost_twice, suspects

HOLD = "SELECT FROM outlast_jobs WHERE id = $1 FOR UPDATE"


@pytest.mark.parametrize("queue", ["default", "other"])
async def test_a_suspect_behind_a_held_one_is_claimed(
    store: Store, hands: Hands, session: Any, queue: str
) -> None:
    (held,) = await suspects(hands, priority=5)
    (other,) = await suspects(hands, queue=queue)
    async with session.transaction():
        await session.execute(HOLD, held)
        assert ids_of(await hands.claim(solo=1)) == [other]
    assert ids_of(await hands.claim(solo=1)) == [held]


async def test_suspects_beside_a_held_one_are_claimed(
    store: Store, hands: Hands, session: Any
) -> None:
    held, *others = await suspects(hands, 3)
    async with session.transaction():
        await session.execute(HOLD, held)
        assert ids_of(await hands.claim(solo=1)) == others


async def test_a_job_that_must_run_alone_is_claimed_behind_a_held_one(
    store: Store, hands: Hands, session: Any
) -> None:
    held, other = await lost_twice(store), await lost_twice(store)
    async with session.transaction():
        await session.execute(HOLD, held)
        assert ids_of(await hands.claim(1, solo=2)) == [other]
