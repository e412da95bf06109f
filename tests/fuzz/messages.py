"""The input of wake-ups: payloads of NOTIFY, and messages of NATS and RabbitMQ.

All that may publish, or NOTIFY, write bodies and headers; all on the same account of a NATS
server can also write to a worker's inbox, without a reply or with one of any kind.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
from hypothesis import strategies as st
from nats.aio.msg import Msg

from outlast.store.values import ClaimRequest
from outlast.wakeup.amqp import make_delivery
from outlast.wakeup.inbox import PASSED_MAX, Inbox
from outlast.wakeup.messenger import Delivery, Messenger
from outlast.wakeup.nats import _Pull
from outlast.wakeup.notice import BODY_MAX, Notice, read
from tests.fuzz.kit import BOMBS, INT64, SECONDS, Fuzzer, damaged, json_values
from tests.manual_clock import ManualClock
from tests.unit.worker.stage_kit import Stage
from tests.unit.worker.worker_kit import heard

odd_ids = st.integers(-5, 5) | st.integers(-(2**70), 2**70) | json_values
objects = st.fixed_dictionaries(
    {},
    optional={
        "job_id": st.integers(1, 9) | odd_ids,
        "queue": st.text(max_size=20) | json_values,
        "task": st.sampled_from(["known", "unknown"]) | json_values,
        "token": odd_ids,
        "cleared": st.booleans() | json_values,
        "clear_reason": st.text(max_size=20) | json_values,
        "repeat": odd_ids,
        "more": json_values,
    },
)


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return b"{}"


sound_bodies = st.builds(
    lambda job_id, queue: Notice(job_id=job_id, queue=queue, task="known").body(),
    st.integers(1, INT64 - 1),
    st.sampled_from(["default", "mail"]),
)
bodies = st.one_of(
    damaged(sound_bodies),
    damaged(st.builds(_json, objects)),
    st.binary(max_size=50),
    st.sampled_from([one.encode("utf-8", "replace") for one in BOMBS]),
    st.builds(lambda bomb: b'{"job_id":1,"more":' + bomb.encode() + b"}", st.sampled_from(BOMBS)),
    st.sampled_from([b"x" * (BODY_MAX + 1), b" " * BODY_MAX, b""]),
)

# --- NOTIFY

payloads = st.one_of(
    st.text(max_size=50),
    st.sampled_from(
        [
            "",
            "queue:default",
            "mail",
            "queue:",
            "jobs:7:1:mail",
            "jobs:7:500:",
            "jobs:::",
            "taken:7::7:9",
            "taken:7,8:kind:7:9",
            "taken:,:",
            "cancel:1",
            "drain:1",
            "cancel:",
            "drain:99",
            "cancel:x",
        ]
    ),
    st.builds(
        lambda kind, number: f"{kind}:{number}",
        st.sampled_from(["cancel", "drain", "queue", "jobs", "taken"]),
        odd_ids,
    ),
    st.sampled_from(BOMBS),
)


def a_worker_is_notified(told: list[str]) -> None:
    """At most the worker looks once more; a valid notice is still heard."""
    asyncio.run(_a_worker_is_notified(told))


async def _a_worker_is_notified(told: list[str]) -> None:
    stage = Stage("default", "mail")
    for each in told:
        stage.worker._take_wakeup(each)
    hints = []
    stage.worker.plan.hint = lambda *_: hints.append(1)  # type: ignore[method-assign]
    stage.worker._take_wakeup("queue:mail")
    stage.worker._take_wakeup("queue:elsewhere")
    assert hints == [1]


# --- NATS and RabbitMQ

replies = st.one_of(
    st.builds(
        lambda times, rest: f"$JS.ACK.S.q-default.{times}.{rest}",
        st.integers(1, 9),
        st.just("7.7.1700000000000000000.0"),
    ),
    st.sampled_from(["", "somewhere", "$JS.ACK", "$JS.ACK.a.b.c.d.e.f.g", "$JS.ACK." + "9." * 20]),
    damaged(st.just(b"$JS.ACK.S.q-default.1.7.7.1700000000000000000.0")).map(
        lambda one: one.decode("utf-8", "replace")
    ),
)
names = st.sampled_from(["Nats-Msg-Id", "Description", "x-delivery-count"]) | st.text(max_size=9)
headers = st.dictionaries(names, st.text(max_size=20), max_size=3)


class Sent(msgspec.Struct, frozen=True):
    """One message of a stranger's. ``status``: a header of that name, of a message that a stream
    has delivered."""

    body: bytes
    reply: str
    headers: dict[str, str] | None
    status: str | None
    count: Any


sent = st.builds(
    Sent,
    bodies,
    replies,
    st.none() | headers,
    st.none() | st.sampled_from(["100", "404", "408", "409", "503", "", "x" * 1_000]),
    st.integers(-9, 9) | json_values,
)

# an acknowledgement names a domain and an account where the server has a domain
OURS = re.compile(r"\$JS\.(API\.CONSUMER\.MSG\.NEXT|ACK(\.[^.]+\.[^.]+)?)\.S\.q-default(\.|$)")


class Wire:
    """The connection of a broker: keeps what is published, and passes on what arrives."""

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes]] = []
        self.hears: Callable[[Msg], Awaitable[None]]

    def new_inbox(self) -> str:
        """Return the inbox."""
        return "_INBOX.1"

    async def subscribe(self, subject: str, cb: Callable[[Msg], Awaitable[None]]) -> None:
        """Remember the listener."""
        self.hears = cb

    async def publish(self, subject: str, payload: bytes = b"", reply: str = "") -> None:
        """Keep it, unless a stranger chose the destination."""
        assert OURS.match(subject), f"{subject} is not of this consumer"
        self.published.append((subject, payload))


class Broker:
    """A broker for the messenger, with the real deliveries of both kinds."""

    def __init__(self, wanted: Sequence[Sent]) -> None:
        self._wanted = list(wanted)
        self._wire = Wire()
        self._news = asyncio.Event()
        self.all_taken = asyncio.Event()
        self.settled: list[str] = []

    async def open(self) -> None:
        """Be ready."""
        self._pull = _Pull(self._wire, "S", "q-default", self._news)  # type: ignore[arg-type]
        await self._pull.open()

    async def pull(self, free_slots: int, seconds: float) -> list[Delivery]:
        """Return all that strangers have sent, as both brokers would; then wait."""
        await self._pull.ask(free_slots, seconds)
        if not self._wanted:
            self.all_taken.set()
            await asyncio.Event().wait()
        wanted, self._wanted = self._wanted, []
        found: list[Delivery] = [make_delivery(self._amqp(each)) for each in wanted]
        for each in wanted:
            await self._wire.hears(self._nats(each))
        self._pull.is_asked()
        return [*found, *self._pull.take()]

    def _nats(self, one: Sent) -> Msg:
        headers = dict(one.headers or {})
        if one.reply and one.status is not None:
            headers["Status"] = one.status
        message = Msg(_client=self._wire, reply=one.reply, data=one.body)  # type: ignore[arg-type]
        message.headers = headers or None
        return message

    def _amqp(self, one: Sent) -> Any:
        async def settle(**_: Any) -> None:
            self.settled.append("amqp")

        table = None if one.headers is None else {**one.headers, "x-delivery-count": one.count}
        return SimpleNamespace(body=one.body, headers=table, ack=settle, nack=settle)

    async def publish(self, notices: Sequence[Notice]) -> None:
        """Do nothing."""

    async def tell(self, topic: str, body: bytes) -> None:
        """Do nothing."""

    async def rest(self) -> None:
        """Do nothing: a slot is free."""

    async def wait_until_lost(self) -> None:
        """Wait forever: the connection is not lost."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Do nothing."""


SOUND = Sent(
    Notice(job_id=4711, queue="default", task="known").body(),
    "$JS.ACK.S.q-default.1.7.7.1700000000000000000.0",
    None,
    None,
    0,
)


def a_messenger_receives(said: list[Sent]) -> None:
    """A bad message is dropped; the next is heard on the same connection."""
    for each in said:
        _is_a_notice_or_none(each.body)
    asyncio.run(_a_messenger_receives(said))


def _is_a_notice_or_none(body: bytes) -> None:
    try:
        notice = read(body)
    except ValueError:
        return
    assert 0 < notice.job_id < INT64
    assert len(notice.queue) <= 1_000
    assert len(notice.task) <= 1_000


async def _a_messenger_receives(said: list[Sent]) -> None:
    inbox, made = Inbox(), []

    def make() -> Any:
        made.append(Broker([*said, SOUND]))
        return made[-1]

    messenger = Messenger(make, "nats", inbox=inbox, clock=ManualClock())
    woken = asyncio.Event()
    inbox.offer(1_000)
    messenger.leave_others(lambda: ["known"])
    with heard() as events:
        await messenger.start(lambda _: woken.set())
        async with asyncio.timeout(SECONDS):
            names = await _asked(inbox, messenger)
            inbox.settle(answered=True)
            while messenger.health.good and not made[0].all_taken.is_set():
                await asyncio.sleep(0)
        trouble = messenger.health.trouble
        await messenger.close()
    assert (trouble, len(made)) == (None, 1), "the connection was given up"
    assert "wakeup_lost" not in events
    assert 4711 in names
    assert all(0 < name < INT64 for name in names)
    assert len(inbox.take_passed_over()) <= PASSED_MAX


async def _asked(inbox: Inbox, messenger: Messenger) -> list[int]:
    while True:
        names = inbox.hand_over([ClaimRequest(tasks=["known"], limit=10)])
        if names or messenger.health.trouble is not None:
            return names
        await asyncio.sleep(0)


FUZZERS = [
    Fuzzer("payloads of NOTIFY", st.lists(payloads, max_size=6), a_worker_is_notified, few=25),
    Fuzzer("messages", st.lists(sent, max_size=4), a_messenger_receives, few=60),
]
