"""With TLS required, nothing is sent before the handshake: servers that offer none, or pretend.

Small servers of the test's own: real ones do not lie.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.certificates import Authority
from harness.tcp import serving
from outlast.wakeup.amqp import AmqpBroker
from outlast.wakeup.kinds import parse
from outlast.wakeup.nats import NatsBroker

INFO: dict[str, Any] = {"server_id": "x", "version": "2.10.0", "max_payload": 1_000_000}
HELLO = b"\x16\x03"  # with which a client begins TLS


class Listener:
    """A server that writes ``first`` to each client and keeps what comes from it; ``port`` is set
    while it listens."""

    def __init__(self, first: bytes = b"") -> None:
        self.first = first
        self.heard: list[bytes] = []
        self.port = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self.first)
        self.heard.append(await reader.read(65_536))

    @asynccontextmanager
    async def listen(
        self, host: str = "127.0.0.1", context: ssl.SSLContext | None = None
    ) -> AsyncIterator[Listener]:
        async with serving(self.take, host, context) as self.port:
            yield self


def info_line(**more: Any) -> bytes:
    return b"INFO " + json.dumps(INFO | more).encode() + b"\r\n"


async def refused(broker: NatsBroker | AmqpBroker, match: str) -> None:
    with pytest.raises(Exception, match=match):
        await broker.open()
    await broker.close()


async def test_nats_sends_nothing_to_a_server_without_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    for write in (
        lambda port: f"tls://me:s3cret@127.0.0.1:{port}",
        lambda port: f"nats://me:s3cret@127.0.0.1:{port}?tls_ca={authority.cert}",
    ):
        async with Listener(info_line(auth_required=True)).listen() as server:
            broker = NatsBroker(parse(write(server.port)), "any", None)
            await refused(broker, "offers no TLS")
        assert b"".join(server.heard) == b""


async def test_nats_connects_only_to_configured_servers(tmp_path: Path) -> None:
    """What a server sends before the TLS handshake may be forged on the way."""
    authority = Authority(tmp_path)
    async with Listener(info_line(tls_required=True)).listen(host="127.0.0.1") as other:
        named = f"127.0.0.1:{other.port}"
        async with Listener(info_line(connect_urls=[named])).listen() as server:
            url = f"tls://me:s3cret@127.0.0.1:{server.port}?tls_ca={authority.cert}"
            await refused(NatsBroker(parse(url), "any", None), "offers no TLS")
        assert not other.heard


@pytest.mark.parametrize("scheme", ["amqps", "amqp"])
async def test_rabbitmq_gets_tls_from_the_first_byte(scheme: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with Listener(b"AMQP\x00\x00\x09\x01").listen() as server:
        url = f"{scheme}://me:s3cret@127.0.0.1:{server.port}/?tls_ca={authority.cert}"
        await refused(AmqpBroker(parse(url), "any", None), "(?i)ssl|tls")
    heard = b"".join(server.heard)
    assert heard.startswith(HELLO)
    assert b"s3cret" not in heard


async def test_a_rabbitmq_certificate_for_another_host_is_refused(tmp_path: Path) -> None:
    """A certificate that is good, for another host."""
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.sign("other"))
    async with Listener().listen(host="127.0.0.2", context=context) as server:
        url = f"amqps://me:s3cret@127.0.0.2:{server.port}/?tls_ca={authority.cert}"
        await refused(AmqpBroker(parse(url), "any", None), "CERTIFICATE_VERIFY_FAILED")
    assert b"".join(server.heard) == b""
