"""Units of a worker: its attempts never use more at once, and no place is kept for nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from outlast.model.job import ALONE_IN_RUNNER
from outlast.store.values import ClaimRequest
from outlast.worker.base import Declared
from outlast.worker.claims.units import LEFT_OUT_SECONDS, UNFIT_SECONDS, UNUSED_SECONDS, Units
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import COMPLETED, accepted, claimed, new_in_flight

USES = {"train": {"gpu": 1}, "tune": {"gpu": 1}, "merge": {"gpu": 2, "disk": 1}}


class Bench:
    def __init__(self, uses=USES, **has: int) -> None:
        self.clock = ManualClock(boot=1000.0)
        self.in_flight = new_in_flight(self.clock)
        code: Any = SimpleNamespace(declared=lambda: Declared(uses))
        self.units = Units(has, code, self.in_flight, self.clock)

    def asks(
        self, *tasks: str, limit: int = 10, solo: int = 0, hint: bool = False
    ) -> dict[str, int]:
        """Return the tasks of each request, with its limit."""
        narrowed = self.units.narrow([ClaimRequest([*tasks], limit, solo=solo)], is_hinted=hint)
        return {"+".join(each.tasks): each.limit for each in narrowed}

    def gives(self, *tasks: str) -> bool:
        jobs = [claimed(n, task=task) for n, task in enumerate(tasks, len(self.in_flight.running))]
        self.in_flight.claim(jobs)
        return self.units.take_reply(accepted(0, claimed=jobs))


def test_requests_without_such_tasks_stay_as_they_are() -> None:
    request = [ClaimRequest(["mail"], 10)]
    assert Bench({}).units.narrow(request, is_hinted=False) is request
    assert Bench(gpu=2).units.narrow(request, is_hinted=False) == request


def test_no_more_jobs_are_requested_than_there_are_units() -> None:
    bench = Bench(gpu=2)
    assert bench.asks("mail", "train", "tune") == {"train+tune": 2, "mail": 8}
    bench.gives("train", "mail")
    assert bench.asks("mail", "train", "tune") == {"mail": 10}, "they take turns"
    bench.gives("mail")
    assert bench.asks("train") == {"train": 1}, "the other is in use"
    bench.gives("train")
    assert bench.asks("mail", "train", "tune") == {"mail": 10}
    bench.in_flight.end(0, COMPLETED)
    assert bench.asks("train", limit=5) == {"train": 1}


def test_a_task_gets_all_units_that_it_uses_or_none() -> None:
    assert Bench(gpu=5, disk=1).asks("merge") == {"merge": 1}
    assert Bench(gpu=5).asks("merge") == {}
    assert Bench(gpu=1, disk=9).asks("merge") == {}


def test_suspects_use_units_too() -> None:
    assert Bench(gpu=2).asks("train", limit=10, solo=ALONE_IN_RUNNER) == {"train": 2}


def test_groups_take_turns_those_that_use_nothing_included() -> None:
    bench = Bench(gpu=100, disk=1)
    first = []
    for _ in range(6):
        first.append(next(iter(bench.asks("train", "merge", "mail", limit=4, hint=True))))
        bench.gives(*(["mail"] * 2 if first[-1] == "mail" else ["train", "merge"]))
        for token in [*bench.in_flight.running]:
            bench.in_flight.end(token, COMPLETED)
    assert sorted(set(first)) == ["mail", "merge", "train"]


def test_other_tasks_get_the_places_that_came_back_empty() -> None:
    bench = Bench(gpu=2)
    assert bench.asks("mail", "train", limit=2) == {"train": 2}
    assert bench.gives(), "another trip is useful at once"
    assert bench.asks("mail", "train", limit=1) == {"mail": 1}, "the other one is left out"
    assert not bench.gives("mail")
    bench.clock.advance(LEFT_OUT_SECONDS)
    assert {*bench.asks("mail", "train", limit=1)} == {"train"}


def test_a_worker_without_work_rests() -> None:
    """Each group comes back empty: there is one more trip, and no other before the next poll."""
    bench = Bench(gpu=2)
    trips = 0
    while trips < 9:
        assert bench.asks("mail", "train", limit=4) != {}
        trips += 1
        if not bench.gives():
            break
    assert trips <= 3


def test_a_hint_ends_what_is_left_out() -> None:
    bench = Bench(gpu=2)
    bench.asks("mail", "train", limit=2)
    bench.gives()
    asked = []
    for hint in (True, False):
        asked.append(bench.asks("mail", "train", limit=1, hint=hint))
        bench.gives("mail")
    assert {"train": 1} in asked


def test_a_job_of_many_units_gets_them_beside_a_flood_of_small_ones() -> None:
    bench = Bench(gpu=2, disk=1)
    bench.asks("train", "merge")
    bench.gives("train", "train")
    assert bench.asks("train", "merge") == {}
    assert not bench.units.find_unfit(), "it has not been so for long"
    bench.clock.advance(UNFIT_SECONDS)
    tasks = bench.units.find_unfit()
    assert tasks == ("merge",)
    bench.in_flight.end(0, COMPLETED)
    assert bench.asks("train", "merge") == {"train": 1}, "nothing is kept before a job was found"
    bench.units.keep_for(tasks)
    assert bench.asks("train", "merge") == {}
    bench.in_flight.end(1, COMPLETED)
    assert bench.asks("train", "merge") == {"merge": 1}
    bench.gives("merge")
    bench.in_flight.end(0, COMPLETED)
    assert bench.asks("train", "merge")["train"] > 0, "nothing is kept any more"


def test_units_that_were_kept_in_vain_are_not_kept_again_soon() -> None:
    bench = Bench(gpu=1, disk=1, uses={"train": {"gpu": 1}, "merge": {"gpu": 1, "disk": 1}})
    bench.units.keep_for(("merge",))
    assert bench.asks("train", "merge") == {"merge": 1}
    bench.gives()
    bench.asks("train", "merge")
    bench.gives("train")
    bench.asks("train", "merge")
    bench.clock.advance(UNFIT_SECONDS)
    assert not bench.units.find_unfit()
    bench.clock.advance(UNUSED_SECONDS)
    assert bench.units.find_unfit() == ("merge",)


@pytest.mark.parametrize("seconds", [50.0, 3_000.0])
def test_units_are_kept_in_vain_for_a_small_share_of_the_time(seconds: float) -> None:
    """The waiting job cannot start: its limit is full, or it is in a queue that others serve."""
    bench = Bench(gpu=1, disk=1, uses={"train": {"gpu": 1}, "merge": {"gpu": 1, "disk": 1}})
    bench.units.keep_for(("merge",))
    bench.clock.advance(seconds)  # until enough small jobs have ended
    assert bench.asks("train", "merge") == {"merge": 1}
    bench.gives()
    bench.asks("train", "merge")
    bench.gives("train")
    bench.asks("train", "merge")
    bench.clock.advance(9 * seconds)
    assert not bench.units.find_unfit()
    bench.clock.advance(2 * seconds + UNUSED_SECONDS)
    assert bench.units.find_unfit() == ("merge",)


def test_units_are_kept_for_no_task_that_is_not_asked_for_any_more() -> None:
    bench = Bench(gpu=2, disk=1)
    bench.units.keep_for(("merge",))
    assert bench.asks("train") == {"train": 2}, "such as one that is paused"
    assert bench.asks("train", "merge", limit=1) != {}
