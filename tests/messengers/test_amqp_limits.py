"""RabbitMQ at its limits, and changed by others: lost bindings and queues, bounds, many queues."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel

from harness.rabbit_server import RabbitServer
from outlast.wakeup import messenger, open_messenger
from outlast.wakeup.amqp import AmqpBroker
from outlast.wakeup.notice import Notice
from tests.messengers.kit import DEADLINE, Shop, inbox_of
from tests.messengers.rabbit_kit import POLL, all_settled, channel

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.xdist_group("rabbitmq"),  # one node for all of them
    pytest.mark.timeout(600),  # it takes long to start
]
QUEUES = 200


async def root(shop: Shop) -> str:
    return f"outlast.{await shop.store.store_id()}"


async def until_a_message_brings_a_job(shop: Shop, queue: str = "default") -> None:
    """Enqueue until a job runs on a worker that never polls."""

    async def ran() -> bool:
        await shop.work.using(queue=queue).enqueue(1)
        return bool(shop.ran)

    await shop.until_async(ran, "a message that brings a job")


async def delete_exchange(own: AbstractChannel, name: str) -> None:
    await own.exchange_delete(f"{name}.jobs")


async def unbind(own: AbstractChannel, name: str) -> None:
    queue = await own.get_queue(f"{name}.all")
    await queue.unbind(await own.get_exchange(f"{name}.jobs"), "#")


@pytest.mark.parametrize("harm", [delete_exchange, unbind])
async def test_a_binding_that_is_lost_under_load_is_recreated(
    harm: Callable[[AbstractChannel, str], Awaitable[None]], shop: Shop, rabbit: RabbitServer
) -> None:
    """The client that finds no exchange recreates it, and knows of no queue to bind to it."""
    async with shop.ready_worker(), channel(rabbit) as own:
        await harm(own, await root(shop))
        await until_a_message_brings_a_job(shop)


async def test_a_queue_that_is_deleted_beside_a_busy_one_delays_no_job(
    shop: Shop, rabbit: RabbitServer
) -> None:
    """A worker that a message about one queue wakes looks at all its queues."""
    async with shop.ready_worker(queues=["busy", "quiet"]), channel(rabbit) as own:
        exchange = await own.get_exchange(f"{await root(shop)}.jobs")

        async def keep_busy() -> None:
            while True:
                body = json.dumps({"job_id": 10**9, "queue": "busy"}).encode()
                await exchange.publish(aio_pika.Message(body), "busy")

        busy = asyncio.create_task(keep_busy())
        try:
            await own.queue_delete(f"{await root(shop)}.q-quiet")
            await until_a_message_brings_a_job(shop, "quiet")
        finally:
            busy.cancel()
            await asyncio.wait([busy])


async def test_a_consumer_of_others_that_takes_all_messages_delays_jobs_by_a_poll(
    shop: Shop, rabbit: RabbitServer
) -> None:
    async with shop.ready_worker(poll=POLL), channel(rabbit) as own:
        stolen = asyncio.Event()

        async def steal(_: aio_pika.abc.AbstractIncomingMessage) -> None:
            stolen.set()

        queue = await own.get_queue(f"{await root(shop)}.all")
        await queue.consume(steal, no_ack=True)
        jobs = [await shop.work.enqueue(number) for number in range(20)]
        assert [await job.result(timeout=DEADLINE) for job in jobs] == list(range(20))
        await asyncio.wait_for(stolen.wait(), DEADLINE)


async def test_a_queue_of_others_that_is_full_and_rejects_delays_jobs_by_a_poll(
    shop: Shop, rabbit: RabbitServer
) -> None:
    """One queue that rejects makes the server refuse each message of the exchange."""
    async with shop.ready_worker(poll=POLL) as worker, channel(rabbit) as own:
        limits: dict[str, Any] = {"x-max-length": 1, "x-overflow": "reject-publish"}
        full = await own.declare_queue(exclusive=True, arguments=limits)
        await full.bind(f"{await root(shop)}.jobs", "#")
        jobs = [await shop.work.enqueue(number) for number in range(20)]
        assert [await job.result(timeout=DEADLINE) for job in jobs] == list(range(20))
        await shop.until(lambda: bool(shop.events("wakeup_lost")), "the loss to be noticed")
        await full.delete(if_empty=False)
        await shop.until(lambda: inbox_of(worker).healthy, "a server that takes messages")
        assert await (await shop.work.enqueue(7)).result(timeout=DEADLINE) == 7


async def test_messages_that_pile_up_are_bounded_and_a_worker_drains_them(
    pg_url: str, rabbit: RabbitServer
) -> None:
    limit = 50
    async with Shop.opened(pg_url, f"{rabbit.url}?max_msgs={limit}") as shop:
        async with shop.ready_worker():
            pass  # it has made the queue
        await shop.app.enqueue_many([shop.work.call(number) for number in range(500)])
        async with channel(rabbit) as own:
            declared = await own.declare_queue(f"{await root(shop)}.all", passive=True)
            assert 0 < (declared.declaration_result.message_count or 0) <= limit
        async with shop.ready_worker():
            await shop.completed(500)
            await all_settled(shop, rabbit)


async def test_an_announcement_of_very_many_jobs_keeps_the_connection_healthy(
    rabbit: RabbitServer,
) -> None:
    client = open_messenger(rabbit.url, "postgresql:", "flooded")
    await client.start()
    try:
        assert await client.announce([Notice(job_id=1)])
        await client.announce([Notice(job_id=number) for number in range(1, 50_000)])
        assert client.health.good
        assert await client.announce([Notice(job_id=1)])
    finally:
        await client.close()


async def test_a_worker_of_many_queues_has_time_to_open_and_rest(
    rabbit: RabbitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server makes queues one by one: together they take longer than an answer may."""
    monkeypatch.setattr(messenger, "ANSWER_SECONDS", 1.0)
    names = [f"q{number}" for number in range(QUEUES)]
    worker = open_messenger(rabbit.url, "postgresql:", "many", queues=names)
    client = open_messenger(rabbit.url, "postgresql:", "many")
    assert worker.inbox is not None
    worker.inbox.offer(5)
    woken = asyncio.Event()
    try:
        await worker.start()
        async with asyncio.timeout(300):
            await worker._tried.wait()
        assert worker.health.good, worker.health
        await client.start()
        worker._on_wake = lambda _: woken.set()
        await client._tried.wait()
        async with asyncio.timeout(300):
            while not woken.is_set():  # the consumers come one by one, too
                await client.announce([Notice(job_id=7, queue=names[-1])])
        worker.inbox.offer(0)
        worker.inbox.refuse()
        broker = worker._broker
        assert isinstance(broker, AmqpBroker)
        async with asyncio.timeout(300):
            while broker._tags:
                await asyncio.sleep(0.02)
        assert worker.health.good, worker.health
    finally:
        await client.close()
        await worker.close()
        async with channel(rabbit) as own:
            for name in names:
                await own.queue_delete(f"outlast.many.q-{name}")
