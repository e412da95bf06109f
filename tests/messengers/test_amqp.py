"""RabbitMQ as wake-up, on a real server: the same contract as NATS, by the same mechanism."""

from __future__ import annotations

import asyncio
import json
import random

import aio_pika
import pytest
from aio_pika.abc import ExchangeType

from harness.certificates import Authority
from harness.rabbit_server import RabbitServer
from harness.servers import free_port
from outlast.store.values import NewJob
from outlast.wakeup.amqp import AmqpBroker
from outlast.wakeup.kinds import parse
from tests.conformance.kit import Hands
from tests.messengers.kit import Shop, inbox_of, row_says, sweep
from tests.messengers.rabbit_kit import POLL, all_settled, channel

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.xdist_group("rabbitmq"),  # one node for all of them
    pytest.mark.timeout(600),  # it takes long to start
]


async def test_messages_bring_jobs_to_idle_workers(shop: Shop, rabbit: RabbitServer) -> None:
    async with shop.ready_worker(concurrency=5), shop.ready_worker(concurrency=5):
        job = await shop.work.enqueue(7)
        assert await job.result(timeout=30) == 7
        await shop.app.enqueue_many([shop.work.call(number) for number in range(200)])
        await shop.completed(201)
        await all_settled(shop, rabbit)
    assert set(shop.ran.values()) == {1}


async def test_bad_stale_and_duplicate_messages_are_harmless(
    shop: Shop, rabbit: RabbitServer
) -> None:
    async with shop.ready_worker(), shop.ready_worker():
        jobs = await shop.app.enqueue_many([shop.work.call(number) for number in range(50)])
        ids = [job.id for job in jobs]
        bad = [b"", b"not json", b'{"job_id": 0}', b"\xff", b"x" * 500_000, b'{"job_id": 99999}']
        async with channel(rabbit) as own:
            exchange = await own.get_exchange(f"outlast.{await shop.store.store_id()}.jobs")
            for _ in range(10):
                named = (json.dumps({"job_id": random.choice(ids)}).encode() for _ in range(100))
                bodies = [*bad, *named]
                await asyncio.gather(
                    *(exchange.publish(aio_pika.Message(body), "default") for body in bodies)
                )
        await shop.completed(50)
        await all_settled(shop, rabbit)
        assert shop.events("notice_rejected")
    assert len(shop.ran) == 50
    assert set(shop.ran.values()) == {1}


async def test_a_sweep_announces_unpublished_jobs(shop: Shop) -> None:
    async with shop.ready_worker(queues=["odd.*#name"]) as worker:
        await shop.store.enqueue([NewJob(task="work", args="{}", queue="odd.*#name")])

        async def done() -> bool:
            await sweep(worker)
            return len(shop.ran) == 1

        await shop.until_async(done, "the unpublished job")


async def test_watchers_receive_heartbeats_deactivations_and_ends(
    shop: Shop, rabbit: RabbitServer
) -> None:
    """The mission's row B7: a monitor that watches live."""
    heard: list[tuple[str | None, dict[str, object]]] = []

    async def note(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        heard.append((message.routing_key, json.loads(message.body)))

    async with channel(rabbit) as own:
        name = f"outlast.{await shop.store.store_id()}.workers"
        exchange = await own.declare_exchange(name, ExchangeType.TOPIC, durable=True)
        watching = await own.declare_queue(exclusive=True)
        await watching.bind(exchange, "#")
        await watching.consume(note, no_ack=True)
        async with shop.ready_worker(heartbeat=0.2):
            hands = await Hands.on(shop.store, "dead", heartbeat=0.125, lease=0.5)
            await shop.until(
                lambda: {"heartbeat", "deactivated"} <= {topic for topic, _ in heard}, "both"
            )
        await shop.until(lambda: "stopped" in {topic for topic, _ in heard}, "the end")
    gone = next(body for topic, body in heard if topic == "deactivated")
    assert (gone["worker"], gone["worker_id"]) == ("dead", hands.me.worker_id)
    beat = next(body for topic, body in heard if topic == "heartbeat")
    assert beat["status"] == "active"
    assert beat["running"] == 0


async def test_wrong_credentials_and_a_queue_of_another_kind_are_reported(
    pg_url: str, rabbit: RabbitServer
) -> None:
    wrong = rabbit.url.replace("guest:guest", "guest:wrong")
    for url, said in (
        (wrong, "refused using authentication"),
        (f"{rabbit.url}/missing", "refuses the virtual host 'missing': create it"),
    ):
        async with Shop.opened(pg_url, url) as shop, shop.worker(poll=POLL):
            await row_says(shop, said)
            assert await (await shop.work.enqueue(1)).result(timeout=30) == 1
    async with Shop.opened(pg_url, f"{rabbit.url}/?max_age=60") as shop, channel(rabbit) as own:
        name = f"outlast.{await shop.store.store_id()}.all"
        await own.declare_queue(name, durable=True)  # a classic one
        async with shop.worker(poll=POLL):
            await row_says(shop, "inequivalent arg")
            assert await (await shop.work.enqueue(1)).result(timeout=30) == 1


async def test_tls_with_client_certificates_and_failover_of_servers(
    pg_url: str, rabbit: RabbitServer, authority: Authority
) -> None:
    gone = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    place = f"amqps://guest:guest@{gone},127.0.0.1:{rabbit.tls_port}/"
    trust = f"tls_ca={authority.cert}"
    mine = "tls_cert={}&tls_key={}".format(*authority.sign("client"))
    async with Shop.opened(pg_url, f"{place}?{trust}&{mine}") as shop, shop.ready_worker():
        assert await (await shop.work.enqueue(3)).result(timeout=30) == 3
    one = f"amqps://127.0.0.1:{rabbit.tls_port}"
    refused = "(?i)certificate|closed|reset"  # as the server's alert or its reset is first
    for query, said in ((mine, "CERTIFICATE_VERIFY_FAILED"), (trust, refused)):
        broker = AmqpBroker(parse(f"{one}?{query}"), "any", None)
        with pytest.raises(OSError, match=said):
            await broker.open()
        await broker.close()


async def test_a_queue_that_is_deleted_and_a_server_that_comes_back_empty(
    shop: Shop, rabbit: RabbitServer
) -> None:
    name = f"outlast.{await shop.store.store_id()}.all"
    async with shop.ready_worker(poll=POLL) as worker:
        async with channel(rabbit) as own:
            await own.queue_delete(name)
        await shop.until(lambda: bool(shop.events("wakeup_lost")), "the loss to be noticed")
        await shop.until(lambda: inbox_of(worker).healthy, "a queue that is back")
        assert await (await shop.work.enqueue(1)).result(timeout=30) == 1
        rabbit.kill(wipe=True)
        jobs = [await shop.work.enqueue(number) for number in range(3)]
        assert [await job.result(timeout=30) for job in jobs] == [0, 1, 2]
        await row_says(shop, "amqp: ")
        await asyncio.to_thread(rabbit.start)
        await shop.until(lambda: inbox_of(worker).healthy, "a server that is back")
        assert await (await shop.work.enqueue(5)).result(timeout=30) == 5
        async with channel(rabbit) as own:
            await own.declare_queue(name, passive=True)  # recreated
