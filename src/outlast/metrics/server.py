"""``outlast exporter``: the page over HTTP, by the standard library's server, on its own threads.

It knows one page. Slow readers hold their own thread and are dropped after a while.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from outlast.metrics.exposition import CONTENT_TYPE

READER_SECONDS = 10.0  # that one reader may take to ask, and to read on
ANSWER_SECONDS = 30.0  # for a page to be made
HOME = b"Outlast: the metrics are at /metrics\n"


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD with the page that a subclass makes."""

    timeout = READER_SECONDS
    server_version = "outlast"
    sys_version = ""

    def make_page(self) -> bytes:
        """Return the page; called on the thread of a reader."""
        raise NotImplementedError

    def do_GET(self) -> None:
        """Answer with the page."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answer with the headers of the page."""
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._send(HTTPStatus.OK, CONTENT_TYPE, self.make_page(), with_body=with_body)
        elif path == "/":
            self._send(HTTPStatus.OK, "text/plain; charset=utf-8", HOME, with_body=with_body)
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"not found\n", with_body=with_body)

    def _send(self, status: HTTPStatus, kind: str, body: bytes, *, with_body: bool) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Say nothing: a scrape every few seconds is no news."""


class Server(ThreadingHTTPServer):
    """The server of one exporter."""

    daemon_threads = True  # one that waits for a reader does not keep the program from ending

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of readers that left in the middle of an answer."""


@asynccontextmanager
async def serving(
    make_page: Callable[[], Awaitable[bytes]], host: str, port: int
) -> AsyncIterator[int]:
    """Serve the page while the block runs; give the port. OSError where that cannot be had."""
    loop = asyncio.get_running_loop()

    async def page() -> bytes:
        return await make_page()

    class PageHandler(Handler):
        def make_page(self) -> bytes:
            return asyncio.run_coroutine_threadsafe(page(), loop).result(ANSWER_SECONDS)

    server = Server((host, port), PageHandler)
    thread = threading.Thread(target=server.serve_forever, name="outlast-exporter", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        await asyncio.to_thread(server.shutdown)
        thread.join()
        server.server_close()
