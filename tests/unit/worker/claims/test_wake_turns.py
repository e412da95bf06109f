"""Waiting in turn: how many trips one wake-up sets off, and who is never kept from looking."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from outlast.base.clock import seeded
from outlast.store.values import ClaimRequest, FollowedWakeups, WorkerRef
from outlast.worker.claims.pacing import (
    COUNT_SECONDS_MAX,
    COUNT_SECONDS_MIN,
    GAP_SECONDS,
    LATE_SECONDS,
    SEEN_SECONDS,
    STEP_SECONDS_MIN,
    TOLD_MAX,
    WAITING_MAX,
    PeerCount,
    WakeTurns,
)
from outlast.worker.service import Nudge
from tests.cases import each_case
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import FakeOwner, lease_of

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


def serving(*tasks: str) -> FakeOwner:
    """A worker that can start these tasks."""
    owner = FakeOwner()
    owner.pool = SimpleNamespace(starter=Serves(*tasks))
    return owner


class Member:
    """A worker of a fleet: its wake-ups, and a trip instead of an exchange."""

    def __init__(self, fleet: Fleet, slots: int) -> None:
        self.fleet = fleet
        self.slots = slots
        self.serves = Serves("t")
        self.pool = SimpleNamespace(starter=self.serves)
        owner: Any = self
        self.turns = WakeTurns(owner, [], fleet.clock)
        self.turns.nudge = fleet.nudge_of(self)
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
        self.fleet.takers += [self] * len(mine)
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
        self.takers: list[Member] = []
        self.trips = self.drawn = 0
        self.members = [Member(self, slots) for _ in range(size)]
        for before, each in enumerate(self.members):
            each.turns.note_peers(size, before)

    def nudge_of(self, member: Member) -> Nudge:
        fleet = self

        class InTime(Nudge):
            def give_within(self, seconds: float) -> None:
                fleet.later(seconds, member.run_turns)

        return InTime()

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


def trips_of(fleet: Fleet) -> int:
    """Return how many trips one job sets off; it is taken at the end."""
    before, taken = fleet.trips, len(fleet.taken)
    fleet.enqueue()
    fleet.run()
    assert len(fleet.taken) == taken + 1
    return fleet.trips - before


@each_case("slots", [1, 10])
def test_one_job_sets_off_few_trips_of_two_hundred_idle_workers(slots):
    fleet = Fleet(200, seed=1, slots=slots)
    assert sum(trips_of(fleet) for _ in range(50)) <= 5 * 50


@each_case("trip", [TRIP, 3 * TRIP])
def test_one_job_sets_off_one_trip_of_eight_idle_workers(trip):
    fleet = Fleet(8, seed=1, slots=1_000, trip=trip)
    for _ in range(50):  # each of them has looked a few times
        trips_of(fleet)
    assert sum(trips_of(fleet) for _ in range(50)) <= 1.1 * 50


def test_close_jobs_share_a_worker_and_far_ones_do_not():
    """So that its claims and ends share trips, while a few long jobs go to many workers."""
    changes = {}
    for gap in (0.003, 0.3):
        fleet = Fleet(8, seed=1, slots=1_000)
        for number in range(1, 65):
            fleet.later(gap * number, fleet.enqueue)
        fleet.run()
        changes[gap] = sum(one is not other for one, other in pairwise(fleet.takers))
        assert len(set(fleet.takers)) >= 4, "none gets all"
    assert changes[0.003] <= 20
    assert changes[0.3] >= 40


async def test_a_worker_that_hears_of_a_job_is_not_woken_before_its_turn():
    turns = WakeTurns(serving("t"), [], ManualClock())
    turns.note_peers(1_000, 999)
    rest = turns.nudge.wait(None)
    assert not turns.hear("jobs:2:1:default")
    assert not rest.done()
    async with asyncio.timeout(10):
        await rest


def test_few_trips_are_set_off_where_claims_are_slow():
    """A step is as long as a claim takes: or all would look before the first one is heard of."""
    fleet = Fleet(60, seed=1, slots=1_000, trip=0.05)
    for _ in range(300):  # each of them has looked a few times
        trips_of(fleet)
    assert sum(trips_of(fleet) for _ in range(50)) <= 5 * 50


def test_one_job_is_taken_about_as_soon_as_by_one_worker():
    alone, fleet = Fleet(1, seed=1), Fleet(200, seed=1, slots=100)
    waits = {}
    for each in (alone, fleet):
        began = []
        for _ in range(9):
            began.append(each.clock.boot())
            trips_of(each)
        taken = [at for _, at in each.taken]
        waits[each] = sorted(b - a for a, b in zip(began, taken, strict=True))[4]
    assert waits[fleet] <= waits[alone] + 0.004


@pytest.mark.slow
@each_case("slots", [1, 10])
def test_a_burst_wakes_as_many_as_there_is_work_for(slots):
    fleet = Fleet(200, seed=2, slots=slots)
    began_at = fleet.clock.boot()
    fleet.enqueue(500)
    fleet.run()
    places = min(500, 200 * slots)
    assert len(fleet.taken) == places
    assert max(at for _, at in fleet.taken) - began_at < 0.05
    assert sum(not each.slots for each in fleet.members) >= places // slots - 1


def test_many_jobs_one_by_one_are_taken_by_many():
    fleet = Fleet(40, seed=3, slots=1)
    for _ in range(40):
        fleet.enqueue()
    fleet.run()
    assert len(fleet.taken) == 40


def test_workers_that_are_full_leave_a_job_to_the_one_that_is_not():
    for seed in range(20):
        fleet = Fleet(200, seed)
        for each in fleet.members[1:]:
            each.slots = 0
        began_at = fleet.clock.boot()
        assert trips_of(fleet) == 1
        assert fleet.taken[0][1] - began_at < 0.1


def test_those_who_do_not_know_the_task_keep_no_others_from_it():
    """They find nothing, and only others of their kind stand down."""
    for seed in range(20):
        fleet = Fleet(50, seed)
        for each in fleet.members[1:]:
            each.serves.names = ["other"]
        fleet.members[0].turns.note_peers(1, 0)
        for before, each in enumerate(fleet.members[1:]):
            each.turns.note_peers(49, before)
        assert trips_of(fleet) < 20


def test_a_lost_answer_costs_trips_and_no_job():
    fleet = Fleet(50, seed=4)
    notify = fleet.notify
    fleet.notify = lambda payload: None if payload.startswith("taken") else notify(payload)  # type: ignore[method-assign]
    assert trips_of(fleet) == 50


# --- the rules, one by one


@pytest.fixture
def turns():
    clock, owner = ManualClock(boot=0.0), serving("t")
    made = WakeTurns(owner, [], clock)
    made.note_peers(200, 0)
    made._find_place = lambda *_: 100  # type: ignore[method-assign]
    made.owner, made.clock = owner, clock  # type: ignore[attr-defined]
    return made


REQUEST = ClaimRequest(["t"], 10)


async def test_a_worker_looks_when_its_turn_has_come_and_not_before(turns):
    assert not turns.hear("jobs:7:1:mail")
    pause = await turns.run_once()
    assert 0.05 < pause < 0.06
    assert turns.owner.looks_for_work == 0
    turns.clock.advance(pause)
    assert await turns.run_once() is None
    assert turns.owner.looks_for_work == 1


@pytest.mark.parametrize(
    ("taken", "looks"),
    [
        ("7::::", True),  # five parts
        ("7:::", False),
        ("8:::", True),
        ("8:KIND:7,8:9", False),
        ("8:KIND:8:9", True),
        ("8:another:7,8:9", True),
        (":KIND::99", True),
        ("x:KIND:\x00:9", True),
        ("", True),
    ],
)
async def test_who_hears_that_it_was_followed_stands_down(turns, taken, looks):
    turns.hear("jobs:7:1:mail")
    turns.hear("taken:" + taken.replace("KIND", turns._name_kind()))
    turns.clock.advance(1.0)
    await turns.run_once()
    assert bool(turns.owner.looks_for_work) is looks


async def test_that_one_of_many_was_taken_keeps_no_worker_from_the_others(turns):
    turns.hear("jobs:7:3:mail")
    turns.hear("taken:7:::")
    turns.clock.advance(1.0)
    await turns.run_once()
    assert turns.owner.looks_for_work == 1


async def test_a_single_slow_claim_makes_no_turn_much_longer(turns):
    turns.note_trip(60.0)
    assert not turns.hear("jobs:7:1:mail")
    assert await turns.run_once() < 0.5
    for _ in range(20):
        turns.note_trip(0.002)
    turns.clock.advance(LATE_SECONDS)
    turns.hear("jobs:8:1:mail")
    turns.hear("taken:7:::")
    assert 0.05 < await turns.run_once() < 0.06


async def test_what_is_heard_after_the_answer_was_written_has_a_turn_of_its_own(turns):
    for position in (7, 8):
        turns.hear(f"jobs:{position}:1:mail")
    turns.hear(f"taken:7:{turns._name_kind()}:7:9")
    turns.clock.advance(1.0)
    await turns.run_once()
    assert turns.owner.looks_for_work == 1


async def test_a_worker_alone_looks_at_once_and_tells_no_one(turns):
    del turns._find_place
    turns.note_peers(1, 0)
    assert turns.hear("jobs:7:1:mail")
    assert turns.follow([REQUEST]) is None


@pytest.mark.parametrize("subject", ["", "x:1:q", "7:x:q", "-7:1:q", "9223372036854775808:1:q"])
def test_what_cannot_be_read_is_followed_at_once(turns, subject):
    assert turns.hear(f"jobs:{subject}")


def test_a_kind_is_of_queues_and_tasks(turns):
    one = turns._name_kind()
    other = WakeTurns(serving("t"), ["q"], turns.clock)
    assert other._name_kind() != one


@pytest.mark.parametrize(
    ("requests", "told"),
    [
        ([REQUEST], True),
        ([ClaimRequest(["another"], 3), ClaimRequest(["t"], 1)], True),
        ([ClaimRequest(["another"], 3)], False),
    ],
)
def test_only_a_look_for_all_that_it_serves_speaks_for_its_kind(turns, requests, told):
    turns.hear("jobs:7:1:mail")
    assert turns.follow(requests) == FollowedWakeups(turns._name_kind() if told else None, [7])
    assert turns.follow(requests) is None, "it is followed"


def test_a_request_for_suspects_follows_no_wake_up(turns):
    turns.hear("jobs:7:1:mail")
    assert turns.follow([ClaimRequest(["t"], 1, solo=1)]) is None
    assert turns.follow([REQUEST]) is not None


async def test_many_wake_ups_are_bounded(turns):
    for position in range(1, WAITING_MAX + 1):
        turns.hear(f"jobs:{position}:1:mail")
    assert turns.hear("jobs:5000:1:mail"), "more are not kept apart"
    assert len(turns.follow([REQUEST]).positions) == TOLD_MAX


async def test_a_full_worker_forgets_wake_ups_whose_turn_is_long_over(turns):
    turns.hear("jobs:7:1:mail")
    turns.clock.advance(SEEN_SECONDS + 1.0)
    await turns.run_once()
    assert (turns.owner.looks_for_work, turns.follow([REQUEST])) == (0, None)


async def test_a_look_that_shows_what_was_followed_is_no_news(turns):
    turns.hear("taken:::x:9")
    assert not turns.hear_of_look(6, 9), "it waits its turn"
    assert await turns.run_once() is not None
    turns.hear(f"taken::{turns._name_kind()}:9:9")
    assert await turns.run_once() is None
    assert not turns.hear_of_look(6, 9)
    assert await turns.run_once() is None, "there is nothing to wait for"
    for before, drawn in ((6, 10), (9, 8)):  # more, and a database that was set back
        turns.hear_of_look(before, drawn)
        assert await turns.run_once() is not None
        turns.follow([REQUEST])
    turns.clock.advance(SEEN_SECONDS)
    turns.hear_of_look(6, 9)
    assert await turns.run_once() is not None, "what was said long ago does not count"


async def test_peers_are_counted_more_rarely_while_they_stay(turns):
    class Counted:
        now = 200

        async def count_peers(self, me: WorkerRef) -> tuple[int, int]:
            return self.now, 0

    store: Any = Counted()
    duty = PeerCount(store, lease_of(), turns)
    pauses = [await duty.run_once() for _ in range(8)]
    assert pauses[0] == 2 * COUNT_SECONDS_MIN
    assert pauses[-1] == COUNT_SECONDS_MAX
    store.now = 500
    assert await duty.run_once() == COUNT_SECONDS_MIN
    assert turns.peers == 500


def test_who_passes_over_what_is_paused_is_of_another_kind(turns):
    """Otherwise one that has not heard of the end of a pause would keep the others from looking."""
    before = turns._name_kind()
    turns.follow([ClaimRequest(["t"], 1, not_queues=("mail",))])
    assert turns._name_kind() != before
    turns.follow([REQUEST])
    assert turns._name_kind() == before


async def test_wakeups_close_behind_a_claim_share_the_next_one():
    looks, clock = [], ManualClock(boot=100.0)
    owner: Any = serving("t")
    owner.look_for_work = lambda: looks.append(clock.boot())
    turns = WakeTurns(owner, [], clock)
    assert turns.hear("jobs:1:1:default"), "an idle worker claims at once"
    turns.follow([ClaimRequest(["t"], 10)])
    turns.note_claim(clock.boot())
    assert not turns.hear("jobs:2:1:default")
    assert not turns.hear("jobs:3:1:default")
    assert await turns.run_once() == pytest.approx(GAP_SECONDS)
    assert looks == []
    clock.advance(GAP_SECONDS)
    await turns.run_once()
    assert len(looks) == 1
    turns.follow([ClaimRequest(["t"], 10)])
    clock.advance(GAP_SECONDS)
    assert turns.hear("jobs:4:1:default")


async def test_the_more_peers_hear_of_claims_the_more_wakeups_share_one(turns):
    gaps = []
    turns._find_place = lambda _: 1
    for peers in (1, 2, 8, 64):
        turns.note_peers(peers, 0)
        turns.note_claim(turns.clock.boot())
        turns.hear(f"jobs:{peers}:1:mail")
        gaps.append(await turns.run_once())
        turns.follow([REQUEST])
    assert gaps == pytest.approx([GAP_SECONDS * each for each in (1, 1.5, 2.5, 4)])


async def test_sixteen_close_wakeups_in_a_row_begin_with_the_same_worker(turns):
    of_close: list[int] = []

    def find_place(turn: int) -> int:
        of_close.append(turn)
        return 1

    turns._find_place = find_place
    for position in range(31, 64):  # the first is close to none
        turns.hear(f"jobs:{position}:1:mail")
    assert of_close == [31, *[2] * 16, *[3] * 16]


async def test_the_second_in_turn_waits_for_the_gap_of_the_first_while_wakeups_are_close(turns):
    pauses = []
    turns._find_place = lambda _: 2
    for position in (7, 8):
        turns.hear(f"jobs:{position}:1:mail")
        pauses.append(await turns.run_once())
        turns.follow([REQUEST])
    assert pauses == pytest.approx([STEP_SECONDS_MIN, STEP_SECONDS_MIN + turns._find_gap()])
