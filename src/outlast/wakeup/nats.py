"""Connects to NATS JetStream: one durable stream for each store, a durable pull consumer per queue.

The stream keeps notices for a bounded time, as a file, and drops the oldest. Each connection
creates or checks it, so the first client repairs a server that has lost its data. A pull is one
request, bounded by the free slots. The server sends a sign of life every two seconds: a silent
network or a consumer without a leader is noticed soon, and the next connection tries another.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nats.aio.client import Client
from nats.errors import NoServersError
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import NotFoundError, ServiceUnavailableError

from outlast.errors import ConfigError
from outlast.wakeup.kinds import Address
from outlast.wakeup.messenger import HOLD_SECONDS, Delivery
from outlast.wakeup.notice import Notice, token_of

if TYPE_CHECKING:
    from nats.aio.msg import Msg

# bound here, so that a driver without them fails at import and sends nothing in clear
_connect_command: Callable[[Client], bytes] = Client._connect_command  # noqa: SLF001
_process_info: Callable[[Client, dict[str, Any], bool], Awaitable[None]] = Client._process_info  # noqa: SLF001


class NatsClient(Client):
    """The driver's client, bound to the URL: TLS if the URL asks for it, and no other servers.

    The driver would believe a server that does not require TLS, and send the login in clear, and
    would follow it to any other server with a valid certificate. Data from before TLS is
    established may be forged, so this class leaves neither to the driver. ``tls``: whether nothing
    may be sent before TLS is established.
    """

    def __init__(self, *, tls: bool) -> None:
        super().__init__()
        self._tls = tls

    def _connect_command(self) -> bytes:
        """Return the first command, which holds the login."""
        writer = self._transport._io_writer  # type: ignore[union-attr]  # noqa: SLF001
        if self._tls and writer.get_extra_info("ssl_object") is None:
            raise ConnectionError("the server offers no TLS, and the wake-up's URL asks for it")
        return _connect_command(self)

    async def _process_info(
        self,
        info: dict[str, Any],
        initial_connection: bool = False,  # noqa: FBT001, FBT002  # as the driver calls it
    ) -> None:
        """Accept a server's information about itself, but not about other servers."""
        await _process_info(self, info | {"connect_urls": []}, initial_connection)


CONNECT_SECONDS = 3
DIAL_SECONDS = 7.0  # to find a server that answers
BEAT_SECONDS = 2.0  # between two signs of life from a server while a pull waits
DELIVERIES_MAX = 20  # of a message that is never settled
IDLE_CONSUMER_SECONDS = 7 * 86_400.0  # unused, then the server deletes the consumer of a queue
DEFAULTS: dict[str, Any] = {
    "storage": "file",
    "replicas": 1,
    "max_age": 3_600,
    "max_msgs": 1_000_000,
    "max_bytes": -1,
}
SILENCE_SECONDS = 2.5 * BEAT_SECONDS  # of a consumer after a request; then a new connection is made
BACK_SECONDS = 0.1  # before a returned message comes again
_LIFE = "100"  # the server still works on the request
_ENDS = {"404", "408"}  # a request has ended: no messages, or its time is over
_NANO = 1_000_000_000


class NatsBroker:
    """One connection. ``queues``: None publishes only, [] receives for all queues."""

    def __init__(self, address: Address, store_id: str, queues: list[str] | None) -> None:
        self._address = address
        self._queues = queues
        self._settings = DEFAULTS | address.settings
        self._stream = address.settings.get("stream", f"OUTLAST_{store_id}")
        self._root = f"outlast.{store_id}.jobs"
        self._workers = f"outlast.{store_id}.workers"
        self._context = address.context()
        self._client = NatsClient(tls=self._context is not None)
        self._closed = asyncio.Event()
        self._pulls: list[_Pull] = []
        self._news = asyncio.Event()
        self._said: Exception | None = None

    async def open(self) -> None:
        """Connect, create the stream and the consumers if they are missing, and check them."""
        await self._connect()
        self._js = self._client.jetstream()
        await self._ensure_stream()
        for durable, subject in self._consumers():
            await self._ensure_consumer(durable, subject)
            pull = _Pull(self._client, self._stream, durable, self._news)
            await pull.open()
            self._pulls.append(pull)

    async def _connect(self) -> None:
        scheme = "tls" if self._address.tls else "nats"
        hosts = [f"{scheme}://{_bracketed(host)}:{port}" for host, port in self._address.hosts]
        user, password = self._address.user, self._address.password
        login: dict[str, Any] = {"user": user, "password": password}
        if user and password is None:
            login = {"token": user}
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                await self._dial(hosts, login)
        except (NoServersError, TimeoutError):
            raise self._said or ConnectionError("no server can be reached") from None
        self._client.options["allow_reconnect"] = False

    async def _dial(self, hosts: list[str], login: dict[str, Any]) -> None:
        await self._client.connect(
            hosts,
            name="outlast",
            connect_timeout=CONNECT_SECONDS,
            # one round over all servers; then Messenger makes a new connection and checks it
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            ping_interval=5,
            max_outstanding_pings=2,
            tls=self._context,
            user_credentials=self._settings.get("creds"),
            nkeys_seed=self._settings.get("nkey"),
            error_cb=self._failed,
            disconnected_cb=self._gone,
            closed_cb=self._gone,
            **login,
        )

    async def _failed(self, error: Exception) -> None:
        """Remember the error: the driver's last one only says that no server is left."""
        self._said = error

    async def _gone(self) -> None:
        self._closed.set()

    def _consumers(self) -> list[tuple[str, str]]:
        if self._queues is None:
            return []
        if not self._queues:
            return [("all", f"{self._root}.>")]
        return [(f"q-{token_of(each)}", f"{self._root}.{token_of(each)}") for each in self._queues]

    async def _ensure_stream(self) -> None:
        try:
            info = await self._js.stream_info(self._stream)
        except NotFoundError:
            info = await self._js.add_stream(self._wanted_stream())
        except ServiceUnavailableError as error:
            if error.code is not None:  # the server has said why
                raise
            raise ConnectionError(
                "the server answers no request to JetStream: start it with nats-server -js"
            ) from error
        self._check(info.config)

    def _wanted_stream(self) -> StreamConfig:
        chosen = self._settings
        return StreamConfig(
            name=self._stream,
            description="Outlast: which jobs to look at. The truth is in the store.",
            subjects=[f"{self._root}.>"],
            retention=RetentionPolicy.LIMITS,
            discard=DiscardPolicy.OLD,
            storage=StorageType(chosen["storage"]),
            num_replicas=chosen["replicas"],
            max_age=chosen["max_age"],
            max_msgs=chosen["max_msgs"],
            max_bytes=chosen["max_bytes"],
        )

    def _check(self, found: StreamConfig) -> None:
        shown = {
            "storage": StorageType(found.storage or "file").value,
            "replicas": found.num_replicas,
            "max_age": found.max_age,
            "max_msgs": found.max_msgs,
            "max_bytes": found.max_bytes,
        }
        for name, value in self._address.settings.items():
            if name in shown and shown[name] != value:
                raise ConfigError(
                    f"the stream {self._stream} has {name}={shown[name]}, and the wake-up's URL"
                    f" says {value}: edit the stream, or name another one with stream="
                )
        if f"{self._root}.>" not in (found.subjects or []):
            raise ConfigError(
                f"the stream {self._stream} does not take the subject {self._root}.>:"
                " add it there, or name another stream with stream="
            )
        if found.retention not in {None, RetentionPolicy.LIMITS, RetentionPolicy.LIMITS.value}:
            raise ConfigError(
                f"the stream {self._stream} keeps messages by {found.retention}, which allows one"
                " consumer for each subject only: it must be limits"
            )

    async def _ensure_consumer(self, durable: str, subject: str) -> None:
        try:
            info = await self._js.consumer_info(self._stream, durable)
        except NotFoundError:
            info = await self._js.add_consumer(self._stream, _wanted_consumer(durable, subject))
        if info.config.filter_subject != subject or info.config.deliver_subject:
            raise ConfigError(
                f"the consumer {durable} of the stream {self._stream} is not Outlast's: delete it,"
                " or name another stream with stream="
            )

    async def publish(self, notices: Sequence[Notice]) -> None:
        """Publish; return when the stream has them all."""
        await asyncio.gather(*map(self._publish, notices))

    async def _publish(self, notice: Notice) -> None:
        subject = f"{self._root}.{token_of(notice.queue)}"
        # no id: a stranger who sends an id before has the notice dropped as a duplicate
        await self._js.publish(subject, notice.body(), stream=self._stream)

    async def tell(self, topic: str, body: bytes) -> None:
        """Publish an event to watchers, on a subject that no stream keeps."""
        await self._client.publish(f"{self._workers}.{topic}", body)

    async def pull(self, free_slots: int, seconds: float) -> list[Delivery]:
        """Request messages from each consumer without a request; return those received, if any."""
        for each in self._pulls:
            await each.ask(free_slots, seconds)
        while True:
            self._news.clear()
            found = [message for each in self._pulls for message in each.take()]
            if found or not all(each.is_asked() for each in self._pulls):
                return found
            async with asyncio.timeout(SILENCE_SECONDS):
                await self._news.wait()

    async def rest(self) -> None:
        """Give back received and further messages; check that the server answers."""
        for each in self._pulls:
            await each.rest()
        await self._client.flush(CONNECT_SECONDS)

    async def wait_until_lost(self) -> None:
        """Return when the connection is lost."""
        await self._closed.wait()

    async def close(self) -> None:
        """Close, in any state."""
        try:
            with suppress(Exception):
                await self._client.close()
        finally:  # a close that is cancelled leaves the driver's socket open for good
            transport: Any = self._client._transport  # noqa: SLF001
            if transport is not None:
                transport.close()


class _Pull:
    """Requests for the messages of one consumer, one at a time. One stays at the server until its
    time is over or all its messages have come: the next wait continues it."""

    def __init__(self, client: NatsClient, stream: str, durable: str, news: asyncio.Event) -> None:
        self._client = client
        self._stream = stream
        self._durable = durable
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"
        self._news = news
        self._here: list[Delivery] = []
        self._left = 0  # messages that may still come for the current request
        self._heard_at = 0.0
        self._resting = False
        self._trouble: str | None = None

    async def open(self) -> None:
        """Subscribe to answers."""
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(self._inbox, cb=self._heard)

    def is_asked(self) -> bool:
        """Whether a request is under way. ConnectionError if the server is silent about it."""
        if self._trouble is not None:
            raise ConnectionError(f"the consumer {self._durable}: {self._trouble}")
        if self._left > 0 and _now() - self._heard_at > SILENCE_SECONDS:
            raise ConnectionError(f"the consumer {self._durable} shows no sign of life")
        return self._left > 0

    async def ask(self, free_slots: int, seconds: float) -> None:
        """Ask for messages, unless a request is under way."""
        self._resting = False
        if self.is_asked():
            return
        wish = {
            "batch": free_slots,
            "expires": int(seconds * _NANO),
            "idle_heartbeat": int(BEAT_SECONDS * _NANO),
        }
        self._left, self._heard_at = free_slots, _now()
        await self._client.publish(self._subject, json.dumps(wish).encode(), self._inbox)

    def take(self) -> list[Delivery]:
        """Return the messages that have come."""
        found, self._here = self._here, []
        return found

    async def rest(self) -> None:
        """Give back the messages that have come, and messages that come until the next request."""
        self._resting = True
        for message in self.take():
            await message.give_back()

    async def _heard(self, message: Msg) -> None:
        """Take a message of the stream, or a status, which names no subject to reply to. The
        headers of a message are its publisher's."""
        self._heard_at = _now()
        if not message.reply:
            self._heard_of_server(message.headers or {})
        elif self._has_sent(message):
            self._left -= 1
            await self._came(_make_delivery(message))
        self._news.set()

    def _has_sent(self, message: Msg) -> bool:
        """Whether the message comes from this consumer: other clients can write to the inbox, and a
        message is settled by writing to the subject that it names itself."""
        try:
            said = message.metadata
        except Exception:  # the message names another subject, or none
            return False
        return (said.stream, said.consumer) == (self._stream, self._durable)

    def _heard_of_server(self, headers: dict[str, str]) -> None:
        status = headers.get("Status", _LIFE)
        if status in _ENDS:
            self._left = 0
        elif status != _LIFE:
            self._trouble = f"{status} {headers.get('Description', '')}".strip()

    async def _came(self, message: Delivery) -> None:
        if self._resting:
            await message.give_back()
        else:
            self._here.append(message)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _make_delivery(message: Msg) -> Delivery:
    times = message.metadata.num_delivered or 1
    give_back = functools.partial(message.nak, BACK_SECONDS)
    return Delivery(bytes(message.data), times, message.ack, give_back)


def _wanted_consumer(durable: str, subject: str) -> ConsumerConfig:
    return ConsumerConfig(
        durable_name=durable,
        description="Outlast: workers of one queue, or of all",
        deliver_policy=DeliverPolicy.NEW,  # jobs that wait already are found in the store
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=2 * HOLD_SECONDS,
        max_deliver=DELIVERIES_MAX,
        max_ack_pending=10_000,
        filter_subject=subject,
        inactive_threshold=IDLE_CONSUMER_SECONDS,
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
