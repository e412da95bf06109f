"""The connections of ``outlast web``: no more than there are file descriptors for, and none that a
client opens and then leaves without a request. Servers wait for such clients without a limit, and a
few hundred of them would keep all others out."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

BACKLOG = 128  # connections that are accepted at once
SILENT_SECONDS = 10.0
FILES = 4096  # descriptors that are asked for


def make_room() -> int:
    """Raise the soft limit of open files; return how many connections there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES:
        soft = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(soft, FILES) // 2  # of the rest, BACKLOG may be open for a moment before they close


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with bounds. ``most``: connections at once."""

    most = FILES // 2

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or close it at once."""
        super().connection_made(transport)
        self._served: Any = None
        self._look: asyncio.TimerHandle | None = None
        if len(self.connections) > self.most:
            transport.abort()
        else:
            self._look = self.loop.call_later(SILENT_SECONDS, self._close_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def _close_if_silent(self) -> None:
        """Close it where no request was under way, nor has ended since the last look."""
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self.cycle is self._served:
            self.transport.close()
            return
        self._served = self.cycle
        self._look = self.loop.call_later(SILENT_SECONDS, self._close_if_silent)
