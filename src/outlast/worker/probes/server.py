"""Answers probes over HTTP, on a thread and a loop of its own: also while the worker's is stuck.

Anyone who reaches the port can ask, and learns in one line how this worker is. What that costs is
bounded: a connection has a few seconds and a few kilobytes and is closed after one answer, and of
too many the oldest has to go, so that slow clients keep no supervisor from its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import threading
from collections.abc import AsyncIterator, Callable

from outlast.clock import Clock
from outlast.config import WorkerSettings
from outlast.errors import ConfigError
from outlast.events import emit
from outlast.worker.probes.vitals import TICK_SECONDS, ProbeAnswer, Vitals

CONNECTIONS_MAX = 32
REQUEST_SECONDS = 5.0  # from its first byte to its answer
REQUEST_BYTES = 8_192
CLOSE_SECONDS = 5.0
_WORDS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"} | {
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}
_NO_ADDRESS = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


def listen(host: str | None, port: int) -> socket.socket:
    """Return a socket that listens there; None: on all addresses. Raises ConfigError."""
    try:
        return _listen_everywhere(port) if host is None else _listen_at(host, port)
    except OSError as error:
        why = error.strerror or type(error).__name__
        where = port if host is None else f"{host}:{port}"
        raise ConfigError(f"probe_port {where} cannot be used: {why}") from error


def _listen_everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:  # compiled in, and switched off
            if error.errno not in _NO_ADDRESS:
                raise
    return socket.create_server(("", port))


def _listen_at(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    return socket.create_server(address[:2], family=family)


class ProbeServer:
    """Answers on a socket that listens, which it closes at the end."""

    def __init__(self, listening: socket.socket, vitals: Vitals, clock: Clock) -> None:
        self._socket = listening
        self._clock = clock
        self._vitals = vitals
        self._probes: dict[str, Callable[[], ProbeAnswer]] = {
            "/startupz": vitals.judge_startup,
            "/readyz": vitals.judge_readiness,
            "/livez": vitals.judge_liveness,
        }
        self._connections: dict[_Connection, None] = {}  # the oldest first
        self._was_live = True
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outlast-probes", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()
        self._started.wait(CLOSE_SECONDS)

    async def close(self) -> None:
        """Answer no more."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._stopped.set)
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await self._loop.create_server(lambda: _Connection(self), sock=self._socket)
        self._started.set()
        looking = asyncio.create_task(self._look_again_and_again())
        await self._stopped.wait()
        looking.cancel()
        server.close()
        for connection in list(self._connections):
            connection.abort()
        await asyncio.wait([looking])

    async def _look_again_and_again(self) -> None:
        before = self._clock.boot()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self._clock.boot()
            self._vitals.look(now - before)
            before = now

    def answer(self, path: str) -> tuple[int, str]:
        """Return the status and the text for this path."""
        judge = self._probes.get(path)
        if judge is None:
            return 404, f"there are {', '.join(self._probes)}"
        health = judge()
        if path == "/livez":
            self._tell_change(health)
        return (200 if health.is_well else 503), health.text

    def _tell_change(self, health: ProbeAnswer) -> None:
        if self._was_live and not health.is_well:
            emit("liveness_failed", reason=health.text)
        self._was_live = health.is_well

    def admit(self, connection: _Connection) -> None:
        """Take a new connection; of too many, the oldest is cut."""
        self._connections[connection] = None
        if len(self._connections) > CONNECTIONS_MAX:
            next(iter(self._connections)).abort()

    def dismiss(self, connection: _Connection) -> None:
        """Forget a connection that has ended."""
        self._connections.pop(connection, None)


class _Connection(asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, server: ProbeServer) -> None:
        self._server = server
        self._head = b""
        self._answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._timer = asyncio.get_running_loop().call_later(REQUEST_SECONDS, transport.abort)
        self._server.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._server.dismiss(self)

    def abort(self) -> None:
        """Cut it at once."""
        self._server.dismiss(self)
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        self._head += data
        head, end, _ = self._head.partition(b"\r\n\r\n")
        if end:
            self._answer(head)
        elif len(self._head) > REQUEST_BYTES:
            self._write(431, "a request of at most 8 KiB, please")

    def _answer(self, head: bytes) -> None:
        words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):  # noqa: PLR2004
            self._write(400, "a request in HTTP/1.1, please")
        elif words[0] not in {"GET", "HEAD"}:
            self._write(405, "GET only")
        else:
            status, text = self._server.answer(words[1].partition("?")[0])
            self._write(status, text, has_body=words[0] == "GET")

    def _write(self, status: int, text: str, *, has_body: bool = True) -> None:
        self._answered = True
        body = f"{text}\n".encode()
        head = (
            f"HTTP/1.1 {status} {_WORDS[status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + (body if has_body else b""))
        self._transport.close()


@contextlib.asynccontextmanager
async def open_probes(settings: WorkerSettings, clock: Clock) -> AsyncIterator[Vitals]:
    """Answer probes for the length of a block, if the settings say where; yield what they tell.

    Raises ConfigError where the port cannot be used.
    """
    vitals = Vitals(clock)
    if settings.probe_port is None:
        yield vitals
        return
    server = ProbeServer(listen(settings.probe_host, settings.probe_port), vitals, clock)
    server.start()
    emit("probes_answered", port=server.port)
    try:
        yield vitals
    finally:
        await server.close()
