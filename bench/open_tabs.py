"""Browsers with open pages, as light as possible: they run beside the worker that is measured.

    python -m bench.open_tabs PORT PATH TABS

Each tab asks for its page again every two seconds, as the script of a changing page does. Prints a
line once all pages are read. Ends when its input ends.
"""

from __future__ import annotations

import asyncio
import sys

LOOK_SECONDS = 2.0
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Tab:
    """An open page. ``fetched``: set once it has been read."""

    def __init__(self, port: int, path: str) -> None:
        self._port, self._path = port, path
        self._connection: Connection | None = None
        self._tag = b""
        self.fetched = asyncio.Event()

    async def follow(self) -> None:
        """Follow the page until it is cancelled."""
        while True:
            try:
                await self._fetch()
            except (OSError, asyncio.IncompleteReadError):
                self._connection = None
            await asyncio.sleep(LOOK_SECONDS)

    async def _fetch(self) -> None:
        """Ask for the page, on the same connection as before."""
        if self._connection is None:
            self._connection = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._connection
        known = b"if-none-match: " + self._tag + b"\r\n" if self._tag else b""
        request = f"GET {self._path} HTTP/1.1\r\nhost: localhost\r\n".encode()
        writer.write(request + known + b"\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        lines = (line.partition(b":") for line in head.splitlines())
        fields = {name.lower(): value.strip() for name, _, value in lines}
        await reader.readexactly(int(fields.get(b"content-length", 0)))
        self._tag = fields.get(b"etag", b"")
        self.fetched.set()


async def main() -> None:
    """Open the pages."""
    _, port, path, number = sys.argv
    tabs = [Tab(int(port), path) for _ in range(int(number))]
    following = [asyncio.ensure_future(tab.follow()) for tab in tabs]
    for tab in tabs:
        await tab.fetched.wait()
    print("all are open", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for one in following:
        one.cancel()
    await asyncio.gather(*following, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
