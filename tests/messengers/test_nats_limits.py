"""NATS at its limits and in other hands: bounds, full storage, slow connections, many queues."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import nats
import pytest
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.js.api import DiscardPolicy, StorageType
from nats.js.errors import APIError

import outlast.wakeup.nats
from harness.nats_server import NatsServer
from harness.proxy import proxied
from outlast.wakeup import open_messenger
from outlast.wakeup.notice import Notice
from tests.chaos.disk import Disk, own_mounts
from tests.messengers.kit import DEADLINE, Shop, inbox_of, jetstream

POLL = 0.2
QUEUES = 1_000
PULLS = "$JS.API.CONSUMER.MSG.NEXT.>"


@pytest.fixture
def small_server(nats_can_start: None) -> Iterator[NatsServer]:
    """One that ends connections which leave 64 KiB unread."""
    with NatsServer("max_payload: 65536\nmax_pending: 65536") as server:
        yield server


@pytest.fixture
def tight_server(nats_can_start: None) -> Iterator[NatsServer]:
    """One that may write 4 MiB."""
    with NatsServer(max_file="4M", max_memory="4M") as server:
        yield server


@pytest.fixture
def own_disk(nats_can_start: None) -> Iterator[tuple[NatsServer, Disk]]:
    """One whose data are on a small disk."""
    if not own_mounts():
        pytest.skip("a disk that can be filled takes root, who may mount a tmpfs")
    server = NatsServer()
    (server.folder / "data").mkdir()
    disk = Disk(server.folder / "data", 8)
    try:
        with server:
            yield server, disk
    finally:
        disk.close()


async def jobs_run(shop: Shop, count: int) -> None:
    jobs = [await shop.work.enqueue(number) for number in range(count)]
    assert [await job.result(timeout=DEADLINE) for job in jobs] == list(range(count))


async def test_a_full_stream_that_rejects_delays_jobs_by_a_poll(
    shop: Shop, nats_server: NatsServer
) -> None:
    """Someone has made it: Outlast's own drops the oldest."""
    async with jetstream(nats_server.url) as js:
        name, subjects = await shop.stream(), [await shop.subject(">")]
        await js.add_stream(name=name, subjects=subjects, max_msgs=3, discard=DiscardPolicy.NEW)
        async with shop.ready_worker(poll=POLL) as worker:
            await jobs_run(shop, 20)
            assert (await js.stream_info(name)).state.messages == 3
            assert shop.events("wakeup_lost")
            await js.purge_stream(name)
            await shop.until(lambda: inbox_of(worker).healthy, "a stream that takes more")
            await jobs_run(shop, 2)


@pytest.mark.slow_but("file")
@pytest.mark.parametrize("storage", StorageType)
async def test_a_server_whose_storage_is_full_delays_jobs_by_a_poll(
    pg_url: str, tight_server: NatsServer, storage: StorageType
) -> None:
    """It may write no more than it has been told."""
    async with (
        Shop.opened(pg_url, f"{tight_server.url}?storage={storage.value}") as shop,
        jetstream(tight_server.url) as js,
        shop.ready_worker(poll=POLL, heartbeat=0.2) as worker,
    ):
        await js.add_stream(name="FULL", subjects=["full"], storage=storage)
        for size in (500_000, 1_000):
            with contextlib.suppress(APIError):
                while True:
                    await js.publish("full", b"x" * size)
        await jobs_run(shop, 20)
        await shop.until(lambda: bool(shop.events("wakeup_lost")), "the loss to be told")
        assert "insufficient" in shop.events("wakeup_lost")[0]["error"]
        async with shop.worker(poll=POLL):  # comes and leaves meanwhile
            await jobs_run(shop, 2)
        await js.delete_stream("FULL")
        await shop.until(lambda: inbox_of(worker).healthy, "a server with room")
        await jobs_run(shop, 2)


@pytest.mark.slow
async def test_a_server_whose_disk_is_full_delays_jobs_by_a_poll(
    pg_url: str, own_disk: tuple[NatsServer, Disk]
) -> None:
    """It believes that there is room, and then cannot write."""
    server, disk = own_disk
    async with (
        Shop.opened(pg_url, server.url) as shop,
        shop.ready_worker(poll=POLL, heartbeat=0.2) as worker,
    ):
        await jobs_run(shop, 2)
        disk.fill()
        while not shop.events("wakeup_lost"):
            await jobs_run(shop, 20)
        async with shop.worker(poll=POLL):  # comes and leaves meanwhile
            await jobs_run(shop, 2)
        disk.free()
        server.kill()  # once its disk was full it takes no message until it is started again
        server.start()
        await shop.until(lambda: inbox_of(worker).healthy, "a server with room")
        await jobs_run(shop, 2)


async def test_a_client_that_takes_all_messages_delays_jobs_by_a_poll(
    shop: Shop, nats_server: NatsServer
) -> None:
    async with shop.ready_worker(poll=POLL), jetstream(nats_server.url) as js:
        thief = await js.pull_subscribe_bind("all", await shop.stream())
        stolen = asyncio.Event()

        async def steal() -> None:
            while True:
                with contextlib.suppress(TimeoutError):
                    for message in await thief.fetch(100, timeout=5):
                        await message.ack()
                        stolen.set()

        stealing = asyncio.create_task(steal())
        try:
            while not stolen.is_set():
                await jobs_run(shop, 10)
        finally:
            stealing.cancel()
            await asyncio.wait([stealing])


async def test_a_connection_that_the_server_ends_as_too_slow_is_made_again(
    pg_url: str, small_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlast.wakeup.nats, "SILENCE_SECONDS", 300.0)  # the server is to act first
    async with (
        proxied(f"{small_server.url}/") as (proxy, url),
        Shop.opened(pg_url, url.rstrip("/")) as shop,
        watching(small_server) as (stranger, requests),
        shop.ready_worker(poll=POLL) as worker,
    ):
        request = await requests.next_msg(timeout=DEADLINE)
        proxy.stop_reading()

        async def is_too_slow() -> bool:
            for _ in range(100):
                await stranger.publish(request.reply, b"x" * 60_000)
            await stranger.flush()
            told = await asyncio.to_thread(small_server.ask, "varz")
            return bool(told["slow_consumers"])

        await shop.until_async(is_too_slow, "the server to end the connection")
        await jobs_run(shop, 5)
        proxy.release()
        await shop.until(lambda: bool(shop.events("wakeup_lost")), "the loss to be noticed")
        await shop.until(lambda: inbox_of(worker).healthy, "another connection")
        await jobs_run(shop, 1)


@contextlib.asynccontextmanager
async def watching(server: NatsServer) -> AsyncIterator[tuple[Client, Subscription]]:
    """A client of others that sees where workers want their messages."""
    stranger = await nats.connect(server.url)
    try:
        yield stranger, await stranger.subscribe(PULLS)
    finally:
        await stranger.close()


async def test_messages_that_pile_up_are_bounded_and_a_worker_drains_them(
    pg_url: str, nats_server: NatsServer
) -> None:
    most = 50
    async with (
        Shop.opened(pg_url, f"{nats_server.url}?max_msgs={most}") as shop,
        jetstream(nats_server.url) as js,
    ):
        async with shop.ready_worker():
            pass  # it has made stream and consumer
        await shop.app.enqueue_many([shop.work.call(number) for number in range(500)])
        info = await js.consumer_info(await shop.stream(), "all")
        assert 0 < (info.num_pending or 0) <= most
        assert info.config.inactive_threshold  # and a consumer that is not used is forgotten
        async with shop.ready_worker():
            await shop.completed(500)

            async def drained() -> bool:
                info = await js.consumer_info(await shop.stream(), "all")
                return not info.num_pending and not info.num_ack_pending

            await shop.until_async(drained, "a consumer that is drained")


@pytest.mark.slow
async def test_a_worker_of_a_thousand_queues_opens_and_is_woken(nats_server: NatsServer) -> None:
    names = [f"q{number}" for number in range(QUEUES)]
    worker = open_messenger(nats_server.url, "postgresql:", "many", queues=names)
    client = open_messenger(nats_server.url, "postgresql:", "many")
    assert worker.inbox is not None
    worker.inbox.offer(5)
    try:
        await worker.start()
        async with asyncio.timeout(300):
            await worker._tried.wait()
        assert worker.health.good, worker.health
        await client.start()
        woken = asyncio.Event()
        worker._on_wake = lambda _: woken.set()
        assert await client.announce([Notice(job_id=7, queue=names[-1])])
        await asyncio.wait_for(woken.wait(), DEADLINE)
        assert worker.health.good, worker.health
    finally:
        worker.inbox.refuse()
        await client.close()
        await worker.close()
        async with jetstream(nats_server.url) as js:
            await js.delete_stream("OUTLAST_many")
