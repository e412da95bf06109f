"""Run the server of ``outlast web``, from the settings to a listening socket and a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import uvicorn

from outlast.base.http_server import listen, url_of
from outlast.cli.web_connections import BACKLOG, PatientProtocol, make_room
from outlast.runner.garbage import keep_what_is_loaded
from outlast.web.application import application_of
from outlast.web.render import load_templates
from outlast.web.session import LOOPBACK, Anyone, LinkSessions, Network, ProxyUsers, Users
from outlast.web.sign_in import PasswordUsers
from outlast.web.site import Site

__all__ = ["Site", "choose_users", "serve"]

GRACE_SECONDS = 3  # for requests under way, once the server stops
# new objects before the youngest generation is collected, and its collections before older ones
# are: a page of many rows makes some 10,000 objects, and nearly all of them are freed with it
COLLECT_AFTER = (5_000, 20, 20)
STREAM_SECONDS = 50.0  # of hints in one answer: proxies end one that is silent for a minute


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
        return PasswordUsers(password_file, networks)
    if user_header is not None:
        return ProxyUsers(user_header, networks or LOOPBACK, proxy_secret)
    return Anyone() if no_auth else LinkSessions()


async def serve(site: Site, users: Users, host: str, port: int, place: str) -> None:
    """Serve until Ctrl-C or SIGTERM; then end open streams, and requests under way."""
    with listen(host, port, "--port") as listening:
        PatientProtocol.most = make_room()
        site.stream_seconds = STREAM_SECONDS
        _prepare_requests()
        _introduce(users, f"{url_of(host, listening.getsockname()[1])}/", place)
        await _run(_Server(config_of(site)), listening, site)


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


async def _run(server: _Server, listening: socket.socket, site: Site) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is not None:
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    serving = loop.create_task(server.serve(sockets=[listening]))
    try:
        await asyncio.shield(serving)
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        site.stop_streams()
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
