"""The HTTP of ``outlast web``: requests of any shape, in pieces, piled up, huge, answers unread.

Each connection of a stranger ends, and the next client is served at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import msgspec
from hypothesis import strategies as st

from harness.stores import opened
from outlast.cli import web_server
from outlast.cli.web_server import _Server, config_of
from outlast.web import visit
from outlast.web.application import ENDPOINTS
from outlast.web.session import LinkSessions
from outlast.web.site import Site
from tests.fuzz.kit import SECONDS, Fuzzer, damaged
from tests.web.kit import let_in

PATHS = [each.path.replace("{job_id:int}", "1").encode() for each in ENDPOINTS]
ESTABLISHED = 1  # as the kernel has it
BRIEF = 0.05  # seconds, in place of what clients have elsewhere


class Client(msgspec.Struct, frozen=True):
    """A connection: what it sends, piece by piece, how often, and how it goes on."""

    pieces: list[bytes]
    times: int
    then: str
    is_signed_in: bool


words = st.binary(max_size=30) | st.text(max_size=20).map(
    lambda one: one.encode("utf-8", "replace")
)
long = st.builds(
    lambda what, count: what * count,
    st.sampled_from([b"x", b"a=b; ", b'"\\001', b"9", b"%2e", b"\xff", b"; ", b"[", b"../"]),
    st.sampled_from([1, 500, 15_000, 70_000]),
)
targets = st.one_of(
    st.sampled_from([path for path in PATHS if b"{" not in path]),
    st.sampled_from([b"/static/x/outlast.css", b"//", b"/jobs/" + b"9" * 400, b"*"]),
    st.builds(bytes.__add__, st.just(b"/"), words | long),
    st.builds(lambda one: b"/jobs?queue=" + one, words | long),
)  # fmt: skip
headers = st.one_of(
    st.builds(
        lambda name, value: name + b": " + value,
        st.sampled_from(
            [b"Cookie", b"Host", b"Content-Length", b"Transfer-Encoding", b"Expect", b"Upgrade",
             b"Connection", b"Authorization", b"Origin", b"X-Forwarded-For", b"Range", b"X-User"]
        ),
        st.sampled_from([b"chunked", b"100-continue", b"h2c", b"close", b"-1", b"9" * 50,
                         b"outlast-80=" + b'"\\012' * 3_000]) | words | long,
    ),
    words,
)  # fmt: skip
requests = st.builds(
    lambda verb, target, more, body: (
        b" ".join([verb, target, b"HTTP/1.1"])
        + b"\r\nHost: localhost\r\nSec-Fetch-Site: none\r\n"
        + b"".join(one + b"\r\n" for one in more)
        + b"\r\n"
        + body
    ),
    st.sampled_from([b"GET", b"GET", b"POST", b"HEAD", b"OPTIONS", b"TRACE", b"", b"\xff"]),
    targets,
    st.lists(headers, max_size=4),
    st.just(b"") | words | long,
)
clients = st.builds(
    Client,
    st.lists(requests | damaged(requests, most=2) | words | long, max_size=4),
    st.sampled_from([1, 1, 1, 30, 300]),
    st.sampled_from(["reads", "reads", "reads nothing", "says nothing", "half closes", "resets"]),
    st.booleans(),
)


def strangers_ask(all_clients: list[Client]) -> None:
    """Each connection ends; no answer is an error of the server's; the next client is served."""
    with (
        mock.patch.object(web_server, "SILENT_SECONDS", BRIEF),
        mock.patch.object(web_server, "UNREAD_SECONDS", BRIEF),
        mock.patch.object(visit, "BODY_SECONDS", BRIEF),
        tempfile.TemporaryDirectory() as folder,
    ):
        asyncio.run(_strangers_ask(f"sqlite:///{folder}/it.db", all_clients))


async def _strangers_ask(url: str, all_clients: list[Client]) -> None:
    trouble: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: trouble.append(context))
    async with opened(url):
        pass  # its tables are made
    async with asyncio.timeout(SECONDS):
        for is_signed_in in {one.is_signed_in for one in all_clients}:
            async with _served(url, is_signed_in) as port:
                some = [one for one in all_clients if one.is_signed_in == is_signed_in]
                for answer in await asyncio.gather(*[_talk(port, one) for one in some]):
                    _is_no_fault(answer)
                sound = await _talk(port, SOUND)
                assert sound.startswith(b"HTTP/1.1 200"), sound[:200]
    assert not trouble, [(one, one.get("exception")) for one in trouble]


SOUND = Client(
    [b"GET /static/x/outlast.css HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"],
    1,
    "reads",
    is_signed_in=True,
)


@contextlib.asynccontextmanager
async def _served(url: str, is_signed_in: bool) -> AsyncIterator[int]:
    users = LinkSessions()
    judge = let_in() if is_signed_in else users.judge
    server = _Server(config_of(Site(url, judge, refuse=users.refuse)))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # of accepted ones, too
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        try:
            yield listening.getsockname()[1]
            while server.server_state.connections:  # all that strangers have opened
                await asyncio.sleep(BRIEF / 5)
        finally:
            server.should_exit = True
            await serving


async def _talk(port: int, client: Client) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**16)
    answer = b""
    with contextlib.suppress(OSError):  # it was cut off
        for piece in client.pieces:
            writer.write(piece * min(client.times, 1 + 2_000_000 // (len(piece) + 1)))
            await asyncio.sleep(0)
        if client.then == "resets":
            writer.transport.abort()
        elif client.then == "half closes":
            await writer.drain()
            writer.write_eof()
        if client.then in {"reads", "half closes"}:
            answer = await reader.read()
        else:
            await _wait_for_the_end(writer)
    writer.transport.abort()
    return answer


async def _wait_for_the_end(writer: asyncio.StreamWriter) -> None:
    """Wait until the server has closed the connection, and read nothing of it."""
    transport: Any = writer.transport
    transport.pause_reading()
    sock = writer.get_extra_info("socket")
    while not transport.is_closing():
        if sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != ESTABLISHED:
            return
        await asyncio.sleep(BRIEF / 5)


def _is_no_fault(answer: bytes) -> None:
    if answer:
        assert answer.startswith(b"HTTP/1.1 "), answer[:200]
        assert not answer.startswith(b"HTTP/1.1 500"), answer[:2_000]
    assert b"\r\nHTTP/1.1 500" not in answer


FUZZERS = [
    Fuzzer(
        "requests of outlast web", st.lists(clients, min_size=1, max_size=4), strangers_ask, few=6
    )
]
