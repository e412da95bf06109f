"""Stand for TLS on a connection that ends in this process: nothing is encrypted."""

from __future__ import annotations

import socket
import ssl
from typing import Any


class _Plain:
    """What programs ask of an encrypted connection."""

    server_side = False
    server_hostname: str | None = None
    context: Any = None
    session: Any = None

    def do_handshake(self, *_: Any) -> None:
        """Do nothing."""

    def getpeercert(self, binary_form: bool = False) -> Any:  # noqa: FBT001, FBT002  # as of ssl
        """Return no certificate."""
        return b"" if binary_form else {}

    def selected_alpn_protocol(self) -> None:
        """Return that HTTP/2 was not chosen."""

    def cipher(self) -> None:
        """Return no cipher."""

    def compression(self) -> None:
        """Return no compression."""

    def version(self) -> str:
        """Return the version that most servers speak."""
        return "TLSv1.3"


class PlainSocket(_Plain, socket.socket):
    """The socket itself, in the place of an ``ssl.SSLSocket``."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock.family, sock.type, sock.proto, fileno=sock.fileno())
        self.settimeout(sock.gettimeout())
        sock.detach()

    def unwrap(self) -> socket.socket:
        """Return the connection without TLS."""
        return self


class PlainObject(_Plain):
    """Passes bytes on, in the place of an ``ssl.SSLObject``."""

    def __init__(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, host: str | None) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self.server_hostname = host

    def read(self, size: int = 1024, buffer: Any = None) -> Any:
        """Return bytes that have arrived, or put them into the buffer."""
        data = self._incoming.read(size)
        if not data and not self._incoming.eof:
            raise ssl.SSLWantReadError
        if buffer is None:
            return data
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int:
        """Pass bytes on."""
        return self._outgoing.write(data)

    def pending(self) -> int:
        """Return how many bytes have arrived."""
        return self._incoming.pending

    def unwrap(self) -> None:
        """End it."""
