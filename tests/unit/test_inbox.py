"""The inbox between a messenger and the exchange: which of the named jobs were passed over."""

from __future__ import annotations

from outlast.store.values import Room
from outlast.wakeup.inbox import PASSED_MAX, Inbox
from tests.unit.worker_kit import claimed

ROOM = [Room(tasks=["work"], limit=10)]


async def test_what_was_named_and_not_claimed_is_told_once():
    inbox = Inbox()
    answer = inbox.put([7, 8, 9])
    (room,) = inbox.named(ROOM)
    inbox.settle(answered=True, claimed=[claimed(8)])
    assert (room.named, answer.result()) == ([7, 8, 9], True)
    assert inbox.passed_over() == [7, 9]
    assert inbox.passed_over() == []


async def test_of_an_exchange_that_broke_off_nothing_is_known():
    inbox = Inbox()
    answer = inbox.put([7])
    inbox.named(ROOM)
    inbox.settle(answered=False)
    assert answer.result() is False
    assert inbox.passed_over() == []


async def test_only_so_many_are_remembered():
    inbox = Inbox()
    for first in range(0, 1_000, 50):
        inbox.put(list(range(first, first + 50)))
        inbox.named(ROOM)
        inbox.settle(answered=True)
    assert len(inbox.passed_over()) == PASSED_MAX
