"""Messages that are not for this worker: no notices at all, or notices of tasks that it does not
know. They may come in any number and be written by anyone, so neither the loop that receives
nor a log has to wait for them, or to hold them all."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Protocol

from outlast.base.clock import Clock
from outlast.errors import text_of
from outlast.events import emit

TELL_SECONDS = 60.0  # between two events about messages that are not notices
REST_SECONDS = 0.5  # before a notice that has come back goes to other workers again
DELIVERIES_MAX = 5  # of one message to workers that do not know its task
RESTING_SHARE = 4  # one in this many messages that the messenger delivers may rest here


class Delivery(Protocol):
    """One message that this worker has received."""

    body: bytes

    @property
    def times(self) -> int:
        """How often it was delivered."""
        ...

    async def ack(self) -> None:
        """Settle it: it does not come back."""
        ...

    async def give_back(self) -> None:
        """Give it back, to be delivered again, here or elsewhere."""
        ...


class Rejections:
    """Counts messages that are not notices, and reports the first at once, the others once in
    TELL_SECONDS, with how many there were."""

    def __init__(self, kind: str, clock: Clock) -> None:
        self._kind = kind
        self._clock = clock
        self._count = 0
        self._error = ""
        self._tell_at = clock.boot()

    def add(self, error: ValueError) -> None:
        """Count one."""
        self._count += 1
        self._error = text_of(error)
        self.tell()

    def tell(self) -> None:
        """Tell of those that were counted, when it is time."""
        if not self._count or self._clock.boot() < self._tell_at:
            return
        emit("notice_rejected", kind=self._kind, error=self._error, count=self._count)
        self._count = 0
        self._tell_at = self._clock.boot() + TELL_SECONDS


class Strangers:
    """Notices of tasks that this worker does not know: they go back for workers that do.

    The first time at once: the messenger hands it to the next worker that waits. A message that
    comes again rests here first, beside the loop that receives, so that one which no worker knows
    does not come and go as fast as it can. What rests takes up a place of those for which the
    messenger delivers, so only a share of them may, and the others are settled. A flood of
    strangers so costs each of them two deliveries, and holds up nothing. A job whose message was
    settled here is found by the next sweep, or by a worker that looks.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._resting: set[asyncio.Task[None]] = set()

    async def give_back(self, delivery: Delivery, free_slots: int) -> None:
        """Give it back, now or later, or settle it. ``free_slots``: how many were asked for."""
        if delivery.times <= 1:
            await delivery.give_back()
        elif delivery.times < DELIVERIES_MAX and len(self._resting) < free_slots // RESTING_SHARE:
            task = asyncio.create_task(self._rest(delivery), name="outlast-stranger")
            self._resting.add(task)
            task.add_done_callback(self._resting.discard)
        else:
            await delivery.ack()

    async def _rest(self, delivery: Delivery) -> None:
        await self._clock.sleep(REST_SECONDS)
        with suppress(Exception):  # the connection is lost, which is noticed elsewhere
            await delivery.give_back()

    def forget(self) -> None:
        """Leave what rests to the messenger: the connection is closed."""
        for task in self._resting:
            task.cancel()
