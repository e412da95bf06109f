"""The duty that writes what a worker has counted."""

from __future__ import annotations

import pytest

from outlast.errors import BadData, StoreUnavailable
from outlast.model.lease import DeathCause
from outlast.store.minutes import Counted
from outlast.store.values import WorkerRef
from outlast.worker.claims.counters import MINUTE, Counters, MinuteWriter
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import lease_of


class Writing:
    """A duty whose store notes what it is given, or fails."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.counters = Counters()
        self.lease = lease_of(WorkerRef(7, 1))
        self.noted: list[tuple[int, int, list[Counted]]] = []
        self.errors: list[Exception] = []
        self.duty = MinuteWriter(self, self.counters, self.lease, self.clock)  # type: ignore[arg-type]

    async def note_minute(self, worker_id: int, batch: int, counted: list[Counted]) -> None:
        self.noted.append((worker_id, batch, counted))
        if self.errors:
            raise self.errors.pop(0)

    def count(self) -> None:
        self.counters.note_death(DeathCause.SILENCE)


async def test_it_writes_once_a_minute_and_nothing_where_nothing_was_counted() -> None:
    writing = Writing()
    writing.count()
    assert await writing.duty.run_once() == MINUTE  # not before the first minute is over
    for _ in range(3):
        writing.clock.advance(MINUTE)
        assert await writing.duty.run_once() == MINUTE
    (noted,) = writing.noted
    assert (noted[0], [each.jobs for each in noted[2]]) == (7, [1])


async def test_a_batch_that_may_not_have_arrived_is_sent_again_as_it_was() -> None:
    writing = Writing()
    writing.errors = [StoreUnavailable("no reply")]
    writing.count()
    writing.clock.advance(MINUTE)
    with pytest.raises(StoreUnavailable):
        await writing.duty.run_once()
    writing.count()
    writing.lease.me = WorkerRef(8, 1)  # it has registered again meanwhile
    await writing.duty.run_once()
    first, second = writing.noted
    assert first == second
    writing.clock.advance(MINUTE)
    await writing.duty.run_once()
    worker, number, counted = writing.noted[2]
    assert (worker, [each.jobs for each in counted]) == (8, [1])
    assert number > first[1]


async def test_numbers_that_the_store_refuses_are_dropped() -> None:
    writing = Writing()
    writing.errors = [BadData("a number out of range")]
    writing.count()
    writing.clock.advance(MINUTE)
    await writing.duty.run_once()
    writing.clock.advance(MINUTE)
    await writing.duty.run_once()
    assert len(writing.noted) == 1


async def test_the_last_numbers_are_written_at_the_end_and_wait_for_no_store() -> None:
    writing = Writing()
    writing.count()
    await writing.duty.write_last()
    assert len(writing.noted) == 1
    writing.errors = [StoreUnavailable("gone")]
    writing.count()
    await writing.duty.write_last()
    assert len(writing.noted) == 2


async def test_numbers_of_a_batch_rise_with_the_clock_and_never_fall() -> None:
    writing = Writing()
    numbers = []
    for seconds in (MINUTE, MINUTE, MINUTE):
        writing.count()
        writing.clock.advance(seconds)
        await writing.duty.run_once()
        numbers.append(writing.noted[-1][1])
    assert numbers == sorted(set(numbers))
