"""What a clock that was ahead has written about limits holds up no job once the clock is right."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from outlast.model.crash import CrashKind
from outlast.model.lifecycle import OutcomeKind
from outlast.store.limits import Hold
from outlast.store.protocol import Store
from outlast.store.values import Claimed
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import Hands, crashed, ended, enqueued
from tests.conformance.limits_kit import declare, limited, need

AHEAD = 10 * 86_400.0
HELD = 30.0  # seconds
TIMES = {
    "outlast_limits": ["held_until"],
    "outlast_permits": ["tat", "touched_at", "held_until", "opens_at", "kept_until"],
    "outlast_streams": ["touched_at"],
    "outlast_notices": ["held_until"],
}


async def move(store: Store, seconds: float) -> None:
    """Move all times about limits: by so much was the clock ahead; below 0: so much time passes."""
    async with raw(store.url) as file:
        for table, columns in TIMES.items():
            changes = ", ".join(f"{name} = {name} + {seconds}" for name in columns)
            is_there = await file.run(f"UPDATE {table} SET {changes}")
            assert is_there or (table == "outlast_notices" and store.url.startswith("sqlite"))


class Case(NamedTuple):
    """An attempt that runs under the key k of a limit of its own."""

    store: Store
    hands: Hands
    limit: str
    one: Claimed


async def hold_all(case: Case) -> None:
    """A person holds all keys of the limit."""
    await case.store.hold_limit(Hold(case.limit, "", HELD))
    await look(case)


async def hold_key(case: Case) -> None:
    """A person holds one key."""
    await hold_unseen(case)
    await look(case)


async def hold_unseen(case: Case) -> None:
    """A person holds one key, and no exchange follows."""
    await case.store.hold_limit(Hold(case.limit, "k", HELD))


async def throttle(case: Case) -> None:
    """The attempt finds the limit exhausted."""
    await case.hands.hand_in(ended(case.one, OutcomeKind.SNOOZED, delay=HELD, throttles=case.limit))
    await look(case)


async def look(case: Case) -> None:
    """An exchange looks for jobs."""
    assert await case.hands.claim() == []


async def throttle_shortly(case: Case) -> None:
    """The attempt finds the limit exhausted for a second."""
    await case.hands.hand_in(ended(case.one, OutcomeKind.SNOOZED, delay=1.0, throttles=case.limit))


async def spend(case: Case) -> None:
    """The attempt spends more of the limit's rate."""
    await case.store.spend(case.one.job_id, case.one.token, case.limit, 1.0)


async def complete(case: Case) -> None:
    """The attempt ends."""
    await case.hands.hand_in(ended(case.one))


Act = Callable[[Case], Awaitable[None]]
BEFORE: list[Act] = [hold_all, hold_key, hold_unseen, throttle]
AFTER: list[Act] = [look, throttle_shortly, spend, complete]


@pytest.mark.parametrize("before", BEFORE)
async def test_a_hold_lasts_as_long_as_it_was_asked_for(
    store: Store, hands: Hands, before: Act
) -> None:
    """Of a job in its stream, or of a suspect, with any act in between."""
    late = [
        (after.__doc__, solo)
        for after in AFTER
        for solo in (0, 1)
        if not await ends_in_time(store, hands, before, after, solo)
    ]
    assert late == []


async def ends_in_time(store: Store, hands: Hands, before: Act, after: Act, solo: int) -> bool:
    """Return whether the job starts once its hold is over by a clock that was set back."""
    limit = f"{after.__name__}-{solo}"
    await declare(store, limit, running=5, spacing=1.0, burst=5, per="limit_key")
    first, second = await enqueued(store, *[limited(need(limit, "k"))] * 2)
    (one,) = await hands.claim(1)
    assert one.job_id == first
    case = Case(store, hands, limit, one)
    if solo:
        (two,) = await hands.claim(1)
        await hands.hand_in(crashed(two, CrashKind.BYSTANDER, incident=two.token))
        await look(case)  # no job of its stream waits there
    await before(case)
    if before is not hold_unseen:
        assert await hands.claim(solo=solo) == []
    await move(store, AHEAD)
    await after(case)
    assert await hands.claim(solo=solo) == []
    await store.recount_limits()
    assert await hands.claim(solo=solo) == []
    await move(store, -HELD - 1)
    claimed = await hands.claim(solo=solo) or await hands.claim(solo=solo)
    await store.cancel([first, second])
    return [each.job_id for each in claimed] == [second]


@pytest.mark.parametrize("after", [look, complete])
async def test_a_rate_goes_on_with_what_it_was_ahead_by(
    store: Store, hands: Hands, after: Act
) -> None:
    await declare(store, spacing=HELD)
    first, second = await enqueued(store, *[limited(need("a"))] * 2)
    (one,) = await hands.claim()
    assert one.job_id == first
    assert await hands.claim() == []
    await move(store, AHEAD)
    await after(Case(store, hands, "a", one))
    reply = await hands.exchange(limit=1)
    assert reply.claimed == []
    assert reply.next_due == pytest.approx(HELD, abs=5)
    await move(store, -HELD - 1)
    assert [each.job_id for each in await hands.claim()] == [second]


@pytest.mark.parametrize("running", [1, 2])
@pytest.mark.parametrize("names", ["ab", "abc"])
async def test_a_job_that_needs_several_limits_starts_beside_those_that_need_one(
    store: Store, hands: Hands, names: str, running: int
) -> None:
    flood = 200
    held: list[Claimed] = []

    async def begin() -> int:
        """Return how many others begin until the job does."""
        begun = 0
        (job_id,) = await enqueued(store, limited(*map(need, names)))
        while True:
            claimed = (await hands.exchange(ended(held.pop(0)), limit=100)).claimed
            held.extend(claimed)
            if job_id in [each.job_id for each in claimed]:
                return begun
            begun += len(claimed)

    for name in names:
        await declare(store, name, running=running)
        await enqueued(store, *[limited(need(name))] * flood)
    held.extend(await hands.claim())
    assert await begin() < flood
    await move(store, AHEAD)
    assert await begin() < flood / 4 * len(names)
