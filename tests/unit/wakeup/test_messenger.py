"""Messengers that send bad input or answer late or never, and drivers that swallow a cancellation:
none of it blocks the receiving loop, floods the log, or delays the end of a worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from outlast.base.throttle import TELL_SECONDS
from outlast.events import subscribe
from outlast.model.job import JobFacts
from outlast.model.lifecycle import Outcome, OutcomeKind, decide
from outlast.store import wakeup
from outlast.store.postgres.wakeup import PostgresWakeup
from outlast.store.values import ClaimRequest, RunBy, Unpublished, UnpublishedBatch, WorkerRef
from outlast.store.wakeup import BACKOFF_MAX_SECONDS
from outlast.wakeup import messenger
from outlast.wakeup.inbox import Inbox
from outlast.wakeup.messenger import (
    BATCH_MAX,
    DELIVERIES_MAX,
    LOOK_SECONDS,
    PUBLISH_SECONDS,
    Delivery,
    Messenger,
)
from outlast.wakeup.notice import NAME_MAX, Notice, can_carry
from outlast.worker.maintenance.announcer import RECLAIMED_MAX, Announcer
from tests.cases import each_case
from tests.manual_clock import ManualClock
from tests.unit.worker.stage_kit import NEW
from tests.unit.worker.worker_kit import lease_of

FREE_SLOTS = 20


class Message:
    """A message, which records how its delivery was settled."""

    def __init__(self, body: bytes, times: int = 1) -> None:
        self.fate: list[str] = []
        self.delivery = Delivery(body, times, self.ack, self.give_back)

    async def ack(self) -> None:
        self.fate.append("ack")

    async def give_back(self) -> None:
        self.fate.append("back")


def about(task: str, *, job_id: int = 1, times: int = 1) -> Message:
    notice = {"job_id": job_id, "task": task, "queue": "mail"}
    return Message(json.dumps(notice).encode(), times)


class Line:
    """A broker in memory."""

    def __init__(self) -> None:
        self.here: asyncio.Queue[list[Message]] = asyncio.Queue()
        self.opened = self.closed = 0

    async def open(self) -> None:
        self.opened += 1

    async def publish(self, notices: Sequence[Notice]) -> None: ...

    async def tell(self, topic: str, body: bytes) -> None: ...

    async def pull(self, free_slots: int, seconds: float) -> list[Delivery]:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return [each.delivery for each in await self.here.get()]
        return []

    async def rest(self) -> None: ...

    async def wait_until_lost(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.closed += 1


class Stage:
    """A messenger on a broker, and the worker that it serves: ``wakes`` counts its looks."""

    def __init__(self, broker: Any, clock: ManualClock) -> None:
        self.broker, self.clock = broker, clock
        self.inbox = Inbox()
        self.inbox.offer(FREE_SLOTS)
        self.messenger = Messenger(lambda: broker, "amqp", inbox=self.inbox, clock=clock)
        self.wakes = 0
        self.heard: set[str] = set()
        self.told: list[dict[str, Any]] = []

    def wake(self, payload: str) -> None:
        self.wakes += 1
        self.heard.add(payload)

    async def brings(self, *messages: Message) -> None:
        """Bring messages, and wait until the loop has dealt with those that it keeps none of."""
        self.broker.here.put_nowait(list(messages))
        await self.until(self.broker.here.empty)
        await turns()

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not done():
                await asyncio.sleep(0)


def known() -> list[str]:
    return ["known"]


async def turns() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


@asynccontextmanager
async def started(broker: Any) -> AsyncIterator[Stage]:
    stage = Stage(broker, ManualClock())
    unsubscribe = subscribe(
        lambda name, fields: stage.told.append(fields) if name == "notice_rejected" else None
    )
    stage.messenger.leave_others(known)
    await stage.messenger.start(stage.wake)
    try:
        await stage.until(lambda: stage.messenger.health.known)
        yield stage
    finally:
        unsubscribe()
        await stage.messenger.close()


async def test_a_notice_for_this_worker_does_not_wait_for_foreign_ones() -> None:
    async with started(Line()) as stage:
        strangers = [about("strange", times=2) for _ in range(5 * FREE_SLOTS)]
        known = about("known", job_id=7)
        await stage.brings(*strangers, known)
        assert [each.fate for each in strangers] == [["back"]] * len(strangers)
        names = stage.inbox.hand_over([ClaimRequest(tasks=["known"], limit=1)])  # the next exchange
        assert names == [7]
        assert stage.heard >= {"queue:mail", ""}, "a hint for the search, and a look in any case"
        stage.inbox.settle(answered=True)
        await stage.until(lambda: known.fate == ["ack"])


async def test_a_foreign_notice_is_returned_and_in_the_end_settled() -> None:
    async with started(Line()) as stage:
        *some, last = (about("strange", times=times) for times in range(1, DELIVERIES_MAX + 1))
        await stage.brings(*some, last)
        assert [each.fate for each in some] == [["back"]] * len(some)
        assert last.fate == ["ack"], "no worker takes it"


@each_case("message", [about("strange"), Message(b"forged")])
async def test_foreign_messages_make_the_worker_poll(
    message: Message,
) -> None:
    async with started(Line()) as stage:
        before = stage.wakes
        for _ in range(100):
            await stage.brings(message)
        assert stage.wakes == before + 1
        stage.clock.advance(LOOK_SECONDS)
        for _ in range(100):
            await stage.brings(message)
        assert stage.wakes == before + 2


async def test_forged_messages_are_reported_once_a_minute_with_their_number() -> None:
    async with started(Line()) as stage:
        for _ in range(50):
            await stage.brings(Message(b"forged"), Message(b"\xff"))
        assert [each["count"] for each in stage.told] == [1]
        stage.clock.advance(TELL_SECONDS - 0.1)
        await stage.brings(Message(b"forged"))
        assert len(stage.told) == 1
        stage.clock.advance(0.1)
        await stage.brings(Message(b"forged"))
        assert [each["count"] for each in stage.told] == [1, 101]
        assert stage.told[1]["kind"] == "amqp"


class Deaf(Line):
    """Its driver takes the first cancellation of one call for its own, as ``asyncio.wait_for`` of
    Python 3.11 does for one that comes with an answer, and goes on."""

    def __init__(self, verb: str) -> None:
        super().__init__()
        self.verb = verb
        self.inside = asyncio.Event()

    async def _swallow(self, verb: str) -> None:
        if verb == self.verb:
            self.inside.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    async def open(self) -> None:
        await super().open()
        await self._swallow("open")

    async def pull(self, free_slots: int, seconds: float) -> list[Delivery]:
        await self._swallow("pull")
        return await super().pull(free_slots, seconds)

    async def wait_until_lost(self) -> None:
        await self._swallow("lost")
        await super().wait_until_lost()

    async def close(self) -> None:
        await super().close()
        await self._swallow("close")


@pytest.mark.parametrize("verb", ["open", "pull", "lost", "close"])
async def test_a_driver_that_swallows_a_cancellation_does_not_block_the_end(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "END_SECONDS", 0.5)
    monkeypatch.setattr(messenger, "STOP_SECONDS", 0.01)
    broker = Deaf(verb)
    stage = Stage(broker, ManualClock())
    before = asyncio.all_tasks()
    stage.messenger.leave_others(known)
    await stage.messenger.start(stage.wake)
    if verb == "close":
        await stage.until(lambda: stage.messenger.health.good)
    else:
        await asyncio.wait_for(broker.inside.wait(), 30)
    await asyncio.wait_for(stage.messenger.close(), 30)
    assert broker.opened == broker.closed == 1
    await turns()
    assert asyncio.all_tasks() == before


class Renaming(Line):
    """Its driver raises an error of its own when it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = asyncio.Event()

    async def open(self) -> None:
        await super().open()
        self.inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("the channel was closed") from None


@pytest.mark.parametrize("broker", [Deaf("open"), Renaming()], ids=["swallows", "renames"])
async def test_an_end_does_not_wait_for_the_pause_before_the_next_connection(
    broker: Deaf | Renaming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "END_SECONDS", 300.0)  # before it is cancelled a second time
    stage = Stage(broker, ManualClock())
    await stage.messenger.start(stage.wake)
    await asyncio.wait_for(broker.inside.wait(), 30)
    await asyncio.wait_for(stage.messenger.close(), 60)
    assert broker.opened == broker.closed == 1


@pytest.mark.parametrize("error", [None, ConnectionError("the connection was lost")])
async def test_the_end_of_notify_does_not_wait_for_that_pause_either(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "END_SECONDS", 300.0)
    inside = asyncio.Event()

    class Listener(PostgresWakeup):
        async def _listen(self) -> None:
            inside.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            if error is not None:
                raise error

    listener = Listener("postgresql://nowhere/db", ManualClock())
    await listener.start()
    await asyncio.wait_for(inside.wait(), 30)
    await asyncio.wait_for(listener.close(), 60)


class Slow(Line):
    """Confirms each batch after ``seconds`` of the clock; ``published``: whose notices it has."""

    def __init__(self, clock: ManualClock, seconds: float) -> None:
        super().__init__()
        self.clock, self.seconds = clock, seconds
        self.published: list[int] = []

    async def publish(self, notices: Sequence[Notice]) -> None:
        self.clock.advance(self.seconds)
        self.published += [notice.job_id for notice in notices]


async def test_a_server_that_confirms_too_slowly_for_many_jobs_is_not_ill() -> None:
    """What it has not taken in time is left to the sweep, and no caller waits for it."""
    async with started(Line()) as stage:
        slow = Slow(stage.clock, PUBLISH_SECONDS / 2)
        stage.messenger._broker = slow
        notices = [Notice(job_id=number) for number in range(1, 10 * BATCH_MAX)]
        assert not await stage.messenger.announce(notices)
        assert slow.published == list(range(1, 2 * BATCH_MAX + 1))
        assert stage.messenger.health.good
        slow.seconds = 0.0
        assert await stage.messenger.announce(notices)
        assert stage.broker.opened == 1


@each_case("moment", range(8))
async def test_close_within_any_turn_of_the_start_ends_it(moment: int) -> None:
    broker = Line()
    stage = Stage(broker, ManualClock())
    before = asyncio.all_tasks()
    stage.messenger.leave_others(known)
    await stage.messenger.start(stage.wake)
    for _ in range(moment):
        await asyncio.sleep(0)
    await asyncio.wait_for(stage.messenger.close(), 30)
    assert broker.opened == broker.closed
    await turns()
    assert asyncio.all_tasks() == before


class Silent(Line):
    """Never answers one call: connected, but stuck."""

    def __init__(self, verb: str) -> None:
        super().__init__()
        setattr(self, verb, self._never)

    async def _never(self, *_: object) -> Any:
        await asyncio.Event().wait()


@pytest.mark.parametrize("verb", ["open", "rest", "pull", "tell"])
async def test_a_broker_that_stops_answering_is_dropped_and_workers_poll(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messenger, "ANSWER_SECONDS", 0.01)
    if verb in {"rest", "pull"}:  # otherwise a pull that is late by itself would do
        monkeypatch.setattr(messenger, "PULL_SECONDS", 0.01)
    async with started(Silent(verb)) as stage:
        if verb == "rest":
            stage.inbox.offer(0)
        stage.messenger.tell("heartbeat")
        await stage.until(lambda: stage.messenger.health.trouble is not None)
        assert stage.messenger.health.trouble == "TimeoutError: no answer in time"
        assert not stage.inbox.healthy


class Dropping(Line):
    """Takes each connection, and drops it at once."""

    async def wait_until_lost(self) -> None: ...


async def test_a_server_that_drops_connections_is_retried_ever_more_rarely() -> None:
    async with started(Dropping()) as stage:
        opened = []
        for _ in range(10):
            for _ in range(int(BACKOFF_MAX_SECONDS) + 1):
                stage.clock.advance(1.0)
                await turns()
            opened.append(stage.broker.opened)
        assert opened[-1] < 30
        assert sorted(set(opened)) == opened  # and never given up


def test_a_row_with_names_that_no_program_gives_is_not_announced() -> None:
    job = Unpublished(job_id=1, queue="q", task="t", token=0, seconds=1.0, position=1)
    longest = "x" * NAME_MAX
    assert can_carry(job)
    assert can_carry(Unpublished(1, longest, longest, 0, 1.0, 1))
    assert not can_carry(Unpublished(1, longest + "x", "t", 0, 1.0, 1))
    assert not can_carry(Unpublished(1, "q", longest + "x", 0, 1.0, 1))


# --------------------------------------------------- the announcer, while its messenger is away


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
    announcer = Announcer(messenger, store, NEW, lease_of(), poll=1.0, clock=clock)
    end = Outcome(kind=OutcomeKind.RELEASED, message="gone")
    back = decide(JobFacts(job_id=0, token=0), end, clock.random)
    ids = range(RECLAIMED_MAX + 5)
    announcer.note_reclaimed([msgspec.structs.replace(back, job_id=each) for each in ids])
    assert await announcer.run_once() == 1.0
    assert list(announcer._reclaimed) == list(range(5, RECLAIMED_MAX + 5))
