"""Bound the connections of ``outlast web``: no more than file descriptors allow, and none that a
client opens and then leaves without a request, or whose answers it does not read. Servers wait for
such clients without a limit, and a few hundred of them would keep all others out.

If there are too many, a newcomer takes the place of the connection that has waited longest for its
client: so a client that sends small requests on all of them keeps no one out."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

BACKLOG = 128  # connections that are accepted in one go
SILENT_SECONDS = 10.0
UNREAD_SECONDS = 30.0  # for a client to read some 50 kB of waiting answers
FILES = 4096  # descriptors to ask for


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
        """Accept a connection; cut one if there are too many."""
        super().connection_made(transport)
        self._served: Any = None
        self._unread: asyncio.TimerHandle | None = None
        self.waits_since = self.loop.time()
        self._look = self.loop.call_later(SILENT_SECONDS, self._close_if_silent)
        if len(self.connections) > self.most:
            self._cut_one()

    def _cut_one(self) -> None:
        """Cut the connection that has waited longest for its client; this one, if all others have a
        request under way."""
        others: list[Any] = [one for one in self.connections if not one.transport.is_closing()]
        if len(others) > self.most:
            waiting = [one for one in others if one.waits_for_client]
            min(waiting, key=lambda one: one.waits_since, default=self).transport.abort()

    @property
    def waits_for_client(self) -> bool:
        """Whether the connection waits for its client to send a whole request, or to read an
        answer."""
        return self._is_idle or self._unread is not None

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self.waits_since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        for timer in (self._look, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the timer: so much is unread that the application waits."""
        super().pause_writing()
        self._abort_if_unread()

    def resume_writing(self) -> None:
        """Stop the timer: the client reads."""
        if self._unread is not None and not self.transport.is_closing():
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def _close_if_silent(self) -> None:
        """Close the connection if no request is under way, nor has ended since the last check."""
        if self._is_idle and self.cycle is self._served:
            self.transport.close()  # at once, or when the client has read the written data
            self._abort_if_unread()
            return
        self._served = self.cycle
        self._look = self.loop.call_later(SILENT_SECONDS, self._close_if_silent)

    def _abort_if_unread(self) -> None:
        if self._unread is None:
            self.waits_since = self.loop.time()
            self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)
