"""The inbox between a messenger and the exchange: which of the named jobs were not claimed."""

from __future__ import annotations

import pytest

from outlast.events import subscribe
from outlast.store.values import ClaimRequest
from outlast.wakeup.inbox import PASSED_MAX, Inbox
from outlast.worker.maintenance import announcer
from outlast.worker.maintenance.announcer import Passed
from tests.unit.worker.worker_kit import claimed, lease_of

FREE_SLOTS = [ClaimRequest(tasks=["work"], limit=10)]


async def test_named_jobs_that_were_not_claimed_are_returned_once():
    inbox = Inbox()
    answer = inbox.put([7, 8, 9])
    names = inbox.hand_over(FREE_SLOTS)
    inbox.settle(answered=True, claimed=[claimed(8)])
    assert (names, answer.result()) == ([7, 8, 9], True)
    assert inbox.take_passed_over() == [7, 9]
    assert inbox.take_passed_over() == []


async def test_a_failed_exchange_marks_no_job_as_passed_over():
    inbox = Inbox()
    answer = inbox.put([7])
    inbox.hand_over(FREE_SLOTS)
    inbox.settle(answered=False)
    assert answer.result() is False
    assert inbox.take_passed_over() == []


async def test_remembered_jobs_are_bounded():
    inbox = Inbox()
    for first in range(0, 1_000, 50):
        inbox.put(list(range(first, first + 50)))
        inbox.hand_over(FREE_SLOTS)
        inbox.settle(answered=True)
    assert len(inbox.take_passed_over()) == PASSED_MAX


class Elsewhere:
    """A store whose jobs all run at another worker; each has its number as token."""

    async def list_run_elsewhere(self, me, job_ids):
        return [(job_id, job_id, "other", 2) for job_id in job_ids]


async def test_a_running_attempt_is_reported_once_for_many_messages(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(announcer, "TOLD_MAX", 3)
    inbox = Inbox()
    passed = Passed(Elsewhere(), inbox, lease_of())  # type: ignore[arg-type]
    told: list[int] = []
    unsubscribe = subscribe(lambda name, fields: told.append(fields["token"]))
    for names in ([7], [7, 8], [8, 7], [9, 10], [8, 9, 10], [7]):
        inbox.put(names)
        inbox.hand_over(FREE_SLOTS)
        inbox.settle(answered=True)
        await passed.run_once()
    unsubscribe()
    assert told == [7, 8, 9, 10, 7]  # the oldest is forgotten in the end
