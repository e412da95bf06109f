"""The small server: what it refuses, and whom it cuts so that no client holds up another."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from outlast.base import http_server
from outlast.base.http_server import (
    READERS_MAX,
    REQUEST_BYTES,
    Response,
    is_loopback,
    listen,
    make_response,
    serving,
    url_of,
)

DEADLINE = 30.0
ROOM = 4096  # bytes that the system keeps for a reader
LONG = 1_000_000  # bytes that it does not keep


async def answer(path: str) -> Response:
    return Response(200, b"x" * LONG) if path == "/long" else make_response(200, path)


class Reader:
    """A connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._writer.write(piece)
            await self._writer.drain()
            await asyncio.sleep(0)

    async def read(self) -> bytes:
        """Return all that is answered until the server closes the connection."""
        read = b""
        async with asyncio.timeout(DEADLINE):
            with contextlib.suppress(ConnectionError):
                while piece := await self._reader.read(LONG):
                    read += piece
        return read

    def close(self) -> None:
        self._writer.transport.abort()


class Stage:
    """A server on this machine alone, and its readers."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._readers: list[Reader] = []

    async def connect(self) -> Reader:
        (reader,) = await self.connect_at_once(1)
        return reader

    async def connect_at_once(self, number: int) -> list[Reader]:
        """Open connections, all before the server sees the first."""
        clients = [socket.socket() for _ in range(number)]
        for client in clients:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM)
            client.connect(("127.0.0.1", self._port))
        found = [
            Reader(*await asyncio.open_connection(sock=client, limit=ROOM)) for client in clients
        ]
        self._readers += found
        return found

    async def say(self, *pieces: bytes) -> tuple[int, dict[str, str], str]:
        """Send a request; return status, headers and body of the answer."""
        reader = await self.connect()
        await reader.send(*pieces)
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        first, *lines = head.split("\r\n")
        return int(first.split(" ")[1]), dict(line.split(": ", 1) for line in lines), body

    async def status_for(self, *hosts: str) -> int:
        named = "".join(f"Host: {host}\r\n" for host in hosts)
        return (await self.say(f"GET / HTTP/1.1\r\n{named}\r\n".encode()))[0]

    def close(self) -> None:
        for reader in self._readers:
            reader.close()


@contextlib.asynccontextmanager
async def staged(
    host: str | None = "127.0.0.1", *, checks_host: bool = False
) -> AsyncIterator[Stage]:
    listening = listen(host, 0, "--port")
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)  # of connections, too
    async with serving(listening, answer, checks_host=checks_host):
        stage = Stage(listening.getsockname()[1])
        try:
            yield stage
        finally:
            stage.close()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as made:
        yield made


async def test_an_answer_is_a_text_that_no_cache_keeps(stage: Stage) -> None:
    status, headers, body = await stage.say(b"GET /here?verbose HTTP/1.0\r\n\r\n")
    assert (status, body) == (200, "/here\n")
    assert headers == {
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Connection": "close",
    }
    status, headers, body = await stage.say(b"HEAD /here HTTP/1.1\r\n\r\n")
    assert (status, headers["Content-Length"], body) == (200, "6", "")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /here HTTP/1.1\r\n\r\n", 405),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET /here\r\n\r\n", 400),
        (b"GET / here HTTP/1.1\r\n\r\n", 400),
        (b"GET  HTTP/1.1\r\n\r\n", 200),
        (b"\r\n\r\n", 400),
        (b"GET /here HTTP/1.1\r\nX: " + b"x" * REQUEST_BYTES, 431),
    ],
    ids=str,
)
async def test_what_is_no_request_is_refused(stage: Stage, request_: bytes, status: int) -> None:
    assert (await stage.say(request_))[0] == status
    assert await stage.status_for() == 200


async def test_a_request_may_come_in_pieces(stage: Stage) -> None:
    pieces = (b"GET /he", b"re HTTP/1.1\r\n", b"\r", b"\n")
    assert (await stage.say(*pieces))[2] == "/here\n"


async def test_clients_that_say_nothing_keep_no_other_from_its_answer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 3_600.0)  # they are not cut for silence
    mute = await stage.connect_at_once(READERS_MAX + 8)
    assert await stage.status_for() == 200
    for reader in mute[:8]:  # the oldest had to go
        assert await reader.read() == b""


async def test_a_client_that_sends_no_whole_request_is_cut(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends a byte now and then: what counts is the request, not its last byte."""
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.1)
    reader = await stage.connect()
    reading = asyncio.create_task(reader.read())
    with contextlib.suppress(ConnectionError):
        while not reading.done():
            await reader.send(b"G")
            await asyncio.wait([reading], timeout=0.01)
    assert await reading == b""


async def test_a_client_that_reads_no_answer_is_cut(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = asyncio.Event()
    dismiss = http_server._Readers._dismiss

    def note(*given: object) -> None:
        dismiss(*given)  # type: ignore[arg-type]
        cut.set()

    monkeypatch.setattr(http_server._Readers, "_dismiss", note)
    monkeypatch.setattr(http_server, "ANSWER_SECONDS", 0.05)
    reader = await stage.connect()
    await reader.send(b"GET /long HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(DEADLINE):
        await cut.wait()
    assert len(await reader.read()) < LONG


async def test_a_long_answer_is_whole_for_a_client_that_reads(stage: Stage) -> None:
    assert (await stage.say(b"GET /long HTTP/1.1\r\n\r\n"))[2] == "x" * LONG


async def test_on_this_machine_alone_no_foreign_name_is_answered() -> None:
    async with staged(checks_host=True) as stage:
        for host in ("localhost", "LOCALHOST.:80", "127.0.0.1:80", "10.0.0.1", "[::1]", "[::1]:9"):
            assert await stage.status_for(host) == 200, host
        for host in ("evil.example", "localhost.evil.example:80", ""):
            assert await stage.status_for(host) == 421, host
        assert await stage.status_for() == 421
        assert await stage.status_for("localhost", "evil.example") == 421
    for address, checks_host in ((None, True), ("127.0.0.1", False)):
        async with staged(address, checks_host=checks_host) as stage:
            assert await stage.status_for("worker.example") == 200


async def test_readers_are_cut_when_the_server_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 3_600.0)
    listening = listen("127.0.0.1", 0, "--port")
    async with serving(listening, answer):
        stage = Stage(listening.getsockname()[1])
        reader = await stage.connect()
        assert await stage.status_for() == 200
    assert await reader.read() == b""
    stage.close()


def test_no_part_of_an_answer_waits_for_the_client_to_confirm_another() -> None:
    with (
        listen("127.0.0.1", 0, "--port") as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", None])
def test_an_address_of_ipv4_is_listened_on(
    host: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name may have addresses of both kinds, that of IPv6 first."""
    kind = socket.SOCK_STREAM
    found = [
        (socket.AF_INET6, kind, 6, "", ("::1", 0, 0, 0)),
        (socket.AF_INET, kind, 6, "", ("127.0.0.1", 0)),
    ]
    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        listening = listen(host, 0, "--port")
    with listening:
        socket.create_connection(("127.0.0.1", listening.getsockname()[1]), DEADLINE).close()


def test_addresses_are_shown_and_known() -> None:
    assert url_of("::1", 80) == url_of("[::1]", 80) == "http://[::1]:80"
    assert url_of("localhost", 80) == "http://localhost:80"
    assert all(is_loopback(host) for host in ("localhost", "127.0.0.9", "::1", "[::1]"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "host", ""))
