"""Publishes and receives wake-ups by a messenger (NATS, RabbitMQ): one mechanism for all.

The store is the only truth. A message only asks workers to check the store, and names a job. It is
published after the commit, fetched only while there are free slots, and settled when the exchange
has been answered. So a message that is lost, late, doubled, reordered or a year old costs latency
or a needless request, never a job, and no redelivery can race a recovery. While the messenger is
away, workers poll as always. Anyone may write messages, in any number, so neither the receiving
loop nor a log may wait for them or hold them all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

import msgspec

from outlast.base.clock import SYSTEM, Clock
from outlast.base.throttle import Throttle
from outlast.errors import text_of
from outlast.events import emit
from outlast.store.wakeup import Backoff, Listening, end
from outlast.wakeup.inbox import Inbox
from outlast.wakeup.notice import Notice, read

ANSWER_SECONDS = 10.0  # for a messenger to answer; then a new connection is made
QUEUE_SECONDS = 0.1  # more for each named queue: RabbitMQ answers for one after the other
CLOSE_SECONDS = 2.0
STOP_SECONDS = 0.5  # for the users of a connection to stop
PULL_SECONDS = 5.0  # of one wait for messages, at most
LOOK_SECONDS = 1.0  # between two checks of the store while messages for others come first
PUBLISH_SECONDS = 1.0  # for a messenger to confirm a batch; no batch begins after it
BATCH_MAX = 256  # notices published before the first of them is confirmed
SAID_MAX = 10_000  # announcements of sweeps that are remembered, so that none is made twice
TELL_MAX = 100  # events for watchers, waiting for a connection
HOLD_SECONDS = 30.0  # for an unsettled message; then it goes to another worker
DELIVERIES_MAX = 5  # of a message to workers that do not know its task


class Delivery(NamedTuple):
    """One received message, delivered ``times`` times. ``ack`` settles it; ``give_back`` lets the
    messenger deliver it again, here or elsewhere."""

    body: bytes
    times: int
    ack: Callable[[], Awaitable[object]]
    give_back: Callable[[], Awaitable[object]]


class Broker(Protocol):
    """One connection to a messenger. After any exception another connection is made."""

    async def open(self) -> None:
        """Connect, create missing objects of the server, check existing ones."""
        ...

    async def publish(self, notices: Sequence[Notice]) -> None:
        """Publish at once, BATCH_MAX at most; return when the messenger has them all."""
        ...

    async def tell(self, topic: str, body: bytes) -> None:
        """Publish an event to current watchers; it is not kept."""
        ...

    async def pull(self, free_slots: int, seconds: float) -> Sequence[Delivery]:
        """Wait for messages for at most ``seconds``; return up to about ``free_slots`` of them."""
        ...

    async def rest(self) -> None:
        """Take no more messages for now; raise if the connection does not answer."""
        ...

    async def wait_until_lost(self) -> None:
        """Return when the connection is lost, or raise the reason."""
        ...

    async def close(self) -> None:
        """Close, in any state."""
        ...


class Messenger(Listening):
    """Publishes notices, and receives them for a worker (if its broker was given ``queues``).

    Args:
        make: returns a new broker, not opened.
        inbox: receives the names of jobs; None for a client that only publishes.
        queues: the number of queues that are received by name.
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
        self._tasks: Callable[[], Collection[str]] | None = None  # None: all
        self._make = make
        self._clock = clock
        self._backoff = Backoff(clock)
        self._rejected = Throttle(clock)
        self._look_at = clock.boot()
        self._broker: Broker | None = None
        self._said: dict[str, None] = {}  # what sweeps have announced on this connection
        self._useless = asyncio.Event()  # set when a publish failed on the connection
        self._to_tell: deque[tuple[str, bytes]] = deque(maxlen=TELL_MAX)
        self._telling = asyncio.Event()
        self._tried = asyncio.Event()  # set once the first connection is made or has failed

    def leave_others(self, tasks: Callable[[], Collection[str]]) -> None:
        """Leave a message to other workers unless ``tasks`` returns its task."""
        self._tasks = tasks

    async def announce(self, notices: Sequence[Notice]) -> bool:
        """Publish after a commit; return whether the messenger has all notices. Never raises: a
        sweep announces the missed notices.

        The messenger gets the notices that it takes in PUBLISH_SECONDS, and no more. It is healthy
        unless it does not confirm a batch in that time.
        """
        ends = self._clock.boot() + PUBLISH_SECONDS
        broker: Broker | None = None
        fresh = [each for each in notices if each.name not in self._said]
        try:
            for start in range(0, len(fresh), BATCH_MAX):
                if self._clock.boot() >= ends:
                    return False
                async with asyncio.timeout(PUBLISH_SECONDS):
                    await self._tried.wait()
                    broker = self._broker
                    if broker is None:
                        return False
                    await broker.publish(fresh[start : start + BATCH_MAX])
        except Exception as error:
            self._note_failed_publish(broker, error)
            return False
        self._said |= dict.fromkeys(each.name for each in fresh if each.repeat)
        while len(self._said) > SAID_MAX:
            del self._said[next(iter(self._said))]
        return True

    def _note_failed_publish(self, broker: Broker | None, error: Exception) -> None:
        """Give up the connection of a failed publish, unless it was replaced meanwhile."""
        if self._broker is not broker:
            return
        self._note_trouble(error)
        if broker is not None:
            self._broker = None  # no call waits for it again
            self._useless.set()

    def tell(self, topic: str, **facts: object) -> None:
        """Send an event to watchers, soon; of too many unsent events the oldest are dropped."""
        self._to_tell.append((topic, msgspec.json.encode({"event": topic, **facts})))
        self._telling.set()

    async def wait_until_told(self) -> None:
        """Wait until all events for watchers are sent."""
        while self._to_tell and self.health.good:
            await self._clock.sleep(0.01)

    # -- the connection

    async def _run(self) -> None:
        while not self.is_closing:
            try:
                await self._use_one()
            except Exception as error:  # from a driver, or from the setup of its objects
                self._note_trouble(error)
            self._tried.set()
            self._broker = None
            if not self.is_closing:  # otherwise a driver has swallowed the cancellation
                await self._backoff.rest()

    async def _use_one(self) -> None:
        broker = self._make()
        self._useless.clear()
        try:
            async with asyncio.timeout(self._patience):
                await broker.open()
            if self.is_closing:  # and the driver has swallowed the cancellation
                return
            self._broker, self._said = broker, {}
            self._backoff.note_connected()
            self._note_health()
            self._tried.set()
            parts = self._serve(broker), self._send_events(broker), broker.wait_until_lost()
            await _first_of(*parts, self._fail_when_useless())
        finally:
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
        if self.health.note_ready():
            self._on_wake("")  # to find jobs missed meanwhile

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
            if self._broker is broker:  # else a publish has just failed on it
                self._note_health()
            if deliveries:
                async with asyncio.timeout(HOLD_SECONDS + ANSWER_SECONDS):
                    await self._settle(deliveries, self.inbox)

    async def _settle(self, deliveries: Sequence[Delivery], inbox: Inbox) -> None:
        mine: list[tuple[Delivery, Notice]] = []
        for delivery in deliveries:
            notice = await self._open_notice(delivery)
            if notice is not None:
                mine.append((delivery, notice))
        if len(mine) < len(deliveries):
            self._look_past_others()
        if not mine:
            return
        answer = inbox.put([notice.job_id for _, notice in mine])
        for queue in {notice.queue for _, notice in mine}:
            self._on_wake(f"queue:{queue}")
        self._on_wake("")  # anyone may have written the names of the queues
        done, _ = await asyncio.wait([answer], timeout=HOLD_SECONDS)
        answered = bool(done) and answer.result()
        for delivery, _ in mine:
            await (delivery.ack() if answered else delivery.give_back())

    def _look_past_others(self) -> None:
        """Check the store as often as without a messenger: messages for others may come first."""
        now = self._clock.boot()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self._on_wake("")

    async def _open_notice(self, delivery: Delivery) -> Notice | None:
        """Return the notice; settle a message that is none, and give back one for other workers. If
        none of them takes it, it is settled: a sweep, or a worker that polls, finds the job."""
        try:
            notice = read(delivery.body)
        except ValueError as error:
            if count := self._rejected.count():
                kind = self.health.kind
                emit("notice_rejected", kind=kind, error=text_of(error), count=count)
            await delivery.ack()
            return None
        if notice.task and self._tasks is not None and notice.task not in self._tasks():
            await (delivery.give_back() if delivery.times < DELIVERIES_MAX else delivery.ack())
            return None
        return notice


async def _first_of(*coroutines: Coroutine[None, None, None]) -> None:
    """Wait for the first to end and end the others; raise the first one's exception."""
    waits = [asyncio.ensure_future(each) for each in coroutines]
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(waits, STOP_SECONDS)
    for wait in done:
        wait.result()
    raise ConnectionError("the connection was lost")
