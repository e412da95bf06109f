"""The sweeper of a worker whose messenger is away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlast.store.unpublished import RunBy, UnpublishedBatch
from outlast.store.values import WorkerRef
from outlast.wakeup.messenger import Messenger
from outlast.worker.maintenance.sweeper import RECLAIMED_MAX, Sweeper
from tests.manual_clock import ManualClock


class Nothing:
    """A store in which nothing waits."""

    async def waiting(self, grace: float, limit: int) -> UnpublishedBatch:
        return UnpublishedBatch(workers=1, next_due=None, jobs=[])

    async def list_run_elsewhere(self, me: WorkerRef, job_ids: Sequence[int]) -> list[RunBy]:
        return []


def unused() -> Any:
    raise AssertionError


async def test_reasons_of_reclaimed_jobs_are_bounded_while_the_messenger_is_away() -> None:
    clock = ManualClock()
    messenger = Messenger(unused, "amqp", inbox=None, clock=clock)  # not started
    store: Any = Nothing()
    sweeper = Sweeper(store, messenger, poll=1.0, clock=clock)
    for number in range(RECLAIMED_MAX + 5):
        sweeper.note_reclaimed(number, "gone")
    assert await sweeper.run_once() == 1.0
    assert list(sweeper._reclaimed) == list(range(5, RECLAIMED_MAX + 5))
