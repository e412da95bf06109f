"""The watchdog: asks first, kills after the grace, and reports a lapsed lease."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.model.crash import Progress
from outlast.model.job import Policy
from outlast.store.values import Save
from outlast.worker.runners.watchdog import (
    HELD_SECONDS,
    LOOK_IDLE_SECONDS,
    LOOK_SECONDS,
    UNHELD_SECONDS,
    Watchdog,
)
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import (
    FakeOwner,
    FakePool,
    claimed,
    heard,
    heard_fields,
    new_in_flight,
)


class Watch:
    """A watchdog over InFlight and a fake pool. The lease is 60 s from second 0."""

    def __init__(self) -> None:
        self.clock = ManualClock(boot=0.0)
        self.in_flight = new_in_flight(self.clock)
        self.pool = FakePool(self.in_flight)
        self.owner = FakeOwner()
        loops: Any = self.pool
        self.dog = Watchdog(self.owner, self.in_flight, self.pool, self.pool, loops, self.clock)

    def run(self, token: int = 1, **policy) -> None:
        self.in_flight.claim([claimed(token, policy=Policy(**policy))])
        self.in_flight.note_begun(token, 0.0)

    async def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        pause = LOOK_SECONDS if self.in_flight.running else LOOK_IDLE_SECONDS
        assert await self.dog.run_once() == pause


@pytest.fixture
def watch():
    return Watch()


async def test_without_limits_nothing_is_stopped(watch):
    watch.run()
    for _ in range(100):
        await watch.after(1e6)
    assert watch.pool.stopped == watch.pool.killed == []


async def test_what_has_expired_is_recalled(watch):
    """Where it has not begun: a runner that has begun it says so."""
    watch.in_flight.claim([claimed(1, begin_by=10.0), claimed(2, begin_by=20.0), claimed(3)])
    await watch.after(9.9)
    assert watch.pool.recalled == []
    await watch.after(0.1)
    assert watch.pool.recalled == [1]


async def test_an_attempt_without_a_runner_is_released(watch):
    watch.run()
    watch.pool.forgotten.add(1)
    with heard() as names:
        await watch.after(UNHELD_SECONDS - 0.1)
        assert names == []
        await watch.after(0.1)
    assert "attempt_unheld" in names
    (end,) = watch.in_flight.take(10)
    assert (end.token, end.outcome, end.charge) == (1, "released", "none")


async def test_an_attempt_past_its_timeout_is_asked_to_stop_once(watch):
    watch.run(timeout=10.0)
    await watch.after(9.9)
    assert watch.pool.stopped == []
    with heard() as names:
        await watch.after(0.1)
        await watch.after(1.0)
    assert watch.pool.stopped == [(1, "timeout")]
    assert names == ["attempt_stopping"]


async def test_progress_postpones_the_stall_limit_but_not_the_timeout(watch):
    watch.run(timeout=30.0, stall_timeout=10.0)
    for _ in range(2):
        await watch.after(9.0)
        watch.in_flight.note_save(Save(1, 1, 1, "1"))
    await watch.after(9.0)
    assert watch.pool.stopped == []
    watch.in_flight.note_save(Save(1, 1, 1, "1"))
    await watch.after(3.0)
    assert watch.pool.stopped == [(1, "timeout")]


async def test_an_attempt_without_progress_is_stalled(watch):
    watch.run(stall_timeout=10.0)
    await watch.after(10.0)
    assert watch.pool.stopped == [(1, "stalled")]


async def test_an_attempt_that_does_not_stop_is_killed_after_the_grace(watch):
    watch.run(timeout=10.0, cancel_grace=3.0)
    await watch.after(10.0)
    await watch.after(2.9)
    assert watch.pool.killed == []
    await watch.after(0.1)
    assert watch.pool.killed == [1]


async def test_every_request_to_stop_has_the_same_grace(watch):
    watch.run()
    watch.pool.stop(1, "cancel")
    await watch.after(Policy().cancel_grace)
    assert watch.pool.killed == [1]


async def test_only_the_culprit_is_stopped(watch):
    watch.run(1, timeout=10.0)
    watch.run(2, timeout=20.0)
    await watch.after(10.0)
    assert watch.pool.stopped == [(1, "timeout")]


async def test_an_attempt_that_has_ended_is_left_alone(watch):
    watch.run(timeout=10.0)
    watch.in_flight.running.clear()
    await watch.after(100.0)
    assert watch.pool.stopped == []


async def test_the_lease_is_checked_with_each_look(watch):
    for _ in range(3):
        await watch.after(1.0)
    assert watch.owner.lease_checks == 3


async def test_slots_all_held_by_waiting_tasks_are_reported_once(watch):
    watch.pool.slots = 2
    watch.run(1)
    watch.run(2)
    for token in (1, 2):
        watch.in_flight.note_progress(token, Progress(waits_for=token + 10))
    with heard_fields() as told:
        await watch.after(0.0)
        await watch.after(HELD_SECONDS - 0.1)
        assert told == []
        for _ in range(10):
            await watch.after(0.1)
    assert told == [("slots_held_by_waiting", {"running": 2, "job_id": 1, "waits_for": 11})]
    watch.in_flight.note_progress(2, Progress())
    with heard_fields() as told:
        await watch.after(10.0)
        watch.in_flight.note_progress(2, Progress(waits_for=12))
        await watch.after(0.0)
        assert told == []
        await watch.after(HELD_SECONDS)
    assert len(told) == 1


async def test_slots_held_again_after_nothing_ran_are_reported_again(watch):
    """Also where the next attempt waits by the time of its first look."""
    watch.pool.slots = 1
    for token in (1, 2):
        watch.run(token)
        watch.in_flight.note_progress(token, Progress(waits_for=token + 10))
        with heard_fields() as told:
            await watch.after(LOOK_SECONDS)
            assert told == []
            await watch.after(HELD_SECONDS)
        assert [fields["waits_for"] for _, fields in told] == [token + 10]
        watch.in_flight.running.clear()
        await watch.after(LOOK_IDLE_SECONDS)


async def test_waiting_beside_a_free_slot_is_not_reported(watch):
    watch.pool.slots = 2
    watch.run(1)
    watch.in_flight.note_progress(1, Progress(waits_for=11))
    with heard() as names:
        for _ in range(10):
            await watch.after(10.0)
    assert names == []
