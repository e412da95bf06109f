"""The SQL of limits and the pure rules of ``model/limits.py`` agree for all numbers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from outlast.model.limits import UNLIMITED, Budget
from outlast.store.postgres.store import PostgresStore
from tests.conformance.kit import Hands, enqueued, eventually
from tests.conformance.limits_kit import declare, limited, need

LEFT = """SELECT outlast_room_v1(
    CASE WHEN u.running IS NULL THEN 1000000000 ELSE greatest(0, u.running - u.used) END,
    u.spacing, u.burst, u.ahead, u.cost)
FROM unnest($1::integer[], $2::integer[], $3::float8[], $4::float8[], $5::float8[], $6::float8[])
    WITH ORDINALITY AS u (running, used, spacing, burst, ahead, cost, n) ORDER BY u.n"""


def _case(dice: random.Random) -> dict[str, Any]:
    spacing = dice.choice([None, 0.001, 0.1, 1.0, 7.3, dice.random() * 10])
    burst = dice.choice([1.0, 2.0, 5.0, 50.0, dice.random() * 20])
    steps = dice.choice([0.0, 1.0, burst - 1, burst, dice.random() * 2 * burst])
    return {
        "running": dice.choice([None, 0, 1, 3, 100]),
        "used": dice.choice([0, 1, 3, 7]),
        "spacing": spacing,
        "burst": burst,
        "ahead": max(0.0, steps) * (spacing or 0.0),
        "cost": dice.choice([0.0, 0.5, 1.0, 2.0, burst, dice.random() * 10]),
    }


def _room(cost: float, **values: Any) -> int:
    return Budget(**values).room(cost).starts


@pytest.mark.parametrize("seed", range(4))
async def test_a_permit_leaves_what_the_model_says(
    store: PostgresStore, session: Any, seed: int
) -> None:
    dice = random.Random(seed)
    cases = [_case(dice) for _ in range(3_000)]
    columns = [
        [case[name] for case in cases]
        for name in ("running", "used", "spacing", "burst", "ahead", "cost")
    ]
    found = [row[0] for row in await session.fetch(LEFT, *columns)]
    expected = [min(UNLIMITED, _room(**case)) for case in cases]
    wrong = [
        (case, one, other)
        for case, one, other in zip(cases, found, expected, strict=True)
        if one != other
    ]
    assert wrong == []
    assert len({*expected}) > 10


@pytest.mark.parametrize("seed", range(6))
async def test_as_many_start_as_the_limits_allow(
    store: PostgresStore, hands: Hands, seed: int
) -> None:
    """Of one batch as many start as by any order of turns: no job is left that had room, once no
    place is kept for another one."""
    dice = random.Random(seed)
    caps = {f"n{index}": dice.randint(1, 6) for index in range(4)}
    for name, cap in caps.items():
        await declare(store, name, running=cap)
    jobs = []
    for _ in range(60):
        names = dice.sample(sorted(caps), dice.randint(0, 3))
        fair = dice.choice([None, "t1", "t2"])
        if names or fair:
            jobs.append((names, limited(*map(need, names), fair=fair, tenant=fair)))
    ids = await enqueued(store, *[each for _, each in jobs])
    names_of = dict(zip(ids, [names for names, _ in jobs], strict=True))
    places = dice.randint(1, 80)
    started: list[int] = []

    async def is_full() -> bool:
        left = places - len(started)
        started.extend(each.job_id for each in (await hands.claim(left) if left else []))
        used = {name: sum(name in names_of[each] for each in started) for name in caps}
        assert all(used[name] <= cap for name, cap in caps.items())
        could = [
            each
            for each in ids
            if each not in started and all(used[name] < caps[name] for name in names_of[each])
        ]
        return len(started) == places or not could

    await eventually(is_full)
