"""Which looks are a worker's own: a watcher's, the first, and those a free lock file asks for."""

from __future__ import annotations

from typing import Any, cast

import pytest

from outlast.errors import StoreUnavailable
from outlast.model.lease import LOOK_SECONDS, DeathCause
from outlast.store.lockfile import boot_id
from outlast.store.values import Neighbour, Peek, WorkerRef
from outlast.store.wakeup import Listening
from outlast.worker.claims.pacing import EASED_PEERS, WakeTurns
from outlast.worker.maintenance.reaper import OwnLooks, Reaper
from tests.manual_clock import ManualClock
from tests.unit.worker.maintenance import reaper_kit
from tests.unit.worker.maintenance.reaper_kit import OWN, Rows, fail_once, with_lock
from tests.unit.worker.worker_kit import FakeOwner, lease_of

lock = reaper_kit.lock


class Registers(Rows):
    """A store whose looks are shared; ``others``: workers that keep these watches."""

    def __init__(self) -> None:
        super().__init__()
        self.marks = [0, 0, 0]
        self.others: set[int] = {0, 1, 2}
        self.neighbours: tuple[Neighbour, ...] = ()
        self.looks = 0
        self.kept: list[int] = []
        self.peek_fails = False
        self.peeks = 0

    async def peek(self, me: WorkerRef) -> Peek:
        assert me.worker_id == OWN
        if self.peek_fails:
            raise StoreUnavailable("away")
        self.peeks += 1
        return self.show()

    def show(self) -> Peek:
        for place in self.others:
            self.marks[place] += 1 << 40 if self.marks[place] else 1 << 40 | 7 + place
        return Peek(drawn=3, watches=tuple(self.marks), neighbours=self.neighbours)

    async def keep_watch(self, place: int, mark: int) -> None:
        self.marks[place] = mark
        self.kept.append(place)

    async def observe(self, slack: float):
        self.looks += 1
        return await super().observe(slack)


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock(boot=0.0)
        self.rows = Registers()
        self.owner = FakeOwner()
        own, turns = lease_of(WorkerRef(OWN, 1)), cast(Any, self)
        self.is_eased = False
        looks = OwnLooks(
            self.rows,  # type: ignore[arg-type]
            own,
            boot_id(),
            clock=self.clock,
            turns=turns,
        )
        self.reaper = Reaper(
            self.owner,
            self.rows,  # type: ignore[arg-type]
            clock=self.clock,
            own=own,
            looks=looks,
        )

    def are_among_many(self) -> bool:
        return self.is_eased

    async def peeks(self, seconds: float, *, beats: bool = True) -> int:
        """Return how many peeks were asked for in these seconds, in which a beat each 2 s brings
        one as well."""
        before, end, beat_at = self.rows.peeks, self.clock.boot() + seconds, self.clock.boot()
        while self.clock.boot() < end:
            if beats and self.clock.boot() >= beat_at:
                self.reaper.take_peek(self.rows.show())
                beat_at += 2.0
            self.clock.advance(await self.reaper.run_once())
        return self.rows.peeks - before

    async def looks(self, seconds: int) -> int:
        """Return how many looks there were in these seconds."""
        before = self.rows.looks
        for _ in range(seconds):
            self.clock.advance(await self.reaper.run_once())
        return self.rows.looks - before


@pytest.fixture
def scene():
    return Scene()


async def test_a_worker_beside_three_that_watch_only_peeks(scene):
    assert await scene.looks(3) == 2, "until it has seen that others watch"
    assert await scene.looks(100) == 0
    assert (len(scene.owner.peeks), scene.rows.kept) == (103, [])
    assert {each.drawn for each in scene.owner.peeks} == {3}


async def test_a_worker_steps_in_where_a_mark_stands_still_and_leaves_its_own_after_each_look(
    scene,
):
    await scene.looks(10)
    scene.rows.others = {0, 2}
    assert await scene.looks(2) == 0
    assert await scene.looks(1) == 1
    assert scene.rows.kept == [1, 1], "at once, and after the look"
    assert await scene.looks(10) == 10
    assert scene.rows.kept == [1] * 12


async def test_a_look_that_fails_leaves_no_mark(scene):
    scene.rows.others = {0, 1}
    await scene.looks(10)
    scene.rows.kept.clear()
    scene.rows.fails = True
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await scene.reaper.run_once()
    assert scene.rows.kept == []


async def test_orphans_that_cannot_be_given_back_leave_no_mark(scene):
    """Another worker steps in, who may be able to."""
    scene.rows.others = {0, 1}
    await scene.looks(10)
    scene.rows.kept.clear()
    scene.rows.reclaim_fails, scene.rows.orphans = True, [reaper_kit.orphan(1)]
    with pytest.raises(StoreUnavailable):
        await scene.reaper.run_once()
    assert scene.rows.kept == []


async def test_a_peek_that_fails_starts_the_observing_over(scene):
    scene.rows.others = {0, 1}
    scene.rows.workers = [reaper_kit.seen(2, lease=10.0)]
    await scene.looks(9)
    await fail_once(scene.reaper, scene.rows, "peek_fails")
    await scene.looks(9)
    assert scene.rows.reaped == []
    await scene.looks(3)
    assert scene.rows.reaped == [2]


async def test_a_free_lock_file_of_a_neighbour_asks_for_a_look_by_a_worker_that_watches_none(
    scene, lock
):
    gone = with_lock(lock)
    scene.rows.workers = [gone]
    scene.rows.neighbours = (Neighbour(2, str(lock.path), lock.device, lock.inode),)
    await scene.looks(10)
    assert scene.rows.reaped == [], "it is held"
    lock.release(unlink=False)
    assert await scene.looks(1) == 1
    assert (scene.rows.reaped, scene.rows.causes) == ([2], [DeathCause.LOCK_FILE])
    scene.rows.neighbours = ()
    assert await scene.looks(10) == 0


async def test_beats_bring_the_peeks_of_a_worker_that_hears_of_new_work_beside_others(scene):
    await scene.looks(5)
    scene.is_eased = True
    shown = len(scene.owner.peeks)
    assert await scene.peeks(100.0) == 0
    assert len(scene.owner.peeks) == shown + 50
    assert scene.rows.looks == 2


async def test_a_worker_to_which_no_beat_brings_a_peek_asks_for_it(scene):
    await scene.looks(5)
    scene.is_eased = True
    assert await scene.peeks(30.0, beats=False) == 10


async def test_a_worker_that_may_not_hear_of_new_work_peeks_each_second_beside_its_beats(scene):
    await scene.looks(5)
    assert await scene.peeks(20.0) == 10, "the other ten came with beats"


async def test_a_mark_that_stands_still_is_looked_at_again_soon(scene):
    await scene.looks(5)
    scene.is_eased = True
    await scene.peeks(20.0)
    scene.rows.others = {0, 2}
    await scene.peeks(0.5)
    assert scene.rows.kept == [], "it may have been late"
    await scene.peeks(4.5, beats=False)
    assert scene.rows.kept[0] == 1


async def test_a_beat_that_shows_a_free_watch_lets_the_reaper_run_at_once(scene):
    await scene.looks(5)
    scene.is_eased = True
    assert not scene.reaper.nudge.is_given
    scene.rows.marks[1], scene.rows.others = 0, {0, 2}
    scene.reaper.take_peek(scene.rows.show())
    assert scene.reaper.nudge.is_given
    assert await scene.reaper.run_once() == LOOK_SECONDS
    assert scene.rows.kept == [1, 1]


async def test_the_lock_files_of_neighbours_are_probed_each_second_between_peeks(scene, lock):
    scene.rows.workers = [with_lock(lock)]
    scene.rows.neighbours = (Neighbour(2, str(lock.path), lock.device, lock.inode),)
    await scene.looks(5)
    scene.is_eased = True
    scene.reaper.take_peek(scene.rows.show())
    peeks = scene.rows.peeks
    await scene.reaper.run_once()
    lock.release(unlink=False)
    scene.clock.advance(LOOK_SECONDS)
    await scene.reaper.run_once()
    assert (scene.rows.reaped, scene.rows.peeks) == ([2], peeks)


async def test_where_a_store_shares_no_looks_each_worker_takes_each(scene):
    async def nothing(me: WorkerRef) -> Peek:
        return Peek()

    scene.rows.peek = nothing
    assert await scene.looks(20) == 20
    assert scene.rows.kept == []


async def test_a_worker_that_only_peeks_does_so_each_second(scene):
    scene.rows.workers = [reaper_kit.seen(2, lease=1.5)]
    await scene.looks(5)
    assert await scene.reaper.run_once() == LOOK_SECONDS


async def test_peeks_are_rare_only_where_new_work_is_heard_of_and_many_peek():
    nothing: Any = None
    wakeup, clock = Listening("notify"), ManualClock()
    turns = WakeTurns(nothing, [], clock, wakeup)
    seen = []
    for peers, good in ((EASED_PEERS - 1, True), (EASED_PEERS, False), (EASED_PEERS, True)):
        turns.peers, wakeup.health.good = peers, good
        seen.append(turns.are_among_many())
    assert seen == [False, False, True]
    without = WakeTurns(nothing, [], clock)
    without.peers = EASED_PEERS
    assert not without.are_among_many(), "no wake-up"
