"""Run the server of ``outlast web``, from the settings to a listening socket and a clean end.

Connections are bounded: no more than file descriptors allow, and none that a client opens and then
leaves without a request, or whose answers it does not read. Servers wait for such clients without a
limit, and a few hundred of them would keep all others out. If there are too many, a newcomer takes
the place of the connection that has waited longest for its client: so a client that sends small
requests on all of them keeps no one out."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from outlast.base.http_server import listen, url_of
from outlast.runner.garbage import keep_what_is_loaded
from outlast.web.application import application_of
from outlast.web.render import load_templates
from outlast.web.session import LOOPBACK, Anyone, LinkSessions, Network, ProxyUsers, Users
from outlast.web.sign_in import PasswordUsers
from outlast.web.site import Site

__all__ = ["Site", "choose_users", "serve"]

BACKLOG = 128  # connections that are accepted in one go
SILENT_SECONDS = 10.0
UNREAD_SECONDS = 30.0  # for a client to read some 50 kB of waiting answers
FILES = 4096  # descriptors to ask for
GRACE_SECONDS = 3  # for requests under way, once the server stops
# new objects before the youngest generation is collected, and its collections before older ones
# are: a page of many rows makes some 10,000 objects, and nearly all of them are freed with it
COLLECT_AFTER = (5_000, 20, 20)


class _Server(uvicorn.Server):
    """Leaves signals to the command's loop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield


def choose_users(
    password_file: Path | None,
    user_header: str | None,
    networks: Sequence[Network],
    proxy_secret: str = "",
    *,
    no_auth: bool,
) -> Users:
    """Return how users sign in: by a link, unless the options choose another way."""
    if password_file is not None:
        return PasswordUsers(password_file)
    if user_header is not None:
        return ProxyUsers(user_header, networks or LOOPBACK, proxy_secret)
    return Anyone() if no_auth else LinkSessions()


async def serve(site: Site, users: Users, host: str, port: int, place: str) -> None:
    """Serve until Ctrl-C or SIGTERM; then end the requests under way."""
    with listen(host, port, "--port") as listening:
        PatientProtocol.most = make_room()
        _prepare_requests()
        _introduce(users, f"{url_of(host, listening.getsockname()[1])}{site.prefix}/", place)
        await _run(_Server(config_of(site)), listening)


def _prepare_requests() -> None:
    """Do now the work that would make some requests take 20 ms longer."""
    load_templates()
    keep_what_is_loaded()
    gc.set_threshold(*COLLECT_AFTER)


def config_of(site: Site) -> uvicorn.Config:
    """Return the settings of the server of a site."""
    return uvicorn.Config(
        application_of(site),
        http=PatientProtocol,
        ws="none",
        backlog=BACKLOG,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


async def _run(server: _Server, listening: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, setattr, server, "should_exit", True)
    serving = loop.create_task(server.serve(sockets=[listening]))
    try:
        await asyncio.shield(serving)
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        server.should_exit = True
        await serving


def _introduce(users: Users, address: str, place: str) -> None:
    """Print where the page is: with a link that works once, if users sign in by links, and a new
    one each time that a link was used."""
    print(f"the page of {place}; Ctrl-C ends it")
    if not isinstance(users, LinkSessions):
        print(f"  {address}", flush=True)
        return

    def show_link() -> None:
        print(f"  {address}?token={users.token}", flush=True)

    def show_next() -> None:
        print("a browser has used the link; for another one:")
        show_link()

    users.on_used = show_next
    show_link()


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
