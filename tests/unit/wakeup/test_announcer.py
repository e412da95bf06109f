"""The announcer of a worker whose messenger is away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from outlast.model.job import JobFacts
from outlast.model.lifecycle import Outcome, OutcomeKind, decide
from outlast.store.values import RunBy, UnpublishedBatch, WorkerRef
from outlast.wakeup.messenger import Messenger
from outlast.worker.maintenance.announcer import RECLAIMED_MAX, Announcer
from tests.manual_clock import ManualClock
from tests.unit.worker.stage_kit import NEW


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
    announcer = Announcer(messenger, store, NEW, lambda: WorkerRef(1, 1), poll=1.0, clock=clock)
    end = Outcome(kind=OutcomeKind.RELEASED, message="gone")
    back = decide(JobFacts(job_id=0, token=0), end, clock.random)
    ids = range(RECLAIMED_MAX + 5)
    announcer.note_reclaimed([msgspec.structs.replace(back, job_id=each) for each in ids])
    assert await announcer.run_once() == 1.0
    assert list(announcer._reclaimed) == list(range(5, RECLAIMED_MAX + 5))
