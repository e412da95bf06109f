"""Stand for TLS on a connection that ends in this process: nothing is encrypted."""

from __future__ import annotations

import socket
import ssl
from typing import Any


def _answer_nothing(*_: Any, **__: Any) -> None:
    """Answers the questions that programs ask about TLS: there is none."""


class _Plain:
    server_side = False
    server_hostname = context = session = None
    do_handshake = cipher = compression = selected_alpn_protocol = _answer_nothing
    shared_ciphers = get_channel_binding = verify_client_post_handshake = _answer_nothing

    def getpeercert(self, binary_form: bool = False) -> Any:  # noqa: FBT001, FBT002  # as of ssl
        """Return no certificate."""
        return b"" if binary_form else {}

    def version(self) -> str:
        """Return the version that most servers speak."""
        return "TLSv1.3"


class PlainSocket(_Plain, socket.socket):
    """The socket itself, in the place of an ``ssl.SSLSocket``."""

    def __init__(self, sock: socket.socket, *_: Any) -> None:
        super().__init__(sock.family, sock.type, sock.proto, fileno=sock.fileno())
        self.settimeout(sock.gettimeout())
        sock.detach()

    def unwrap(self) -> socket.socket:
        """Return the connection without TLS."""
        return self


class PlainObject(_Plain):
    """Passes bytes on, in the place of an ``ssl.SSLObject``."""

    unwrap = _answer_nothing

    def __init__(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *_: Any) -> None:
        self._incoming = incoming
        self.write = outgoing.write

    def read(self, size: int = 1024, buffer: Any = None) -> Any:
        """Return bytes that have arrived, or put them into the buffer."""
        data = self._incoming.read(size)
        if not data and not self._incoming.eof:
            raise ssl.SSLWantReadError
        if buffer is None:
            return data
        buffer[: len(data)] = data
        return len(data)

    def pending(self) -> int:
        """Return how many bytes have arrived."""
        return self._incoming.pending
