"""Browsers with open pages, as light as possible: they run beside what they are to leave alone.

    python -m bench.open_tabs PORT PATH TOPICS TABS

Each tab waits for hints, and asks for its page again at each. Prints a line once each has its page.
Ends when its input does.
"""

from __future__ import annotations

import asyncio
import sys

RETRY_SECONDS = 1.0  # as the page's streams ask for
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Tab:
    """An open page. ``fetched``: whether it has been there."""

    def __init__(self, port: int, path: str, topics: str) -> None:
        self._port, self._path = port, path
        self._events = f"/events?topics={topics.replace(' ', '%20')}"
        self._fetcher: Connection | None = None
        self._tag = b""
        self.fetched = asyncio.Event()

    async def follow(self) -> None:
        """Follow the page until it is cancelled."""
        while True:
            try:
                await self._listen()
            except (OSError, asyncio.IncompleteReadError):
                self._fetcher = None
            await asyncio.sleep(RETRY_SECONDS)

    async def _listen(self) -> None:
        reader, writer = await self._ask(self._events)
        try:
            while (line := await reader.readline()) not in {b"", b"0\r\n"}:
                if line.startswith(b"data:"):
                    await self._fetch()
        finally:
            writer.close()

    async def _ask(self, path: str, on: Connection | None = None) -> Connection:
        """Send a request; return the connection, from which the answer is to be read."""
        reader, writer = on or await asyncio.open_connection("127.0.0.1", self._port)
        known = b"if-none-match: " + self._tag + b"\r\n" if self._tag else b""
        writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n".encode() + known + b"\r\n")
        return reader, writer

    async def _fetch(self) -> None:
        """Ask for the page, on the same connection as before."""
        self._fetcher = reader, _ = await self._ask(self._path, self._fetcher)
        head = await reader.readuntil(b"\r\n\r\n")
        lines = (line.partition(b":") for line in head.splitlines())
        fields = {name.lower(): value.strip() for name, _, value in lines}
        await reader.readexactly(int(fields.get(b"content-length", 0)))
        self._tag = fields.get(b"etag", b"")
        self.fetched.set()


async def main() -> None:
    """Open the pages."""
    _, port, path, topics, number = sys.argv
    tabs = [Tab(int(port), path, topics) for _ in range(int(number))]
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
