"""Disposes of messages that are not for this worker: no notices, or notices of unknown tasks.

Anyone may write them, in any number, so neither the receiving loop nor a log may wait for them or
hold them all.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Protocol

from outlast.base.clock import Clock
from outlast.errors import text_of
from outlast.events import emit

TELL_SECONDS = 60.0  # between two events about messages that are not notices
REST_SECONDS = 0.5  # before a returned notice goes to other workers again
DELIVERIES_MAX = 5  # of a message to workers that do not know its task
RESTING_SHARE = 4  # one in this many delivered messages may rest here


class Delivery(Protocol):
    """One received message."""

    body: bytes

    @property
    def times(self) -> int:
        """How often it was delivered."""
        ...

    async def ack(self) -> None:
        """Settle the message: it does not come back."""
        ...

    async def give_back(self) -> None:
        """Give the message back, to be delivered again, here or elsewhere."""
        ...


class Rejections:
    """Counts messages that are not notices. Reports the first at once and the others, with their
    number, once in TELL_SECONDS."""

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
        """Report the counted ones, if it is time."""
        if not self._count or self._clock.boot() < self._tell_at:
            return
        emit("notice_rejected", kind=self._kind, error=self._error, count=self._count)
        self._count = 0
        self._tell_at = self._clock.boot() + TELL_SECONDS


class Strangers:
    """Gives notices of tasks that this worker does not know back for workers that know them.

    A message goes back at once the first time: the messenger hands it to the next waiting worker. A
    message that comes again rests here first, beside the receiving loop, so that a message for a
    task that no worker knows does not circulate at full speed. A resting message occupies one of
    the places for which the messenger delivers, so only a share of the messages may rest, and the
    others are settled. So a flood of such messages costs two deliveries for each, and holds up
    nothing. The next sweep, or a worker that polls, finds the job of a message that was settled
    here.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._resting: set[asyncio.Task[None]] = set()

    async def give_back(self, delivery: Delivery, free_slots: int) -> None:
        """Give a message back, now or later, or settle it. ``free_slots``: the requested number."""
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
        with suppress(Exception):  # the connection is lost: noticed elsewhere
            await delivery.give_back()

    def forget(self) -> None:
        """Leave resting messages to the messenger: the connection is closed."""
        for task in self._resting:
            task.cancel()
