"""RabbitMQ under attack: strangers, poison, alarms, logins that change. Jobs are late at most."""

from __future__ import annotations

import asyncio
import json
import struct

import aio_pika
import aiormq
import pamqp.encode
import pytest

from harness.rabbit_server import RabbitServer
from outlast.wakeup import messenger, open_messenger
from tests.messengers.kit import DEADLINE, Shop, all_end, inbox_of, row_says
from tests.messengers.rabbit_kit import POLL, all_settled, channel

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.xdist_group("rabbitmq"),  # one node for all of them
    pytest.mark.timeout(600),  # it takes long to start
]


async def publish(shop: Shop, rabbit: RabbitServer, *messages: aio_pika.Message) -> None:
    """Publish as anyone with a login can."""
    async with channel(rabbit) as own:
        exchange = await own.get_exchange(f"outlast.{await shop.store.store_id()}.jobs")
        await asyncio.gather(*(exchange.publish(each, "default") for each in messages))


async def test_a_known_task_does_not_wait_behind_strangers(
    shop: Shop, rabbit: RabbitServer
) -> None:
    strange = [{"job_id": 10**9 + n, "queue": "default", "task": "strange"} for n in range(500)]
    bodies = (json.dumps(each).encode() for each in strange)
    async with shop.ready_worker():
        await publish(shop, rabbit, *(aio_pika.Message(body) for body in bodies))
        job = await shop.work.enqueue(7)
        assert await job.result(timeout=60) == 7
        await all_settled(shop, rabbit)  # and they are not redelivered forever


@pytest.mark.parametrize(
    ("setting", "short", "enough"),
    [("set_disk_free_limit", "1000000GB", "50MB"), ("set_vm_memory_high_watermark", "0", "0.4")],
    ids=["disk", "memory"],
)
async def test_a_blocked_server_delays_no_enqueue_and_no_worker(
    setting: str,
    short: str,
    enough: str,
    shop: Shop,
    rabbit: RabbitServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An alarm: it reads nothing more from connections that have published."""
    monkeypatch.setattr(messenger, "ANSWER_SECONDS", 4.0)
    async with shop.ready_worker(poll=POLL, heartbeat=0.2) as worker:
        assert await (await shop.work.enqueue(1)).result(timeout=30) == 1
        await asyncio.to_thread(rabbit.ctl, setting, short)
        try:
            jobs = [await shop.work.enqueue(number) for number in range(3)]
            assert [await job.result(timeout=30) for job in jobs] == [0, 1, 2]
            await row_says(shop, "accepts no messages")
            async with shop.worker(poll=POLL):  # comes and leaves meanwhile
                assert await (await shop.work.enqueue(4)).result(timeout=30) == 4
        finally:
            await asyncio.to_thread(rabbit.ctl, setting, enough)
        await shop.until(lambda: inbox_of(worker).healthy, "a server that takes messages")
        assert await (await shop.work.enqueue(5)).result(timeout=30) == 5


async def test_a_message_that_breaks_the_driver_stops_no_job(
    shop: Shop, rabbit: RabbitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(pamqp.encode.METHODS, "timestamp", lambda _: struct.pack(">Q", 2**63))
        async with shop.ready_worker(poll=POLL):
            await publish(shop, rabbit, aio_pika.Message(b"{}", timestamp=1))
            jobs = [await shop.work.enqueue(number) for number in range(3)]
            assert [await job.result(timeout=30) for job in jobs] == [0, 1, 2]
            await shop.until(lambda: bool(shop.events("wakeup_lost")), "the driver to break")
            assert await (await shop.work.enqueue(3)).result(timeout=30) == 3


async def test_a_login_that_is_changed_later_is_reported_and_jobs_run(
    shop: Shop, rabbit: RabbitServer
) -> None:
    async with shop.ready_worker(poll=POLL):
        await asyncio.to_thread(rabbit.ctl, "change_password", "guest", "another")
        try:
            await asyncio.to_thread(rabbit.ctl, "close_all_connections", "changed")
            await row_says(shop, "refused using authentication")
            assert await (await shop.work.enqueue(1)).result(timeout=30) == 1
        finally:
            await asyncio.to_thread(rabbit.ctl, "change_password", "guest", "guest")


async def test_a_dial_that_is_cancelled_in_its_last_step_leaves_no_connection(
    rabbit: RabbitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()
    ready = aiormq.Connection.ready

    async def be_ready_later(connection: aiormq.Connection) -> None:
        reached.set()
        await go_on.wait()
        await ready(connection)

    monkeypatch.setattr(aiormq.Connection, "ready", be_ready_later)
    before = asyncio.all_tasks()
    closing = open_messenger(rabbit.url, "postgresql:", "dialled", queues=[])
    await closing.start()
    await asyncio.wait_for(reached.wait(), DEADLINE)
    await asyncio.wait_for(closing.close(), DEADLINE)
    go_on.set()
    await all_end(before)
