"""Clients of ``outlast web`` that open connections and say nothing, or say it slowly."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from outlast.cli import web_server
from outlast.cli.web_server import PatientProtocol, _Server, config_of, make_room
from outlast.web import visit
from outlast.web.site import Site
from tests.web.kit import let_in

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 60.0
HEAD = b"Host: localhost\r\nSec-Fetch-Site: none\r\n"
ASKED = b"GET /static/x/none HTTP/1.1\r\n" + HEAD + b"\r\n"
Talk = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def served(tmp_path: Path) -> AsyncIterator[int]:
    """Serve a page on no store; give its port."""
    server = _Server(config_of(Site(f"sqlite:///{tmp_path}/none.db", let_in())))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # of accepted ones, too
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            await serving


@contextlib.asynccontextmanager
async def talking(port: int, said: bytes) -> AsyncIterator[asyncio.StreamReader]:
    """Open a connection, say something; give what is answered."""
    async with conversing(port, said) as (reader, _):
        yield reader


@contextlib.asynccontextmanager
async def conversing(port: int, said: bytes) -> AsyncIterator[Talk]:
    """Open a connection, say something; give what is answered, and a way to say more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(said)
        await writer.drain()
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def all_of(reader: asyncio.StreamReader) -> bytes:
    """Return what is read until the other side closes."""
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), SECONDS)
    return b""


async def answered(talk: Talk) -> None:
    """Read one whole answer to ASKED."""
    head = await asyncio.wait_for(talk[0].readuntil(b"\r\n\r\n"), SECONDS)
    assert head.startswith(b"HTTP/1.1 404")
    size = next(
        int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"
    )
    await asyncio.wait_for(talk[0].readexactly(size), SECONDS)


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: loc", ASKED + b"GET /"], ids=len)
async def test_a_connection_without_a_request_is_closed(
    said: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_server, "SILENT_SECONDS", 0.05)
    async with served(tmp_path) as port, talking(port, said) as reader:
        answered = await all_of(reader)
    assert not answered or answered.startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize("number", [1, 900])
async def test_a_client_that_reads_no_answer_is_cut_off(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer lies unread when the connection is silent; of many, the application waits."""
    monkeypatch.setattr(web_server, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(web_server, "UNREAD_SECONDS", 0.05)
    lost = asyncio.Event()
    noted = PatientProtocol.connection_lost

    def note(protocol: PatientProtocol, error: Exception | None) -> None:
        noted(protocol, error)
        lost.set()

    monkeypatch.setattr(PatientProtocol, "connection_lost", note)
    asked = b"GET /static/x/outlast.css HTTP/1.1\r\n" + HEAD + b"\r\n"
    loop = asyncio.get_running_loop()
    async with served(tmp_path) as port:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2304)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", port))
            with contextlib.suppress(BlockingIOError):
                client.send(asked * number)
            await asyncio.wait_for(lost.wait(), SECONDS)


@contextlib.asynccontextmanager
async def two_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> AsyncIterator[tuple[int, Talk, Talk]]:
    """Serve two connections at most, and open two that say this; none is closed for its silence."""
    monkeypatch.setattr(PatientProtocol, "most", 2)
    monkeypatch.setattr(web_server, "SILENT_SECONDS", 10 * SECONDS)
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(served(tmp_path))
        one = await stack.enter_async_context(conversing(port, said))
        other = await stack.enter_async_context(conversing(port, said))
        yield port, one, other


async def test_of_too_many_connections_the_one_that_waited_longest_for_a_request_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newcomer is answered, though a stranger holds all others by a small request now and then:
    as often as it comes."""
    async with two_at_most(tmp_path, monkeypatch, ASKED) as (port, one, other):
        await answered(one)
        await answered(other)
        one[1].write(ASKED)
        await answered(one)
        async with talking(port, ASKED) as third:
            assert b"404" in await asyncio.wait_for(third.readline(), SECONDS)
            assert not await all_of(other[0])
            one[1].write(ASKED)
            await answered(one)


async def test_a_request_under_way_is_cut_for_no_newcomer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = b"POST /jobs/1/cancel HTTP/1.1\r\n" + HEAD + b"Content-Length: 9\r\n"
    asked = begun + b"Expect: 100-continue\r\n\r\n"
    async with two_at_most(tmp_path, monkeypatch, asked) as (port, one, other):
        for reader, _ in (one, other):  # answered once the application asks for the body
            assert b"100" in await asyncio.wait_for(reader.readline(), SECONDS)
        async with talking(port, ASKED) as third:
            assert not await all_of(third)


@pytest.mark.parametrize("path", [b"/jobs/1/cancel", b"/api/v1/jobs/1/cancel"])
async def test_a_body_that_takes_too_long_is_refused(
    path: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visit, "BODY_SECONDS", 0.05)
    said = b"POST " + path + b" HTTP/1.1\r\n" + HEAD + b"Content-Length: 9\r\n\r\nr"
    async with served(tmp_path) as port, talking(port, said) as reader:
        assert b"408" in await asyncio.wait_for(reader.readline(), SECONDS)


def test_there_are_descriptors_for_twice_the_connections() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        most = make_room()
        assert 0 < most <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
