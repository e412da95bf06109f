"""Who watches: a few workers, also when some are lost, and none of them for long by mistake."""

from __future__ import annotations

import heapq
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.model.watch import PAUSE_SECONDS, STALE_SECONDS, WatchPart
from tests.cases import each_case

TRIP, LOOK = 0.004, 0.03  # seconds that a peek or a mark, and a look, take
TAKE_OVER = STALE_SECONDS + 1.5  # a peek before, the look after it
SETTLED = 2 * TAKE_OVER + PAUSE_SECONDS  # after which no two are at one watch


class Worker:
    """A worker that peeks each second; ``down_until``: it is stopped, or cut off."""

    def __init__(self, number: int, *, is_old: bool) -> None:
        self.number = number
        self.watch = WatchPart()
        self.is_old = is_old  # of a release that takes each look and leaves no mark
        self.is_dead = False
        self.looks_fail = False
        self.down_until = 0.0

    @property
    def looks(self) -> bool:
        return self.is_old or self.watch.is_on


class Fleet:
    """Workers with their peeks, looks and marks, one after the other in virtual time."""

    def __init__(self, seed: int, watches: int = 3) -> None:
        self.random = Random(seed)
        self.now = 100.0
        self.marks = [0] * watches
        self.workers: list[Worker] = []
        self.looks: list[tuple[float, int]] = []  # when, by whom
        self._steps: list[tuple[float, int, Worker, str, int]] = []
        self._order = 0

    def add(self, count: int = 1, *, is_old: bool = False) -> None:
        for _ in range(count):
            worker = Worker(len(self.workers) + 1, is_old=is_old)
            self.workers.append(worker)
            self._later(self.random.random(), worker, "peek")

    def alive(self) -> list[Worker]:
        return [each for each in self.workers if not each.is_dead and each.down_until <= self.now]

    def keepers(self) -> list[Worker]:
        """Return those whose mark stands, each watch's once."""
        numbers = [mark & (1 << 40) - 1 for mark in self.marks]
        return [each for each in self.alive() if each.number in numbers]

    def looking(self) -> list[Worker]:
        return [each for each in self.alive() if each.looks]

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._steps and self._steps[0][0] <= end:
            self.now, _, worker, step, mark = heapq.heappop(self._steps)
            if not worker.is_dead:
                if worker.down_until > self.now:  # it goes on where it stood
                    self._later(worker.down_until - self.now, worker, step, mark)
                else:
                    self._do(worker, step, mark)
        self.now = end

    def _do(self, worker: Worker, step: str, mark: int) -> None:
        watch = worker.watch
        if step == "mark" and watch.place is not None:
            self.marks[watch.place] = mark
        if step != "peek":
            return
        if not worker.is_old and watch.take_peek(self.now, worker.number, self.marks):
            self._later(TRIP, worker, "mark", watch.next_mark())
        self._later(0.95 + 0.1 * self.random.random(), worker, "peek")
        if worker.looks_fail and worker.looks:
            watch.forget()
        elif worker.looks:
            self.looks.append((self.now, worker.number))
            if watch.place is not None:
                self._later(TRIP + LOOK, worker, "mark", watch.next_mark())

    def _later(self, seconds: float, worker: Worker, step: str, mark: int = 0) -> None:
        self._order += 1
        heapq.heappush(self._steps, (self.now + seconds, self._order, worker, step, mark))


def settled(seed: int, count: int) -> Fleet:
    fleet = Fleet(seed)
    fleet.add(count)
    fleet.run(SETTLED)
    return fleet


@each_case(("count", "watching"), [(1, 1), (2, 2), (3, 3), (4, 3), (300, 3)])
def test_three_watch_however_many_there_are(count, watching):
    fleet = settled(1, count)
    assert fleet.looking() == fleet.keepers()
    assert len(fleet.keepers()) == watching


def test_watchers_go_on_for_as_long_as_they_live():
    fleet = settled(2, 50)
    before = fleet.keepers()
    fleet.add(50)
    fleet.run(600.0)
    assert fleet.keepers() == before


def test_a_worker_that_starts_looks_until_it_has_seen_that_others_do():
    fleet = settled(3, 20)
    fleet.add()
    new = fleet.workers[-1]
    fleet.run(1.0)
    assert new.looks
    fleet.run(3.0)
    assert not new.looks


@each_case("seed", range(10))
def test_where_all_watchers_die_at_once_three_others_step_in(seed):
    fleet = settled(seed, 100)
    died_at = fleet.now
    for each in fleet.keepers():
        each.is_dead = True
    fleet.run(TAKE_OVER)
    first = next(when for when, _ in fleet.looks if when > died_at)
    assert first - died_at <= TAKE_OVER
    assert 3 <= len(fleet.looking()) <= 6, "not the whole fleet"
    fleet.run(SETTLED)
    assert fleet.looking() == fleet.keepers()
    assert len(fleet.keepers()) == 3


def test_a_watcher_that_was_late_goes_on_and_its_stand_in_leaves():
    """What it has observed is longer than what the other one has."""
    fleet = settled(4, 20)
    late = fleet.keepers()[0]
    late.down_until = fleet.now + PAUSE_SECONDS - 1.0
    fleet.run(PAUSE_SECONDS - 1.0)
    assert late not in fleet.keepers()
    fleet.run(4.0)
    assert late in fleet.keepers()
    assert len(fleet.looking()) == 3


def test_a_watcher_that_was_stopped_for_long_leaves_the_watch_to_the_other():
    fleet = settled(5, 20)
    stopped = fleet.keepers()[0]
    stopped.down_until = fleet.now + 60.0
    fleet.run(70.0)
    assert not stopped.looks
    assert len(fleet.looking()) == 3


def test_a_watcher_whose_looks_fail_is_succeeded_though_it_peeks_and_beats():
    fleet = settled(6, 20)
    failing = fleet.keepers()
    for each in failing:
        each.looks_fail = True
    fleet.run(SETTLED)
    assert not {*failing} & {*fleet.keepers()}
    assert len(fleet.keepers()) == 3


def test_after_an_outage_for_all_the_same_ones_watch():
    fleet = settled(7, 50)
    before = fleet.keepers()
    for each in fleet.workers:
        each.watch.forget()
        each.down_until = fleet.now + 45.0
    fleet.run(45.0 + SETTLED)
    assert fleet.keepers() == before
    assert len(fleet.looking()) == 3


def test_workers_of_a_release_that_leaves_no_marks_do_not_count_as_watchers():
    fleet = Fleet(8)
    fleet.add(5, is_old=True)
    fleet.add(5)
    fleet.run(SETTLED)
    assert len([each for each in fleet.looking() if not each.is_old]) == 3


def test_marks_that_step_back_are_overwritten():
    """A crash of the database takes the last ones back: they may be those of a dead worker."""
    fleet = settled(9, 20)
    dead = fleet.keepers()[0]
    dead.is_dead = True
    fleet.run(SETTLED)
    fleet.marks = [1000 << 40 | dead.number] * 3
    fleet.run(SETTLED)
    assert len(fleet.keepers()) == len(fleet.looking()) == 3


def test_a_worker_that_registers_again_takes_another_watch_under_its_new_id():
    watch = WatchPart()
    assert watch.take_peek(0.0, 7, [0, 5 << 40 | 1, 5 << 40 | 2])
    mark = watch.next_mark()
    assert not watch.take_peek(1.0, 7, [mark, 6 << 40 | 1, 6 << 40 | 2])
    watch.take_peek(2.0, 9, [mark, 7 << 40 | 1, 7 << 40 | 2])
    assert watch.place is None


def stand_in() -> WatchPart:
    """A worker that has kept the first watch for a minute, in which its predecessor was stopped."""
    watch = WatchPart()
    assert watch.take_peek(0.0, 7, [0, 5 << 40 | 1, 5 << 40 | 2])
    for second in range(60):
        watch.take_peek(float(second), 7, [watch.next_mark(), 6 << 40 | 1, 6 << 40 | 2])
    return watch


@each_case("again", [False, True])
def test_a_mark_that_arrives_late_ends_no_watch_unless_another_follows_it(again):
    """A worker that was stopped in the middle of a look leaves the mark of that look when it goes
    on. What it had observed is too old; what its stand-in has is not to be lost for it."""
    watch = stand_in()
    watch.take_peek(60.0, 7, [9000 << 40 | 3, 7 << 40 | 1, 7 << 40 | 2])
    assert watch.place == 0
    own = watch.next_mark()
    next_one = 9001 << 40 | 3 if again else 1 << 40 | 3
    for second, mark in ((61.0, own), (62.0, next_one), (63.0, own)):
        watch.take_peek(second, 7, [mark, 8 << 40 | 1, 8 << 40 | 2])
    assert watch.place == (None if again else 0)
    assert watch.is_on is not again


def test_a_worker_that_starts_leaves_off_watching_also_where_peeks_are_slow():
    """Otherwise each that starts beside an overloaded store would add a look a second for good."""
    watch = WatchPart()
    watch.take_peek(0.0, 9, [1 << 40 | 1, 1 << 40 | 2, 1 << 40 | 3])
    assert watch.is_on
    later = PAUSE_SECONDS + 3.0
    watch.take_peek(later, 9, [8 << 40 | 1, 8 << 40 | 2, 8 << 40 | 3])
    assert not watch.is_on
    assert not watch.take_peek(2 * later, 9, [8 << 40 | 1, 8 << 40 | 2, 8 << 40 | 3])
    assert not watch.is_on, "marks are observed again after such a pause"


TROUBLE = st.lists(
    st.tuples(
        st.sampled_from(["kill", "stop", "fail", "mend", "add", "outage"]),
        st.integers(0, 10_000),
        st.floats(0.0, 12.0),
    ),
    max_size=15,
)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 12), TROUBLE)
def test_in_any_trouble_some_look_and_at_rest_only_those_whose_mark_stands(seed, count, trouble):
    fleet = Fleet(seed)
    fleet.add(count)
    for what, which, seconds in trouble:
        _let_happen(fleet, what, fleet.workers[which % len(fleet.workers)], seconds)
        fleet.run(seconds)
    fleet.add()
    for each in fleet.workers:
        each.looks_fail = False
    fleet.run(12.0 + TAKE_OVER)
    began_at = fleet.now
    fleet.run(SETTLED)
    times = [began_at, *(when for when, _ in fleet.looks if when > began_at), fleet.now]
    assert max(b - a for a, b in pairwise(times)) < 1.5
    assert fleet.looking() == fleet.keepers()
    assert len(fleet.keepers()) == min(3, len(fleet.alive()))


def _let_happen(fleet: Fleet, what: str, worker: Worker, seconds: float) -> None:
    if what == "kill":
        worker.is_dead = True
    elif what == "stop":
        worker.down_until = fleet.now + seconds
    elif what == "fail":
        worker.looks_fail = True
    elif what == "mend":
        worker.looks_fail = False
    elif what == "outage":
        for each in fleet.workers:
            each.watch.forget()
    else:
        fleet.add()


def test_two_peeks_within_a_second_that_show_one_mark_raise_no_doubt():
    """Otherwise a worker that has peeked twice within a second does so for good."""
    watch = WatchPart()

    def seen(now: float, mark: int) -> bool:
        watch.take_peek(now, 1, [mark << 40 | 7])
        return watch.doubts()

    assert [seen(0.0, 1), seen(1.0, 2), seen(1.9, 2)] == [False] * 3
    assert not watch.doubts(), "also later: no one has looked again"
    assert seen(2.6, 2), "a watcher that looks has left another one by then"
    assert not seen(3.0, 3)
