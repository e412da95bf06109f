"""TLS to PostgreSQL: what `sslmode` in a URL does with a server without TLS, or a forged one.

Small servers of the test's own, since the server that the other tests have is built without TLS.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from harness.certificates import Authority
from harness.tcp import serving
from outlast.errors import StoreUnavailable
from outlast.store.postgres.store import PostgresStore

SSL_REQUEST = bytes.fromhex("0000000804d2162f")


class Server:
    """A server that has no TLS, but with a ``context``, and asks for the password in clear; keeps
    what comes."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.context = context
        self.heard = b""
        self.port = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # the client has left, in the middle of it
            self.heard += await reader.read(1_024)
            writer.write(b"S" if self.context else b"N")
            if self.context:
                await writer.start_tls(self.context)
            self.heard += await reader.read(1_024)
            writer.write(bytes.fromhex("520000000800000003"))
            self.heard += await reader.read(1_024)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[None]:
        async with serving(self.take) as self.port:
            yield


async def ask(url: str) -> None:
    store = PostgresStore(url, connect_timeout=30)
    try:
        await store.open()
    finally:
        await store.close()


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
async def test_nothing_is_sent_without_tls_where_it_is_asked_for(mode: str, tmp_path: Path) -> None:
    server, root = Server(), Authority(tmp_path).cert
    async with server.listen():
        url = (
            f"postgresql://me:s3cret@127.0.0.1:{server.port}/jobs?sslmode={mode}&sslrootcert={root}"
        )
        with pytest.raises(StoreUnavailable, match="cannot connect") as refused:
            await ask(url)
    assert server.heard == SSL_REQUEST
    assert "s3cret" not in str(refused.value)


async def test_by_default_a_server_without_tls_gets_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with any client of PostgreSQL, and as docs/connect.md says."""
    monkeypatch.delenv("PGSSLMODE", raising=False)
    server = Server()
    async with server.listen():
        with pytest.raises(StoreUnavailable):
            await ask(f"postgresql://me:s3cret@127.0.0.1:{server.port}/jobs")
    assert b"s3cret" in server.heard


@pytest.mark.parametrize("known", [True, False])
async def test_a_server_is_used_only_if_its_authority_is_known(known: bool, tmp_path: Path) -> None:
    ours, theirs = (Authority(_folder(tmp_path / name)) for name in ("ours", "theirs"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*(ours if known else theirs).sign("server"))
    server = Server(context)
    async with server.listen():
        place = f"postgresql://me:s3cret@127.0.0.1:{server.port}/jobs"
        with pytest.raises(StoreUnavailable):
            await ask(f"{place}?sslmode=verify-full&sslrootcert={ours.cert}")
    assert (b"s3cret" in server.heard) is known
    assert (server.heard == SSL_REQUEST) is not known


def _folder(path: Path) -> Path:
    path.mkdir()
    return path
