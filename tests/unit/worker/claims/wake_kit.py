"""A fleet of idle workers on one virtual clock: their wake-ups, with trips instead of exchanges."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

from outlast.base.clock import seeded
from outlast.store.values import ClaimRequest, FollowedWakeups
from outlast.worker.claims.pacing import WakeTurns
from outlast.worker.service import Nudge
from tests.manual_clock import ManualClock

NOTIFICATION, TRIP = 0.002, 0.004  # seconds, at most: to be heard, and to claim


def returned(call: Coroutine[Any, Any, float | None]) -> float | None:
    """Return what a call returns that waits for nothing."""
    try:
        call.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


class Serves:
    """A pool that can start these tasks."""

    def __init__(self, *tasks: str) -> None:
        self.names = list(tasks)

    def tasks(self) -> list[str]:
        return self.names


class Member:
    """A worker of a fleet: its wake-ups, and a trip instead of an exchange."""

    def __init__(self, fleet: Fleet, slots: int) -> None:
        self.fleet = fleet
        self.slots = slots
        self.serves = Serves("t")
        self.turns = WakeTurns(
            self.look_for_work, [], self.serves.tasks, fleet.nudge_of(self), fleet.clock
        )
        self.on_trip = self.hinted = False
        self.began_at = 0.0

    def hear(self, payload: str) -> None:
        if self.turns.hear(payload):
            self.look_for_work()

    def run_turns(self) -> None:
        pause = returned(self.turns.run_once())
        if pause is not None:
            self.fleet.later(pause, self.run_turns)

    def look_for_work(self) -> None:
        if self.on_trip:
            self.hinted = True
        elif self.slots:
            self.on_trip, self.hinted = True, False
            self.began_at = self.fleet.clock.boot()
            self.fleet.trips += 1
            followed = self.turns.follow([ClaimRequest(self.serves.names, self.slots)])
            chance = self.fleet.clock.random
            self.fleet.later(self.fleet.trip * (0.25 + 0.25 * chance()), self.claim, followed)

    def claim(self, followed: FollowedWakeups | None) -> None:
        """See what stands in the line, and say with the commit what was followed."""
        mine = [each for each in self.fleet.line if each[1] in self.serves.names][: self.slots]
        self.fleet.line = [each for each in self.fleet.line if each not in mine]
        self.fleet.taken += [(position, self.fleet.clock.boot()) for position, _ in mine]
        self.slots -= len(mine)
        taken = {position for position, _ in mine}
        self.fleet.later(
            self.fleet.trip / 2, self.end_trip, followed, [*taken], at_end=self.slots > 0
        )

    def end_trip(self, followed: FollowedWakeups | None, taken: list[int], *, at_end: bool) -> None:
        self.on_trip = False
        self.turns.note_trip(self.fleet.clock.boot() - self.began_at)
        if followed is not None:
            claimed = ",".join(str(each) for each in followed.positions if each in taken)
            told = ",".join(map(str, followed.positions))
            rest = (
                f"{followed.kind}:{told}:{self.fleet.drawn}" if at_end and followed.kind else "::"
            )
            self.fleet.notify(f"taken:{claimed}:{rest}")
        if self.hinted:
            self.look_for_work()


class Fleet:
    """Many workers on one virtual clock, and a database of one line."""

    def __init__(self, size: int, seed: int, *, slots: int = 10, trip: float = TRIP) -> None:
        self.trip = trip
        self.clock = ManualClock(boot=100.0)
        self.clock.random = seeded(seed)  # type: ignore[method-assign]
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = count()
        self.line: list[tuple[int, str]] = []
        self.taken: list[tuple[int, float]] = []
        self.trips = self.drawn = 0
        self.members = [Member(self, slots) for _ in range(size)]
        for each in self.members:
            each.turns.peers = size

    def nudge_of(self, member: Member) -> Nudge:
        fleet = self

        class AtOnce(Nudge):
            def give(self) -> None:
                fleet.later(0.0, member.run_turns)

        return AtOnce()

    def later(
        self, seconds: float, call: Callable[..., None], *args: object, **more: object
    ) -> None:
        at = self.clock.boot() + seconds
        heapq.heappush(self.queue, (at, next(self.numbers), lambda: call(*args, **more)))

    def notify(self, payload: str) -> None:
        for each in self.members:
            self.later(NOTIFICATION * (0.5 + 0.5 * self.clock.random()), each.hear, payload)

    def enqueue(self, jobs: int = 1, task: str = "t") -> None:
        first = self.drawn + 1
        self.drawn += jobs
        self.line += [(position, task) for position in range(first, first + jobs)]
        self.notify(f"jobs:{first}:{jobs}:default")

    def run(self) -> None:
        while self.queue:
            at, _, call = heapq.heappop(self.queue)
            self.clock.advance(max(0.0, at - self.clock.boot()))
            call()
