"""Fairness: tenants take turns, ``@app.task(fair="tenant")``.

Law L5 (docs/limits.md): a tenant that waits is served once each of the others has had one turn.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from outlast.model.lifecycle import Transition
from outlast.store.protocol import Store
from tests.conformance.kit import Hands, ended, enqueued, of_whole_rounds
from tests.conformance.limits_kit import declare, limited, need


async def _waiting(store: Store, count: int, *tenants: str) -> None:
    """Let jobs of these tenants wait; each tenant's stream has its first turn in this order."""
    for tenant in tenants:
        await enqueued(store, *[limited(fair=tenant, tenant=tenant)] * count)


async def _tenants(hands: Hands, limit: int = 1) -> list[str]:
    return [each.tenant or "" for each in await hands.claim(limit)]


async def test_a_batch_is_shared_out_equally(store: Store, hands: Hands) -> None:
    await _waiting(store, 40, "acme", "beta")
    await hands.settle()
    for _ in range(3):
        assert Counter(await _tenants(hands, 8)) == {"acme": 4, "beta": 4}


async def test_under_a_shared_limit_each_start_is_a_turn(store: Store, hands: Hands) -> None:
    await declare(store, running=1)
    for tenant in ("acme", "beta"):
        await enqueued(store, *[limited(need("a"), fair=tenant, tenant=tenant)] * 12)
    await hands.settle()
    got: Counter[str | None] = Counter()
    last: list[Transition] = []
    for _ in range(12):
        reply = await hands.exchange(*last, limit=10)
        (one,) = reply.claimed or await hands.claim()
        got[one.tenant] += 1
        last = [ended(one)]
    assert got == {"acme": 6, "beta": 6}


@of_whole_rounds
@pytest.mark.parametrize("seed", range(3))
async def test_a_tenant_that_waits_is_served_within_one_round_of_turns(
    store: Store, hands: Hands, seed: int
) -> None:
    dice = random.Random(seed)
    tenants = [f"t{n}" for n in range(5)]
    await _waiting(store, 60, *tenants)
    last = dict.fromkeys(tenants, 0)
    done = 0
    while done < 60:
        for tenant in await _tenants(hands, dice.choice([1, 1, 2, 5])):
            done += 1
            # 5: within one claim, in any order
            assert done - last[tenant] <= len(tenants) - 1 + 5, tenant
            last[tenant] = done
