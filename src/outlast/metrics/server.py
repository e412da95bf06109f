"""``outlast exporter``: the page over HTTP, by the standard library's server, on its own threads.

It knows one page. A reader that is slow holds its own thread, is dropped after a while, and there
are no more than some of them. On an address of this machine alone it answers no foreign name: a
site that makes its name resolve here would read the page through a browser.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any

from outlast.metrics.exposition import CONTENT_TYPE

READER_SECONDS = 10.0  # that one reader may take to go on asking or reading
ANSWER_SECONDS = 30.0  # for a page to be made
CONNECTION_SECONDS = 60.0  # after which a connection ends, also where its reader goes on
READERS_MAX = 32  # at once
HOME = b"Outlast: the metrics are at /metrics\n"


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD with the page that a subclass makes."""

    timeout = READER_SECONDS
    server_version = "outlast"
    sys_version = ""
    is_local = False  # no other machine can reach it

    def handle(self) -> None:
        """Answer one connection, for as long as any may last."""
        end = threading.Timer(CONNECTION_SECONDS, _shut, [self.connection])
        end.daemon = True
        end.start()
        try:
            super().handle()
        finally:
            end.cancel()

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
        if self.is_local and not _is_local(self.headers.get("Host", "")):
            said = b"not known by this name: ask for an address or localhost\n"
            self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", said, with_body=with_body)
        elif path == "/metrics":
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


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _is_local(host: str) -> bool:
    """Whether a Host names an address or localhost."""
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    try:
        return name.lower().rstrip(".") == "localhost" or bool(ip_address(name.strip("[]")))
    except ValueError:
        return False


class Server(ThreadingHTTPServer):
    """The server of one exporter."""

    daemon_threads = True  # one that waits for a reader does not keep the program from ending

    def __init__(self, address: tuple[str, int], handler: type[Handler]) -> None:
        super().__init__(address, handler)
        self._free = threading.BoundedSemaphore(READERS_MAX)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Take a connection, unless there are too many: then it is closed at once."""
        return self._free.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection on a thread of its own."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

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
    PageHandler.is_local = ip_address(str(server.server_address[0])).is_loopback
    thread = threading.Thread(target=server.serve_forever, name="outlast-exporter", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        await asyncio.to_thread(server.shutdown)
        thread.join()
        server.server_close()
