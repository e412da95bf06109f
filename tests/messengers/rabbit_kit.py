"""What the tests of RabbitMQ share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aio_pika
from aio_pika.abc import AbstractChannel

from harness.rabbit_server import RabbitServer
from tests.messengers.kit import Shop

POLL = 0.2


@asynccontextmanager
async def channel(server: RabbitServer) -> AsyncIterator[AbstractChannel]:
    connection = await aio_pika.connect(server.url)
    try:
        yield await connection.channel()
    finally:
        await connection.close()


async def all_settled(shop: Shop, server: RabbitServer, queue: str = "all") -> None:
    """Wait until the queue is empty, and nothing of it is unacknowledged: deleting it says both."""
    name = f"outlast.{await shop.store.store_id()}.{queue}"
    async with channel(server) as own:

        async def empty() -> bool:
            declared = await own.declare_queue(name, passive=True)
            return declared.declaration_result.message_count == 0

        await shop.until_async(empty, "all messages to be acknowledged")
