"""Wake-ups by a messenger (NATS, RabbitMQ): one mechanism for all of them.

The store is the only truth. A message says "look" and names a job; it is published after the
commit, fetched only while there are free slots, and settled when the exchange has been answered. So
a message that is lost, late, doubled, reordered or a year old costs latency or a look, never a job,
and no redelivery can race a recovery. While the messenger is away workers poll as they always do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from outlast.base.clock import SYSTEM, Clock
from outlast.store.wakeup import Backoff, Listening, end
from outlast.wakeup.inbox import Inbox
from outlast.wakeup.notice import Notice, read
from outlast.wakeup.unwanted import Delivery, Rejections, Strangers

ANSWER_SECONDS = 10.0  # that a messenger takes to answer; then another connection is made
QUEUE_SECONDS = 0.1  # more, for each queue by name: RabbitMQ answers of one after the other
CLOSE_SECONDS = 2.0
STOP_SECONDS = 0.5  # for what uses a connection to stop
PULL_SECONDS = 5.0  # that one wait for messages takes at most
LOOK_SECONDS = 1.0  # between two looks at the store while messages for others are in the way
PUBLISH_SECONDS = 1.0  # that a messenger takes to confirm a batch; no batch begins after it
BATCH_MAX = 256  # notices that are published before the first of them is confirmed
TELL_MAX = 100  # events for watchers that wait for a connection
HOLD_SECONDS = 30.0  # that a message is held unsettled; then it goes to another worker


class Broker(Protocol):
    """One connection to a messenger. Any exception means trouble: another one is made."""

    async def open(self) -> None:
        """Connect, make what is missing, check what is there."""
        ...

    async def publish(self, notices: Sequence[Notice]) -> None:
        """Publish at once, BATCH_MAX at most; return when the messenger has them all."""
        ...

    async def tell(self, topic: str, body: bytes) -> None:
        """Publish it to current watchers; it is not kept."""
        ...

    async def pull(self, free_slots: int, seconds: float) -> Sequence[Delivery]:
        """Wait for messages, at most ``seconds``; return up to about ``free_slots`` of them."""
        ...

    async def rest(self) -> None:
        """Take no more messages for now; raise if the connection does not answer."""
        ...

    async def wait_until_lost(self) -> None:
        """Return, or raise why, when the connection is lost."""
        ...

    async def close(self) -> None:
        """Close, in any state."""
        ...


class Messenger(Listening):
    """Publishes notices, and for a worker (``queues`` given to its broker) receives them.

    Args:
        make: returns a new broker, not opened.
        inbox: where names go; None for a client that only publishes.
        queues: how many are received by name.
    """

    def __init__(
        self,
        make: Callable[[], Broker],
        kind: str,
        *,
        inbox: Inbox | None,
        queues: int = 0,
        clock: Clock = SYSTEM,
    ) -> None:
        super().__init__(kind)
        self._patience = ANSWER_SECONDS + QUEUE_SECONDS * queues
        self.inbox = inbox
        self._knows: Callable[[str], bool] = _any_task
        self._make = make
        self._clock = clock
        self._backoff = Backoff(clock)
        self._rejections = Rejections(kind, clock)
        self._strangers = Strangers(clock)
        self._look_at = clock.boot()
        self._broker: Broker | None = None
        self._useless = asyncio.Event()  # a publish failed on the connection
        self._to_tell: deque[tuple[str, bytes]] = deque(maxlen=TELL_MAX)
        self._telling = asyncio.Event()
        self._tried = asyncio.Event()  # set once the first connection stands or has failed

    async def start(
        self,
        on_wake: Callable[[str], None] = lambda payload: None,
        knows: Callable[[str], bool] | None = None,
    ) -> None:
        """Begin to connect; a message whose task is one that ``knows`` denies goes on to other
        workers."""
        self._knows = knows or _any_task
        await super().start(on_wake)

    async def announce(self, notices: Sequence[Notice]) -> bool:
        """Publish after a commit; return whether the messenger has them all. Never raises: who is
        waiting for a job's id does not care, and a sweep announces what was missed.

        A messenger that is slower than the caller is in order: it gets what it takes in
        PUBLISH_SECONDS, and no more. One that does not confirm a batch in that time is not.
        """
        ends = self._clock.boot() + PUBLISH_SECONDS
        broker: Broker | None = None
        try:
            for start in range(0, len(notices), BATCH_MAX):
                if self._clock.boot() >= ends:
                    return False
                async with asyncio.timeout(PUBLISH_SECONDS):
                    await self._tried.wait()
                    broker = self._broker
                    if broker is None:
                        return False
                    await broker.publish(notices[start : start + BATCH_MAX])
        except Exception as error:
            self._note_failed_publish(broker, error)
            return False
        return True

    def _note_failed_publish(self, broker: Broker | None, error: Exception) -> None:
        """Give up the connection on which it failed: not one that stands in its place by now, nor
        one that was still waited for."""
        if self._broker is not broker:
            return
        self._note_trouble(error)
        if broker is not None:
            self._broker = None  # no call waits for it again
            self._useless.set()

    def tell(self, topic: str, **facts: object) -> None:
        """Tell watchers, soon; the oldest of what cannot be told is forgotten."""
        self._to_tell.append((topic, msgspec.json.encode({"event": topic, **facts})))
        self._telling.set()

    async def wait_until_told(self) -> None:
        """Wait until watchers have been told all."""
        while self._to_tell and self.health.good:
            await self._clock.sleep(0.01)

    # -- the connection

    async def _run(self) -> None:
        while not self.is_closing:
            try:
                await self._use_one()
            except Exception as error:  # of a driver, or of what is set up there
                self._note_trouble(error)
            self._tried.set()
            self._broker = None
            if not self.is_closing:  # otherwise a driver has kept the cancellation to itself
                await self._backoff.rest()

    async def _use_one(self) -> None:
        broker = self._make()
        self._useless.clear()
        try:
            async with asyncio.timeout(self._patience):
                await broker.open()
            if self.is_closing:  # and the driver has swallowed the cancellation
                return
            self._broker = broker
            self._backoff.note_connected()
            self._note_health()
            self._tried.set()
            parts = self._serve(broker), self._send_events(broker), broker.wait_until_lost()
            await _first_of(*parts, self._fail_when_useless())
        finally:
            self._strangers.forget()
            with suppress(Exception):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await broker.close()

    async def _send_events(self, broker: Broker) -> None:
        while True:
            await self._telling.wait()
            self._telling.clear()
            while self._to_tell:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await broker.tell(*self._to_tell.popleft())

    async def _fail_when_useless(self) -> None:
        await self._useless.wait()
        raise ConnectionError(self.health.trouble or "a message could not be published")

    def _note_health(self) -> None:
        if self.inbox is not None:
            self.inbox.healthy = True
        if self.health.note_well():
            self._on_wake("")  # for what was missed meanwhile

    def _note_trouble(self, error: Exception) -> None:
        if self.inbox is not None:
            self.inbox.healthy = False
        was_good = self.health.good
        self.health.note_trouble(error)
        if was_good:
            self._on_wake("")  # from now on by polling

    # -- messages

    async def _serve(self, broker: Broker) -> None:
        if self.inbox is None:
            await asyncio.Event().wait()
            return
        while not self.is_closing:
            self._rejections.tell()
            if not self.inbox.has_free_slots():
                async with asyncio.timeout(self._patience):
                    await broker.rest()
            try:
                async with asyncio.timeout(PULL_SECONDS):
                    free_slots = await self.inbox.wait_for_slots()
            except TimeoutError:
                continue
            async with asyncio.timeout(PULL_SECONDS + self._patience):
                deliveries = await broker.pull(free_slots, PULL_SECONDS)
            if self._broker is broker:  # otherwise a publish has just failed on it
                self._note_health()
            if deliveries:
                async with asyncio.timeout(HOLD_SECONDS + ANSWER_SECONDS):
                    await self._settle(deliveries, free_slots, self.inbox)

    async def _settle(self, deliveries: Sequence[Delivery], free_slots: int, inbox: Inbox) -> None:
        """Hand over what is for this worker; settle each message by its result."""
        mine: list[tuple[Delivery, Notice]] = []
        for delivery in deliveries:
            notice = await self._open_notice(delivery, free_slots)
            if notice is not None:
                mine.append((delivery, notice))
        if len(mine) < len(deliveries):
            self._look_past_others()
        if not mine:
            return
        answer = inbox.put([notice.job_id for _, notice in mine])
        self._on_wake("")  # the broker has brought what this worker serves
        done, _ = await asyncio.wait([answer], timeout=HOLD_SECONDS)
        answered = bool(done) and answer.result()
        for delivery, _ in mine:
            await (delivery.ack() if answered else delivery.give_back())

    def _look_past_others(self) -> None:
        """Look at the store as often as without a messenger: what is not for this worker may stand
        in a long line before what is."""
        now = self._clock.boot()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._on_wake("")

    async def _open_notice(self, delivery: Delivery, free_slots: int) -> Notice | None:
        """Return the notice, or settle what is none, or is for workers that know its task."""
        try:
            notice = read(delivery.body)
        except ValueError as error:
            self._rejections.add(error)
            await delivery.ack()
            return None
        if notice.task and not self._knows(notice.task):
            await self._strangers.give_back(delivery, free_slots)
            return None
        return notice


def _any_task(task: str) -> bool:
    return True


async def _first_of(*coroutines: Coroutine[None, None, None]) -> None:
    """Wait for the first to end, end the others; raise what it raised."""
    waits = [asyncio.ensure_future(each) for each in coroutines]
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(waits, STOP_SECONDS)
    for wait in done:
        wait.result()
    raise ConnectionError("the connection was lost")
