"""What the tests of messengers share: an application, its workers, and their events."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import nats
from nats.js import JetStreamContext

import outlast
from harness.proxy import proxied
from outlast.base.clock import SystemClock
from outlast.events import subscribe
from outlast.insight.verify import verify
from outlast.model.job import State
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import ClaimRequest
from outlast.wakeup import open_messenger
from outlast.wakeup.inbox import Inbox
from outlast.wakeup.notice import Notice
from outlast.worker.worker import Worker

DEADLINE = 60.0
FAR = 2**63 - 1
NEVER = 3_600.0  # seconds between two looks: all that is found was found by a message


GROWTH_MAX = 0.5  # objects for each message: one that is kept is at least one
GROWTH_OF_CONNECTION_MAX = 100.0  # objects: timers stand for a while; a connection is hundreds


class Hasty(SystemClock):
    """Does not wait between two connections."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(min(seconds, 0.001))


class Shop:
    """One application; ``ran`` counts the starts of each job."""

    def __init__(self, url: str, wakeup: str, store: PostgresStore) -> None:
        self.url, self.wakeup, self.store = url, wakeup, store
        self.app = outlast.App(url, wakeup=wakeup)
        self.ran: Counter[int] = Counter()
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.gate = asyncio.Event()

        @self.app.task
        async def work(value: int = 0) -> int:
            self.ran[outlast.current().job_id] += 1
            return value

        @self.app.task
        async def held() -> None:
            self.ran[outlast.current().job_id] += 1
            await self.gate.wait()

        self.work, self.held = work, held

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, url: str, wakeup: str) -> AsyncIterator[Shop]:
        store = PostgresStore(url, connections=2, notify=False)
        await store.open()
        shop = cls(url, wakeup, store)
        unsubscribe = subscribe(lambda name, fields: shop.told.append((name, fields)))
        try:
            yield shop
            checked = await verify(store.inspector)
            assert not checked.violations
        finally:
            unsubscribe()
            await shop.app.close()
            await store.close()

    @contextlib.asynccontextmanager
    async def worker(
        self, app: outlast.App | None = None, **settings: Any
    ) -> AsyncIterator[Worker]:
        """A worker that practically never polls, once its messenger is ready."""
        chosen = {"poll": NEVER, "drain_timeout": 1.0, "presence": False} | settings
        async with (app or self.app).worker(**chosen) as worker:
            yield worker

    @contextlib.asynccontextmanager
    async def ready_worker(self, **settings: Any) -> AsyncIterator[Worker]:
        async with self.worker(**settings) as worker:
            await self.until(lambda: is_at_ease(worker), "a worker that waits for messages")
            yield worker

    async def stream(self) -> str:
        return f"OUTLAST_{await self.store.store_id()}"

    async def subject(self, queue: str = "default") -> str:
        return f"outlast.{await self.store.store_id()}.jobs.{queue}"

    async def completed(self, count: int) -> None:
        """Wait until this number of jobs has been completed."""
        await self.until_async(lambda: self.has_completed(count), f"{count} completed jobs")

    async def has_completed(self, count: int) -> bool:
        counts = await self.store.inspector.counts()
        return sum(counts[each] for each in counts if each[1] is State.COMPLETED) >= count

    async def until(self, done: Callable[[], bool], what: str) -> None:
        async def there() -> bool:
            return done()

        await self.until_async(there, what)

    async def until_async(self, done: Callable[[], Awaitable[bool]], what: str) -> None:
        end = time.monotonic() + DEADLINE
        while not await done():
            assert time.monotonic() < end, f"waited {DEADLINE:g} s for {what}: {self.told[-20:]}"
            await asyncio.sleep(0.02)

    def events(self, name: str) -> list[dict[str, Any]]:
        return [fields for told, fields in self.told if told == name]


def inbox_of(worker: Worker) -> Inbox:
    """Return the inbox that a worker with a messenger has."""
    inbox = worker._exchange._inbox
    assert inbox is not None
    return inbox


def is_at_ease(worker: Worker) -> bool:
    """Return whether it waits for messages, and has no other reason to look."""
    inbox = inbox_of(worker)
    return inbox.healthy and worker.plan.may_wait() and inbox.has_free_slots()


async def row_says(shop: Shop, words: str) -> None:
    async def told() -> bool:
        rows = [row for row in await shop.store.inspector.workers() if row.status == "active"]
        return any(words.lower() in f"{row.wakeup}$".lower() for row in rows)

    await shop.until_async(told, f"a row that says {words}")


async def sweep(worker: Worker) -> None:
    """Let the worker announce waiting jobs now."""
    assert worker._announcer is not None
    await worker._announcer.run_once()


@contextlib.asynccontextmanager
async def jetstream(url: str) -> AsyncIterator[JetStreamContext]:
    """A connection of the test's own."""
    client = await nats.connect(url)
    try:
        yield client.jetstream()
    finally:
        await client.close()


async def published(shop: Shop, url: str) -> list[dict[str, Any]]:
    """Return what the stream holds."""
    async with jetstream(url) as js:
        name = await shop.stream()
        state = (await js.stream_info(name)).state
        numbers = range(state.first_seq, state.last_seq + 1) if state.messages else ()
        bodies = [(await js.get_msg(name, number)).data for number in numbers]
        return [json.loads(body or b"null") for body in bodies]


async def asked_to_close_at_random(url: str, *, times: int, span: float, seed: int) -> None:
    """Start messengers and ask each to close within ``span`` seconds: each does, and leaves no task
    behind."""
    print(f"seed {seed}")
    dice = random.Random(seed)
    before = asyncio.all_tasks()
    for number in range(times):
        queues = dice.choice([None, [], ["one", "two"]])
        messenger = open_messenger(url, "postgresql:", f"closed{number % 3}", queues=queues)
        if messenger.inbox is not None:
            messenger.inbox.offer(dice.choice([0, 5]))
        messenger.tell("heartbeat")
        await messenger.start()
        await asyncio.sleep(dice.random() ** 2 * span)
        await asyncio.wait_for(messenger.close(), DEADLINE)
    await all_end(before)


async def all_end(before: set[asyncio.Task[Any]]) -> None:
    """Wait until there are no tasks but ``before``."""
    end = time.monotonic() + DEADLINE
    while left := asyncio.all_tasks() - before:
        assert time.monotonic() < end, left
        await asyncio.sleep(0.02)


async def growth_per_message(url: str, *, rounds: int = 45, size: int = 200) -> float:
    """Return how many objects are left of each message that was published and received: notices
    for this worker and for others."""
    worker = open_messenger(url, "postgresql:", "growing", queues=["growing"])
    client = open_messenger(url, "postgresql:", "growing")
    inbox = worker.inbox
    assert inbox is not None
    seen: set[int] = set()

    def exchange(_: str) -> None:
        seen.update(inbox.hand_over([ClaimRequest(tasks=["known"], limit=1)]))
        inbox.settle(answered=True)

    async def turn(number: int) -> None:
        wanted = range(number * size + 1, (number + 1) * size + 1)
        notices = [Notice(job_id=each, queue="growing", task="known") for each in wanted]
        strange = Notice(job_id=FAR - number, queue="growing", task="strange")
        async with asyncio.timeout(DEADLINE):
            while not await client.announce([*notices, strange]):  # a slow machine: connect again
                await asyncio.sleep(0.01)
            while not seen.issuperset(wanted):
                await asyncio.sleep(0.01)
        seen.clear()

    inbox.offer(50)
    try:
        worker.leave_others(lambda: ["known"])
        await worker.start(exchange)
        await worker._tried.wait()
        await client.start()
        for number in range(rounds // 3):
            await turn(number)
        before = _objects()
        for number in range(rounds // 3, rounds):
            await turn(number)
        return (_objects() - before) / (size * (rounds - rounds // 3))
    finally:
        await client.close()
        await worker.close()


async def growth_per_connection(url: str, *, times: int = 45) -> float:
    """Return how many objects are left of each connection that was cut: of a worker's messenger and
    of one that only publishes, which connect again and go on."""
    async with proxied(url) as (proxy, through):
        both = [
            open_messenger(through.rstrip("/"), "postgresql:", "cut", queues=queues, clock=Hasty())
            for queues in (["cut"], None)
        ]

        async def until_new(old: list[object]) -> list[object]:
            """Wait until each has another connection, and can use it; return these."""
            async with asyncio.timeout(DEADLINE):
                for each, before in zip(both, old, strict=True):
                    while each._broker in {None, before}:
                        await asyncio.sleep(0.001)
                    while not await each.announce([Notice(job_id=1)]):
                        await asyncio.sleep(0.001)
            return [each._broker for each in both]

        async def cut(count: int) -> int:
            connections = await until_new([None, None])
            for _ in range(count):
                await proxy.cut()
                connections = await until_new(connections)
            return _objects()

        try:
            for each in both:
                await each.start()
            before = await cut(times // 3)
            return (await cut(times) - before) / times
        finally:
            for each in both:
                await each.close()


def _objects() -> int:
    gc.collect()
    return sys.getallocatedblocks()
