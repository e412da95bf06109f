"""The driver's client of NATS, held to what the URL says: TLS where it was asked for, no other
servers.

A server of NATS begins in clear and says itself whether it requires TLS; the driver believes it and
sends the login in clear where it does not. It also goes on to servers that are named there, so to
any with a good certificate for a name of its own. What comes before TLS stands may be forged on
the way, so neither is left to it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nats.aio.client import Client

# both are bound here, so that a driver that no longer has them fails at import and not in clear
_connect_command: Callable[[Client], bytes] = Client._connect_command  # noqa: SLF001
_process_info: Callable[[Client, dict[str, Any], bool], Awaitable[None]] = Client._process_info  # noqa: SLF001


class NatsClient(Client):
    """``tls``: whether nothing may be sent before TLS stands."""

    def __init__(self, *, tls: bool) -> None:
        super().__init__()
        self._tls = tls

    def _connect_command(self) -> bytes:
        """Return the first command, which holds the login."""
        writer = self._transport._io_writer  # type: ignore[union-attr]  # noqa: SLF001
        if self._tls and writer.get_extra_info("ssl_object") is None:
            raise ConnectionError("the server offers no TLS, and the wake-up's URL asks for it")
        return _connect_command(self)

    async def _process_info(
        self,
        info: dict[str, Any],
        initial_connection: bool = False,  # noqa: FBT001, FBT002  # as the driver calls it
    ) -> None:
        """Take what a server says of itself, and not of others."""
        await _process_info(self, info | {"connect_urls": []}, initial_connection)
