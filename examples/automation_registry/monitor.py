"""A monitor that knows nothing of the store: it listens where workers tell of their life."""

import asyncio
import json
import threading
import time
from typing import Any

import aio_pika
from aio_pika.abc import AbstractIncomingMessage, ExchangeType


class Monitor:
    """Prints what it hears on the topic exchange, of heartbeats the first of each; keeps it all."""

    def __init__(self, broker: str, store_id: str) -> None:
        self.heard: list[dict[str, Any]] = []
        self._began = time.time()
        self._listens = threading.Event()
        watch = self._watch(broker, f"outlast.{store_id}.workers")
        self._thread = threading.Thread(target=asyncio.run, args=(watch,), daemon=True)
        self._thread.start()
        assert self._listens.wait(60), "RabbitMQ does not answer"

    async def _watch(self, broker: str, name: str) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with await aio_pika.connect(broker) as connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange(name, ExchangeType.TOPIC, durable=True)
            queue = await channel.declare_queue(exclusive=True)
            await queue.bind(exchange, "#")
            await queue.consume(self._note, no_ack=True)
            self._listens.set()
            await self._over.wait()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _note(self, message: AbstractIncomingMessage) -> None:
        told = json.loads(message.body)
        if told["event"] != "heartbeat" or not self.told("heartbeat", worker=told["worker"]):
            fields = {key: told[key] for key in told if key not in {"event", "host"}}
            print(f"  {time.time() - self._began:5.1f} s  {told['event']}  {fields}")
        self.heard.append({**told, "at": time.time()})

    def told(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        wanted = {"event": event, **fields}.items()
        return [each for each in list(self.heard) if wanted <= each.items()]
