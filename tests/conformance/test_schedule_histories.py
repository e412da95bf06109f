"""A random history of schedules: no tick gets two jobs, and both stores answer alike."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from outlast.model.schedule_plan import Overlap
from outlast.store import open_store
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter
from outlast.store.schedules import DueSchedule
from tests.conformance.kit import Hands, ended, job
from tests.conformance.schedules_kit import declare, fire_one, firing, put_one

STEPS = 150
NAMES = "ab"
SPECS = ['{"every":60}', '{"every":90}', '{"every":120}']


class History:
    """What operators, the code and workers do with two schedules, from one seed."""

    def __init__(self, store: Store, hands: Hands, seed: int) -> None:
        self._store = store
        self._hands = hands
        self._chance = random.Random(seed)
        self._seen: list[DueSchedule] = []  # also those that have changed since
        self.since: dict[str, tuple[int, float]] = {}  # by name: the revision and how far it was

    async def step(self) -> str:
        """Do one thing; return its result, without instants and ids."""
        deeds = [self.put, self.declare, self.pause, self.delete, self.run_one]
        weights = [3, 2, 3, 1, 4, 8, 12]
        (deed,) = self._chance.choices([*deeds, self.look, self.fire], weights)
        name = self._chance.choice(NAMES)
        said = f"{deed.__name__} {name}: {await deed(name)}"
        await self._check()
        return said

    async def put(self, name: str) -> object:
        overlap = self._chance.choice(list(Overlap))
        call = job(queue=self._chance.choice("xy"))
        spec = self._chance.choice(SPECS)
        return await put_one(self._store, name, spec=spec, overlap=overlap, call=call)

    async def declare(self, name: str) -> object:
        return await declare(self._store, name, spec=self._chance.choice(SPECS))

    async def pause(self, name: str) -> object:
        return await self._store.pause_schedule(name, paused=self._chance.random() < 0.4)

    async def delete(self, name: str) -> object:
        return await self._store.delete_schedule(name)

    async def run_one(self, _: str) -> object:
        claimed = await self._hands.claim(1)
        return await self._hands.hand_in(*map(ended, claimed))

    async def look(self, _: str) -> object:
        due = (await self._store.due_schedules()).schedules
        self._seen += sorted(due, key=lambda each: each.name)
        return sorted(each.name for each in due)

    async def fire(self, _: str) -> object:
        if not self._seen:
            return None
        due = self._seen[-1 - min(int(self._chance.expovariate(0.7)), len(self._seen) - 1)]
        late = self._chance.choice([0.0, 0.0, 5.0])
        # a tick that is due by the time of the next call, on each store
        one = firing(due, due.since + 0.00001, then=due.next_tick - 1.0, missed=int(late))
        answer = await fire_one(self._store, one)
        return answer.won, [each is None for each in answer.jobs]

    async def _check(self) -> None:
        jobs = await self._store.inspector.jobs(JobFilter(limit=10_000))
        ticks = Counter((each.policy.schedule, each.policy.tick) for each in jobs)
        assert set(ticks.values()) <= {1}
        for row in await self._store.inspector.schedules():
            self._seen = self._seen[-20:]
            revision, since = self.since.get(row.name, (0, 0.0))
            assert row.revision >= revision
            assert row.since >= since or row.fired + row.missed == 0, (
                "only a new one begins earlier"
            )
            self.since[row.name] = row.revision, row.since


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
async def test_no_tick_has_two_jobs_and_both_stores_answer_alike(
    sqlite_url: str, pg_url: str, seed: int
) -> None:
    told: list[list[str]] = []
    for url in (sqlite_url, pg_url):
        store = open_store(url)
        await store.open()
        history = History(store, await Hands.on(store), seed)
        told.append([await history.step() for _ in range(STEPS)])
        await store.close()
    assert told[0] == told[1]
    won = [line for line in told[0] if line.startswith("fire") and "(True" in line]
    lost = [line for line in told[0] if line.startswith("fire") and "(False" in line]
    assert won
    assert lost
