"""Six workers on one database: three look at all, and others step in where these are lost."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.model.lease import LOOK_SECONDS
from outlast.store.postgres.store import PostgresStore
from outlast.worker.maintenance.reaper import OwnLooks, Reaper
from tests.conformance.kit import Hands, enqueued
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import FakeOwner, lease_of

LEASE, STEP_IN = 6.0, 5.0


class Member:
    """A worker of which only beats and looks matter."""

    def __init__(self, store: Any, hands: Hands, boot_id: str, clock: ManualClock) -> None:
        self.hands = hands
        self.looks = 0
        self._store = store
        self.reaper = Reaper(
            FakeOwner(),
            self,  # type: ignore[arg-type]
            clock=clock,
            own=(lease := lease_of(hands.me)),
            looks=OwnLooks(store, lease, boot_id, clock=clock),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def observe(self, slack: float) -> Any:
        self.looks += 1
        return await self._store.observe(slack)


class Fleet:
    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.clock = ManualClock(boot=0.0)
        self.members: list[Member] = []

    async def add(self, number: int) -> None:
        boot_id = f"host {number % 2}"
        hands = await Hands.on(
            self.store, f"w{number}", boot_id=boot_id, lease=LEASE, heartbeat=1.0
        )
        self.members.append(Member(self.store, hands, boot_id, self.clock))

    async def run(self, seconds: int) -> list[Member]:
        """Let each beat and look each second; return those that took a look in the last one."""
        for _ in range(seconds):
            for each in self.members:
                each.looks = 0
                await self.store.heartbeat(each.hands.me)
                await each.reaper.run_once()
            self.clock.advance(LOOK_SECONDS)
        return [each for each in self.members if each.looks]

    async def alive(self) -> set[int]:
        return {each.worker_id for each in (await self.store.observe()).workers}


@pytest.fixture
async def fleet(store: PostgresStore) -> Fleet:
    fleet = Fleet(store)
    for number in range(6):
        await fleet.add(number)
    return fleet


async def test_three_of_six_look_and_are_succeeded_together_by_the_others(fleet: Fleet) -> None:
    watchers = await fleet.run(10)
    assert len(watchers) == 3
    await enqueued(fleet.store)
    await watchers[0].hands.claim_one()
    fleet.members = [each for each in fleet.members if each not in watchers]
    lost = {each.hands.me.worker_id for each in watchers}
    left = {each.hands.me.worker_id for each in fleet.members}
    await fleet.run(int(LEASE))
    assert await fleet.alive() == lost | left, "not before the end of their leases"
    assert len(await fleet.run(int(STEP_IN))) == 3
    assert await fleet.alive() == left
    assert not (await fleet.store.observe()).orphans


async def test_a_worker_that_is_lost_is_found_in_time_though_a_watcher_is_lost_later(
    fleet: Fleet,
) -> None:
    """The two other watchers go on observing."""
    watchers = await fleet.run(10)
    (gone, *_) = [each for each in fleet.members if each not in watchers]
    fleet.members.remove(gone)
    await fleet.run(int(LEASE) - 1)
    assert gone.hands.me.worker_id in await fleet.alive()
    fleet.members.remove(watchers[0])
    await fleet.run(2)
    assert gone.hands.me.worker_id not in await fleet.alive()
    assert watchers[0].hands.me.worker_id in await fleet.alive()
