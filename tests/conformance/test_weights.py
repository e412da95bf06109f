"""Weights of tenants: how many turns in a row their streams have.

Law L5 (docs/limits.md): a tenant that waits is served once each of the others has had as many turns
as its weight.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from outlast.model.lifecycle import Transition
from outlast.store.limits import Weight
from outlast.store.protocol import Store
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import Hands, ended, enqueued, eventually, of_whole_rounds
from tests.conformance.limits_kit import declare, limited, need


async def _waiting(store: Store, count: int, *tenants: str) -> None:
    """Let jobs of these tenants wait; each tenant's stream has its first turn in this order."""
    for tenant in tenants:
        await enqueued(store, *[limited(fair=tenant, tenant=tenant)] * count)


async def _tenants(hands: Hands, limit: int = 1) -> list[str]:
    return [each.tenant or "" for each in await hands.claim(limit)]


async def test_a_tenant_has_as_many_turns_in_a_row_as_its_weight(
    store: Store, hands: Hands
) -> None:
    await store.set_weight(Weight("acme", 3))
    await _waiting(store, 9, "acme", "beta")
    got = [tenant for _ in range(8) for tenant in await _tenants(hands)]
    assert sorted(got[:4]) == sorted(got[4:]) == ["acme"] * 3 + ["beta"]
    assert got[:4] == got[4:]


async def test_a_batch_is_shared_out_by_weights(store: Store, hands: Hands) -> None:
    await store.set_weight(Weight("acme", 3))
    await _waiting(store, 40, "acme", "beta")
    for _ in range(3):
        assert Counter(await _tenants(hands, 8)) == {"acme": 6, "beta": 2}


async def test_turns_that_a_batch_had_no_places_for_are_not_lost(
    store: Store, hands: Hands
) -> None:
    await store.set_weight(Weight("acme", 5))
    await _waiting(store, 20, "acme", "beta")
    got = [tenant for _ in range(6) for tenant in await _tenants(hands, 2)]
    assert Counter(got) == {"acme": 10, "beta": 2}


async def test_under_a_shared_limit_starts_follow_the_weights(store: Store, hands: Hands) -> None:
    await declare(store, running=1)
    await store.set_weight(Weight("acme", 3))
    for tenant in ("acme", "beta"):
        await enqueued(store, *[limited(need("a"), fair=tenant, tenant=tenant)] * 12)
    got: Counter[str | None] = Counter()
    last: list[Transition] = []
    for _ in range(12):
        reply = await hands.exchange(*last, limit=10)
        (one,) = reply.claimed or await hands.claim()
        got[one.tenant] += 1
        last = [ended(one)]
    assert got == {"acme": 9, "beta": 3}


async def test_a_weight_is_listed_changed_and_reset(store: Store, hands: Hands) -> None:
    await store.set_weight(Weight("acme", 3))
    await store.set_weight(Weight("beta", 7))
    await store.set_weight(Weight("acme", 100))
    assert await store.inspector.weights() == [Weight("acme", 100), Weight("beta", 7)]
    assert await store.inspector.weights(most=1) == [Weight("acme", 100)]
    await _waiting(store, 20, "acme", "gamma")
    assert await _tenants(hands, 2) == ["acme", "acme"]
    await store.set_weight(Weight("acme", 1))  # below what it has had in this turn
    assert await store.inspector.weights() == [Weight("beta", 7)]
    got = [tenant for _ in range(6) for tenant in await _tenants(hands)]
    assert Counter(got) == {"acme": 3, "gamma": 3}


async def test_a_stream_that_a_due_job_makes_has_its_tenants_weight(
    store: Store, hands: Hands
) -> None:
    await store.set_weight(Weight("acme", 3))
    later = [limited(fair="acme", tenant="acme", delay=0.5)] * 9
    await enqueued(store, *later)
    async with raw(store.url) as file:  # as if it had been idle for a day
        for table in ("streams", *(["notices"] if store.url.startswith("postgres") else [])):
            await file.run(f"DELETE FROM outlast_{table}")
    got = await eventually(lambda: hands.claim(1))
    await _waiting(store, 9, "beta")
    while len(got) < 8:
        got += await hands.claim(1)
    assert Counter(each.tenant for each in got) == {"acme": 6, "beta": 2}


async def test_a_weight_counts_under_a_limit_after_a_day_of_rest(
    store: Store, hands: Hands
) -> None:
    await declare(store, running=100)
    await store.set_weight(Weight("acme", 3))
    await enqueued(store, limited(need("a"), fair="acme", tenant="acme", delay=600.0))
    async with raw(store.url) as file:
        for table in ("streams", *(["notices"] if store.url.startswith("postgres") else [])):
            await file.run(f"DELETE FROM outlast_{table}")
        await file.run("UPDATE outlast_jobs SET run_at = enqueued_at")  # now it is due
    await eventually(hands.claim)
    await hands.claim()  # it is idle
    for tenant in ("acme", "beta"):
        await enqueued(store, *[limited(need("a"), fair=tenant, tenant=tenant)] * 9)
    got = [tenant for _ in range(8) for tenant in await _tenants(hands)]
    assert Counter(got) == {"acme": 6, "beta": 2}


@of_whole_rounds
@pytest.mark.parametrize("seed", range(3))
async def test_a_tenant_that_waits_is_served_within_one_round_of_turns(
    store: Store, hands: Hands, seed: int
) -> None:
    dice = random.Random(seed)
    weights = {f"t{n}": dice.choice([1, 1, 2, 3, 5]) for n in range(5)}
    for tenant, weight in weights.items():
        await store.set_weight(Weight(tenant, weight))
    await _waiting(store, 60, *weights)
    last = dict.fromkeys(weights, 0)
    done = 0
    while done < 60:
        for tenant in await _tenants(hands, dice.choice([1, 1, 2, 5])):
            done += 1
            others = sum(weights.values()) - weights[tenant]
            assert done - last[tenant] <= others + 5, tenant  # 5: within one claim, in any order
            last[tenant] = done
