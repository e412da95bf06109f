"""Serve HTTP for probes and metrics; the page shares the rules about addresses and names.

Anyone who reaches the port can send requests, so their cost is bounded: a connection gets one
answer, within a few seconds and kilobytes, and of too many connections the oldest is cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from ipaddress import ip_address
from typing import NamedTuple

from outlast.errors import ConfigError, text_of

READERS_MAX = 32  # at once
REQUEST_BYTES = 8_192
REQUEST_SECONDS = 5.0  # from the connection to the end of the request
ANSWER_SECONDS = 30.0  # for the answer to be made and read
PLAIN = "text/plain; charset=utf-8"
_NO_ADDRESS = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


class Response(NamedTuple):
    """The answer to one request."""

    status: int
    body: bytes
    content_type: str = PLAIN


def make_response(status: int, text: str) -> Response:
    """Return a response of one line for people."""
    return Response(status, f"{text}\n".encode())


class _Request(NamedTuple):
    method: str
    target: str
    version: str
    host: str


# --- addresses ----------------------------------------------------------------------------------


def listen(host: str | None, port: int, option: str) -> socket.socket:
    """Return a socket that listens at this address, None: at all addresses. Of a name, such as
    localhost, the IPv4 address counts. ConfigError names the option if it cannot be used."""
    try:
        listening = _listen_everywhere(port) if host is None else _listen_at(host.strip("[]"), port)
    except OSError as error:
        where = port if host is None else f"{host}:{port}"
        raise ConfigError(
            f"{option} {where} cannot be used: {error.strerror or text_of(error)}; choose another"
            " port (0: any free one) or address, or stop the program that uses it"
        ) from error
    # connections inherit it: the second part of an answer waits for no acknowledgement of the first
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _listen_everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:  # IPv6 is compiled in, and switched off
            if error.errno not in _NO_ADDRESS:
                raise
    return socket.create_server(("", port))


def _listen_at(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return socket.create_server(address[:2], family=family)


def url_of(host: str, port: int) -> str:
    """Return the URL of a server, without a path."""
    host = host.strip("[]")
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host: a loopback address or localhost, no other name."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def name_of(host: str) -> str:
    """Return the name in a Host header, without its port."""
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return name.strip("[]").lower().rstrip(".")


def is_address(name: str) -> bool:
    """Whether the name in a Host header is an address or localhost, not that of a foreign site."""
    try:
        return name == "localhost" or bool(ip_address(name))
    except ValueError:
        return False


# --- connections --------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serving(
    listening: socket.socket,
    answer: Callable[[str], Awaitable[Response]],
    *,
    checks_host: bool = False,
) -> AsyncIterator[None]:
    """Answer requests on a listening socket while the block runs; close it at the end. ``answer``
    gets the path of each GET and HEAD.

    ``checks_host``: on a loopback address, refuse foreign names: a site that makes its own name
    resolve here would read the answers through a browser.
    """
    is_local = checks_host and is_loopback(listening.getsockname()[0])
    readers = _Readers(answer, is_local=is_local)
    server = await asyncio.start_server(readers.admit, sock=listening, limit=REQUEST_BYTES)
    try:
        yield
    finally:
        server.close()
        await readers.cut_all()


class _Readers:
    def __init__(self, answer: Callable[[str], Awaitable[Response]], *, is_local: bool) -> None:
        self._answer = answer
        self._is_local = is_local
        self._tasks: dict[asyncio.Task[None], None] = {}  # the oldest first

    def admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a new connection; cut the oldest one if there are too many."""
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        task.add_done_callback(functools.partial(self._dismiss, writer))
        self._tasks[task] = None
        if len(self._tasks) > READERS_MAX:
            oldest = next(iter(self._tasks))
            del self._tasks[oldest]
            oldest.cancel()

    async def cut_all(self) -> None:
        """Cut all connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _dismiss(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):  # the client is slow, or has left
            async with asyncio.timeout(REQUEST_SECONDS):
                request = await _read_request(reader)
            async with asyncio.timeout(ANSWER_SECONDS):
                response = await self._respond(request)
                has_body = request is None or request.method != "HEAD"
                writer.write(_head_of(response) + (response.body if has_body else b""))
                writer.close()
                await writer.wait_closed()

    async def _respond(self, request: _Request | None) -> Response:
        if request is None:
            return make_response(431, "a request may have at most 8 KiB")
        if not request.version.startswith("HTTP/1."):
            return make_response(400, "this is not an HTTP/1.1 request")
        if request.method not in {"GET", "HEAD"}:
            return make_response(405, "GET only")
        if self._is_local and not is_address(name_of(request.host)):
            return make_response(421, "unknown host name: use an address or localhost")
        return await self._answer(request.target.partition("?")[0])


async def _read_request(reader: asyncio.StreamReader) -> _Request | None:
    """Return a client's request; None if it is too long. EOFError if the client leaves."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    target, _, version = rest.partition(" ")
    fields = [line.partition(":") for line in lines]
    hosts = [value.strip() for name, _, value in fields if name.strip().lower() == "host"]
    return _Request(method, target, version, ", ".join(hosts))


def _head_of(response: Response) -> bytes:
    return (
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\n"
        f"Content-Type: {response.content_type}\r\nContent-Length: {len(response.body)}\r\n"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    ).encode()
