"""The tests' own servers leave no socket open: it would fail whichever test runs next."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import warnings

import pytest

from harness.proxy import Proxy
from harness.tcp import TcpServer


async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.read())


@pytest.mark.parametrize("kind", ["server", "proxy"])
def test_a_connection_that_arrives_as_the_server_stops_is_closed(kind: str) -> None:
    async def connect_and_stop(target: int, steps: int) -> None:
        """Begin to stop some steps of the event loop after it has arrived, or before."""
        server = TcpServer(talk) if kind == "server" else Proxy("127.0.0.1", target)
        await server.start()
        with socket.socket() as client:
            client.connect(("127.0.0.1", server.port)) if steps <= 0 else None
            for _ in range(-steps):
                await asyncio.sleep(0)
            stopping = asyncio.create_task(server.stop())
            for _ in range(steps):
                await asyncio.sleep(0)
            with contextlib.suppress(ConnectionRefusedError):
                client.connect(("127.0.0.1", server.port)) if steps > 0 else None
            await stopping

    with (
        warnings.catch_warnings(record=True) as warned,
        socket.create_server(("127.0.0.1", 0)) as target,
    ):
        warnings.simplefilter("always")
        for steps in range(-5, 6):
            asyncio.run(connect_and_stop(target.getsockname()[1], steps))
        gc.collect()  # for all of them: it takes a quarter of a second
    assert not [each.message for each in warned]
