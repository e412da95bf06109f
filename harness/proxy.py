"""A TCP proxy between a worker and its database, which can be cut, held and slowed down."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

from harness.tcp import TcpServer


class Proxy(TcpServer):
    """Passes bytes on, until it is told not to.

    ``on_asked`` is called for each message to the server, before it is passed on.
    """

    def __init__(self, host: str, port: int) -> None:
        super().__init__(self._link)
        self._target = (host, port)
        self._open = asyncio.Event()
        self._open.set()
        self._admits = asyncio.Event()
        self._admits.set()
        self._read = asyncio.Event()
        self._read.set()
        self.bytes_per_second: float | None = None
        self.on_asked: Callable[[], None] = lambda: None

    def lead_to(self, host: str, port: int) -> None:
        """Let new connections go there; those that exist stay."""
        self._target = (host, port)

    def admit_none(self) -> None:
        """Accept connections and say nothing; those that exist go on."""
        self._admits.clear()

    def hold(self) -> None:
        """Pass nothing on, in either direction, and accept no connection: a black hole."""
        self._open.clear()

    def stop_reading(self) -> None:
        """Take no more from the server: it waits in the middle of a reply that is large enough."""
        self._read.clear()

    def release(self) -> None:
        """Pass on what was held."""
        self._open.set()
        self._admits.set()
        self._read.set()

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._open.wait()
        await self._admits.wait()
        with contextlib.suppress(OSError, ExceptionGroup):
            from_server, to_server = await asyncio.open_connection(*self._target)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pass(reader, to_server, self._open, asks=True))
                    both.create_task(self._pass(from_server, writer, self._read))
            finally:
                to_server.transport.abort()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        may_read: asyncio.Event,
        *,
        asks: bool = False,
    ) -> None:
        await may_read.wait()
        while data := await reader.read(65536):
            await self._open.wait()
            if asks:
                self.on_asked()
            if self.bytes_per_second is not None:
                await asyncio.sleep(len(data) / self.bytes_per_second)
            writer.write(data)
            await writer.drain()
            await may_read.wait()
        raise ConnectionResetError


@contextlib.asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """Open a proxy in front of the server of ``url``; give it and the url through it."""
    parts = urlsplit(url)
    proxy = Proxy(parts.hostname or "127.0.0.1", parts.port or 5432)
    await proxy.start()
    try:
        yield proxy, url.replace(f":{parts.port}/", f":{proxy.port}/")
    finally:
        await proxy.stop()
