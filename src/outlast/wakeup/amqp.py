"""Connects to RabbitMQ: one topic exchange for each store, one quorum queue for each of its queues.

The queues keep notices for a bounded time and number and drop the oldest. Each connection declares
exchange and queues, so the first client repairs a server that has lost its data. A consumer exists
only while its worker has free slots, which bound its unsettled messages; a message that is given
back goes to another worker at once. A second exchange, which keeps nothing, sends watchers
heartbeats and deactivations. A third, to which no queue is bound, shows whether the server takes
messages at all: while its disk or memory is short, it takes the first message of a connection, and
then reads nothing more from it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import aio_pika
from aio_pika.abc import DeliveryMode, ExchangeType
from aiormq.exceptions import InvalidFrameError

from outlast.base.clock import SYSTEM
from outlast.wakeup.messenger import Delivery
from outlast.wakeup.notice import Notice, token_of

if TYPE_CHECKING:
    from aio_pika.abc import (
        AbstractChannel,
        AbstractConnection,
        AbstractExchange,
        AbstractIncomingMessage,
        AbstractQueue,
    )

    from outlast.wakeup.kinds import Address

CONNECT_SECONDS = 3.0
HEARTBEAT_SECONDS = 6  # of the connection: a silent network shows within twice that
CHECK_MAX = 100  # queues in one check; the next check takes others
DELIVERIES_MAX = 20  # of a message that is never settled
IDLE_QUEUE_MS = 7 * 86_400_000  # unused, then the server deletes a queue
PROBE_SECONDS = 3.0  # for a server to answer after a message to no queue
DEFAULTS: dict[str, Any] = {"max_age": 3_600, "max_msgs": 1_000_000}


class AmqpBroker:
    """One connection. ``queues``: None publishes only, [] receives for all queues."""

    def __init__(self, address: Address, store_id: str, queues: list[str] | None) -> None:
        self._address = address
        self._queues = queues
        self._settings = DEFAULTS | address.settings
        self._root = f"outlast.{store_id}"
        self._connection: AbstractConnection | None = None
        self._lost = asyncio.Event()
        self._news = asyncio.Event()
        self._here: list[Delivery] = []
        self._sources: list[tuple[AbstractQueue, str]] = []  # with the key that binds each
        self._checked = 0  # the source to be checked next
        self._tags: list[tuple[AbstractQueue, str]] = []
        self._prefetch = 0

    async def open(self) -> None:
        """Connect, declare exchanges and queues; the server checks the existing ones."""
        self._connection = await self._dial()
        self._connection.close_callbacks.add(self._gone)
        self._channel: AbstractChannel = await self._connection.channel()
        self._channel.close_callbacks.add(self._gone)
        self._jobs: AbstractExchange = await self._exchange("jobs")
        self._workers: AbstractExchange = await self._exchange("workers")
        await self._probe()
        for name, key in self._wanted():
            queue = await self._channel.declare_queue(
                name, durable=True, arguments=self._arguments()
            )
            await queue.bind(self._jobs, key)
            self._sources.append((queue, key))

    async def _dial(self) -> AbstractConnection:
        hosts = sorted(self._address.hosts, key=lambda _: SYSTEM.random())
        for host, port in hosts:
            try:
                return await self._dial_one(host, port)
            except (OSError, TimeoutError):
                if (host, port) == hosts[-1]:
                    raise
        raise AssertionError("an address has hosts")

    async def _dial_one(self, host: str, port: int) -> AbstractConnection:
        context = self._address.context()
        virtual_host = self._address.path or "/"
        connecting = aio_pika.connect(
            host=host,
            port=port,
            login=self._address.user or "guest",
            password=self._address.password or "guest",
            virtualhost=virtual_host,
            ssl=context is not None,
            ssl_context=context,
            timeout=CONNECT_SECONDS,
            heartbeat=HEARTBEAT_SECONDS,
            client_properties={"connection_name": "outlast"},
        )
        dial = asyncio.create_task(connecting)
        try:
            return await asyncio.shield(dial)
        except InvalidFrameError as error:  # the driver drops the server's words
            raise ConnectionError(
                f"the server refuses the virtual host {virtual_host!r}: create it, or let this user"
                " use it"
            ) from error
        except asyncio.CancelledError:
            hanging_up = asyncio.create_task(_hang_up(dial))
            _HANGING_UP.add(hanging_up)  # the loop holds only weak references to tasks
            hanging_up.add_done_callback(_HANGING_UP.discard)
            raise

    async def _exchange(self, name: str) -> AbstractExchange:
        return await self._channel.declare_exchange(
            f"{self._root}.{name}", ExchangeType.TOPIC, durable=True
        )

    async def _probe(self) -> None:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                exchange = await self._exchange("probe")
                await exchange.publish(aio_pika.Message(b""), "", mandatory=False)
                await self._exchange("probe")  # answered if the server still reads
        except TimeoutError:
            raise ConnectionError(
                "the server accepts no messages, as while its disk or memory is short (an alarm)"
            ) from None

    def _wanted(self) -> list[tuple[str, str]]:
        if self._queues is None:
            return []
        if not self._queues:
            return [(f"{self._root}.all", "#")]
        tokens = map(token_of, self._queues)
        return [(f"{self._root}.q-{token}", token) for token in tokens]

    def _arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "x-queue-type": "quorum",
            "x-max-length": self._settings["max_msgs"],
            "x-overflow": "drop-head",
            "x-message-ttl": self._settings["max_age"] * 1_000,
            "x-delivery-limit": DELIVERIES_MAX,
            "x-expires": IDLE_QUEUE_MS,
        }
        if "replicas" in self._settings:
            arguments["x-quorum-initial-group-size"] = self._settings["replicas"]
        return arguments

    def _gone(self, *_: object) -> None:
        self._lost.set()
        self._news.set()

    async def publish(self, notices: Sequence[Notice]) -> None:
        """Publish; return when the server has confirmed them all."""
        await asyncio.gather(*map(self._publish, notices))

    async def _publish(self, notice: Notice) -> None:
        message = aio_pika.Message(
            notice.body(),
            content_type="application/json",
            delivery_mode=DeliveryMode.PERSISTENT,
        )
        await self._jobs.publish(message, token_of(notice.queue), mandatory=False)

    async def tell(self, topic: str, body: bytes) -> None:
        """Publish an event to watchers; it is not kept."""
        message = aio_pika.Message(body, content_type="application/json")
        await self._workers.publish(message, topic, mandatory=False)

    async def pull(self, free_slots: int, seconds: float) -> list[Delivery]:
        """Wait for messages; check now and then that the queues still exist."""
        if self._tags and free_slots > 2 * self._prefetch:
            await self.rest()
        if not self._tags:
            await self._consume(free_slots)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        if not self._here:
            await self._check()
        return self._pop_received(free_slots)

    def _pop_received(self, free_slots: int) -> list[Delivery]:
        found, self._here = self._here[:free_slots], self._here[free_slots:]
        if not self._here:
            self._news.clear()
        return found

    async def _consume(self, free_slots: int) -> None:
        self._prefetch = free_slots
        await self._channel.set_qos(free_slots)
        for queue, _ in self._sources:
            self._tags.append((queue, await queue.consume(self._heard)))

    async def _check(self) -> None:
        """Bind queues again, some at a time: an exchange that another client deleted and recreated
        has lost its bindings. Raise if one is missing, which no consumer hears."""
        if self._lost.is_set():
            raise ConnectionError("the connection was lost")
        for _ in range(min(CHECK_MAX, len(self._sources))):
            queue, key = self._sources[self._checked % len(self._sources)]
            self._checked += 1
            await queue.bind(self._jobs, key)

    async def _heard(self, message: AbstractIncomingMessage) -> None:
        delivery = make_delivery(message)
        if not self._tags and not self._prefetch:
            await delivery.give_back()
            return
        self._here.append(delivery)
        self._news.set()

    async def rest(self) -> None:
        """Take no more messages, and give back the received ones."""
        self._prefetch = 0
        tags, self._tags = self._tags, []
        for queue, tag in tags:
            await queue.cancel(tag)
        for delivery in self._pop_received(len(self._here)):
            await delivery.give_back()
        if not tags:
            await self._check()

    async def wait_until_lost(self) -> None:
        """Return when the connection is lost."""
        await self._lost.wait()

    async def close(self) -> None:
        """Close, in any state."""
        if self._connection is not None:
            with suppress(Exception):
                await self._connection.close()


_HANGING_UP: set[asyncio.Task[None]] = set()


async def _hang_up(dial: asyncio.Task[AbstractConnection]) -> None:
    """Close the connection once it is made: aio_pika leaves it open if a cancel hits its last
    step."""
    with suppress(Exception):
        await (await dial).close()


def make_delivery(message: AbstractIncomingMessage) -> Delivery:
    """Return a message of a consumer; one given back goes at once to the next with free slots."""
    count = (message.headers or {}).get("x-delivery-count", 0)
    times = 1 + (count if isinstance(count, int) else 0)
    give_back = functools.partial(message.nack, requeue=True)
    return Delivery(message.body, times, message.ack, give_back)
