"""What holds with each messenger, on real servers."""

from __future__ import annotations

import logging
import random

import pytest

from harness.nats_server import NatsServer
from harness.proxy import proxied
from harness.rabbit_server import RabbitServer
from tests.messengers.kit import (
    DEADLINE,
    GROWTH_MAX,
    GROWTH_OF_CONNECTION_MAX,
    Shop,
    asked_to_close_at_random,
    growth_per_connection,
    growth_per_message,
    inbox_of,
)

POLL = 0.2
RABBIT = pytest.param(
    "rabbit",
    marks=[pytest.mark.rabbitmq, pytest.mark.xdist_group("rabbitmq"), pytest.mark.timeout(600)],
)


@pytest.fixture(params=["nats_server", RABBIT])
def server(request: pytest.FixtureRequest) -> NatsServer | RabbitServer:
    found: NatsServer | RabbitServer = request.getfixturevalue(request.param)
    return found


async def test_a_full_worker_takes_no_messages(
    pg_url: str, server: NatsServer | RabbitServer
) -> None:
    async with Shop.opened(pg_url, server.url) as shop, shop.ready_worker(concurrency=1):
        await shop.held.enqueue()
        await shop.until(lambda: len(shop.ran) == 1, "a worker that is full")
        jobs = await shop.app.enqueue_many([shop.work.call(n) for n in range(3)])
        async with shop.ready_worker(concurrency=1):
            assert [await job.result(timeout=30) for job in jobs] == [0, 1, 2]
        shop.gate.set()


async def test_a_storm_of_cut_connections_loses_no_job_and_ends(
    pg_url: str, server: NatsServer | RabbitServer
) -> None:
    async with (
        proxied(f"{server.url}/") as (proxy, url),
        Shop.opened(pg_url, url if isinstance(server, RabbitServer) else url.rstrip("/")) as shop,
    ):
        async with shop.ready_worker(poll=POLL) as worker:
            for number in range(30):
                await shop.work.enqueue(number)
                await proxy.cut()
            await shop.completed(30)
            await shop.until(lambda: inbox_of(worker).healthy, "the storm to be over")
            assert await (await shop.work.enqueue(7)).result(timeout=DEADLINE) == 7
        assert set(shop.ran.values()) == {1}


@pytest.mark.slow
async def test_memory_does_not_grow_with_the_messages(server: NatsServer | RabbitServer) -> None:
    assert await growth_per_message(server.url) < GROWTH_MAX


@pytest.mark.slow
async def test_memory_does_not_grow_with_the_connections(
    server: NatsServer | RabbitServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "aiormq")  # pytest keeps what is logged, and its tracebacks
    assert await growth_per_connection(f"{server.url}/") < GROWTH_OF_CONNECTION_MAX


async def test_a_messenger_can_be_closed_at_any_moment(server: NatsServer | RabbitServer) -> None:
    seed = random.randrange(2**32)
    await asked_to_close_at_random(server.url, times=20, span=0.05, seed=seed)
