"""The floors of streams meet all else that gives a job its place or takes it: no job is left below
one."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from outlast.model.lifecycle import Outcome, OutcomeKind, Transition, decide
from outlast.model.limits import Need, permit_id
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import Answer, Claimed, NewJob, OnKey, Orphan
from tests.conformance.kit import Hands, crashed, ended, enqueued, no_dice, on
from tests.conformance.limits_kit import declare, limited, need
from tests.conformance.test_aging import aging
from tests.postgres.limits_kit import broken_laws, drained

ACTS = {"enqueue": 8, "trip": 12, "cancel": 2, "requeue": 2, "late commit": 2, "wait": 1, "loss": 1}
ON_KEY = [None, OnKey(replaces=True), OnKey(until_start=True)]
SOME = "SELECT id FROM outlast_jobs WHERE state = ANY ($1) ORDER BY random() LIMIT 5"


def _release(orphan: Orphan) -> Transition:
    return decide(orphan.facts, Outcome(kind=OutcomeKind.RELEASED), no_dice)


class Play:
    """Acts at random over jobs under limits that age, expire, are delayed, or share keys or an
    order."""

    def __init__(self, hands: Hands, session: Any, seed: int) -> None:
        self._hands = hands
        self._session = session
        self._dice = random.Random(seed)
        self._held: list[Claimed] = []

    def _job(self, key: int) -> NewJob:
        dice, own = self._dice, dict[str, Any]()
        if dice.random() < 0.3:
            own = {"key": f"k{key}", "on_key": dice.choice(ON_KEY)}
        if dice.random() < 0.15:
            own["expires"] = dice.choice([0.01, 5.0])
        if dice.random() < 0.15:
            return limited(Need(permit_id("o", "k"), "o", "k", 1.0, True), **own)
        if dice.random() < 0.5:
            one = dice.choice([need("a"), need("k", f"x{dice.randint(0, 2)}")])
            waited = dice.choice([0.0, 5000 * dice.random(), -0.02])
            priority = dice.randint(-50, 50)
            return aging(one, now=time.time(), priority=priority, waited=waited, **own)
        needs = dice.sample([need("a"), need("b"), need("k", "x1")], dice.randint(0, 2))
        tenant, delay = dice.choice([None, "t1", "t2"]), dice.choice([0.0, 0.0, 0.02])
        return limited(*needs, fair=tenant, priority=dice.choice([0, 3]), delay=delay, **own)

    def _end(self, one: Claimed) -> Transition:
        kind = self._dice.choices(["completed", "crashed", "released", "snoozed"], [6, 2, 2, 2])[0]
        if kind == "crashed":
            return crashed(one)
        if kind == "released":
            return ended(one, OutcomeKind.RELEASED, began=self._dice.random() < 0.5)
        return ended(one, OutcomeKind(kind), **({"delay": 0.0} if kind == "snoozed" else {}))

    async def _trip(self, limit: int, **request: Any) -> None:
        """Hand in some ends, those that are busy again later."""
        count = self._dice.randint(0, len(self._held))
        given, left = self._held[:count], self._held[count:]
        reply = await self._hands.exchange(*map(self._end, given), limit=limit, **request)
        answers = zip(given, reply.answers, strict=True)
        busy = [one for one, answer in answers if answer is Answer.BUSY]
        self._held = [*busy, *left, *reply.claimed]

    async def act(self) -> None:
        dice, store = self._dice, self._hands.store
        act = dice.choices([*ACTS], [*ACTS.values()])[0]
        if act == "enqueue":
            await enqueued(store, *map(self._job, range(dice.choice([1, 3, 40]))))
        elif act == "trip":
            paused = ["t1"] if dice.random() < 0.2 else []
            await self._trip(dice.choice([0, 1, 3, 20]), not_tenants=paused)
        elif act == "late commit":
            async with self._session.transaction():
                await on(self._session).enqueue([self._job(dice.randint(0, 5))])
                await self._trip(10)
        elif act == "loss":
            await self._hands.vanish()
            self._hands, self._held = await Hands.on(store, lease=600.0, heartbeat=100.0), []
            await store.reclaim(_release)
        elif act == "wait":
            await asyncio.sleep(0.03)  # so that what was delayed is due, or has expired
        else:
            states = ["queued"] if act == "cancel" else ["dead", "cancelled"]
            ids = [row["id"] for row in await self._session.fetch(SOME, states)]
            await (store.cancel(ids) if act == "cancel" else store.requeue(ids))

    async def end_all(self) -> None:
        while self._held:
            answers = await self._hands.hand_in(*map(ended, self._held))
            pairs = zip(self._held, answers, strict=True)
            self._held = [one for one, answer in pairs if answer is Answer.BUSY]


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_job_is_left_below_a_floor(store: PostgresStore, session: Any, seed: int) -> None:
    for name, running in (("a", 3), ("b", 2)):
        await declare(store, name, running=running)
    await declare(store, "k", running=1, per="limit_key")
    await declare(store, "o", running=1, per="limit_key", ordered=True)
    play = Play(await Hands.on(store, lease=600.0, heartbeat=100.0), session, seed)
    for _ in range(200):
        await play.act()
        assert await broken_laws(session) == {}
    await play.end_all()
    await drained(store, session)
    assert await session.fetchval("SELECT max(floor) FROM outlast_streams") > 0
