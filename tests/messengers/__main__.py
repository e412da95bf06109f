"""Memory of messengers over as many messages and connections as wanted, on servers of its own:
``python -m tests.messengers --messages 200000 --connections 2000``."""

from __future__ import annotations

import argparse
import asyncio

import psutil

from harness import rabbit_server
from harness.nats_server import NatsServer
from harness.rabbit_server import RabbitServer
from tests.messengers.kit import growth_per_connection, growth_per_message

BATCH = 200
MIB = 1024 * 1024


async def measure(name: str, url: str, messages: int, connections: int) -> None:
    """Print what is left of each message and of each connection."""
    process = psutil.Process()
    before = process.memory_info().rss
    per_message = await growth_per_message(url, rounds=messages // BATCH, size=BATCH)
    between = process.memory_info().rss
    per_connection = await growth_per_connection(f"{url}/", times=connections)
    after = process.memory_info().rss
    print(f"{name}: {messages} messages: {per_message:.3f} objects left of each,", end=" ")
    print(f"{(between - before) / MIB:.1f} MiB more")
    print(f"{name}: {connections} connections: {per_connection:.2f} objects left of each,", end=" ")
    print(f"{(after - between) / MIB:.1f} MiB more", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=9_000)
    parser.add_argument("--connections", type=int, default=90)
    given = parser.parse_args()
    with NatsServer() as nats:
        asyncio.run(measure("NATS", nats.url, given.messages, given.connections))
    if why := rabbit_server.missing():
        print(why)
        return
    with RabbitServer() as rabbit:
        asyncio.run(measure("RabbitMQ", rabbit.url, given.messages, given.connections))


if __name__ == "__main__":
    main()
