"""A small TCP server of a test's own, which leaves no socket open when it stops."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_STEPS_OF_AN_ARRIVAL = 3  # of the event loop, from the accepted socket to `_admit`


class TcpServer:
    """Serves each connection in a task of its own, on a free port while it is started.

    It knows a connection before its task runs: one that arrives as the server stops is closed too.
    """

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._links: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, host: str = "127.0.0.1", context: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._admit, host, 0, ssl=context)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        for listening in self._server.sockets:  # it loses what arrives while it is closed
            asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(_STEPS_OF_AN_ARRIVAL):
            await asyncio.sleep(0)
        self._server.close()
        await self.cut()

    async def cut(self) -> None:
        """Break every connection that exists now."""
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def serve() -> None:
            await self._serve(reader, writer)

        def dismiss(link: asyncio.Task[None]) -> None:
            self._links.discard(link)
            writer.transport.abort()

        link = asyncio.get_running_loop().create_task(serve())
        self._links.add(link)
        link.add_done_callback(dismiss)


@contextlib.asynccontextmanager
async def serving(
    serve: Serve, host: str = "127.0.0.1", context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve while the block runs; give the port."""
    server = TcpServer(serve)
    await server.start(host, context)
    try:
        yield server.port
    finally:
        await server.stop()
