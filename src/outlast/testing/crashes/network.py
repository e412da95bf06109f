"""Refuse the network, except hosts whose answers one run may record; answer the others from that.

The libraries are interposed where they hold a whole request: connections of ``http.client``, which
urllib and urllib3 (requests) use, transports of httpx, and ``smtplib``. In the first run the
request is sent on; later the recording answers.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import smtplib
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import Any
from unittest import mock

import msgspec

from outlast.testing.crashes.recorder import Recorder, beyond, is_beyond, is_ours

PATIENCE_SECONDS = 30.0  # for a host's answer
_SAFE, _ONCE = {"GET", "HEAD", "OPTIONS"}, {"PUT", "DELETE"}
_HOPS = {"transfer-encoding", "content-length", "connection", "keep-alive"}
_LOOKUPS = {"socket.getaddrinfo", "socket.gethostbyname"}
_CONNECTS = {"socket.connect", "socket.sendto", "socket.sendmsg"}
_PORTS = {"http": http.client.HTTP_PORT, "https": http.client.HTTPS_PORT}
_KNOWN = "http.client (urllib, urllib3, requests), httpx and smtplib"


class HttpRequest(msgspec.Struct):
    """A request of HTTP, and whether it is made over TLS."""

    host: str
    port: int
    is_tls: bool
    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes


class HttpAnswer(msgspec.Struct):
    """The answer to a request of HTTP, in one piece."""

    status: int
    reason: str = ""
    headers: list[tuple[str, str]] = []
    content: bytes = b""


class Network:
    """The network of all runs.

    Attributes:
        heard: the answers of hosts in the first run, by what they answer.
        is_recorded: whether answers come from there.
        recorder: of the run that is under way.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self.heard: dict[str, list[Any]] = {}
        self.is_recorded = False
        self.recorder = Recorder()
        self._hosts = set(hosts)

    @contextmanager
    def answering(self, recorder: Recorder) -> Iterator[None]:
        """Within the block, answer requests to the hosts."""
        self.recorder = recorder
        with ExitStack() as stack:
            for owner, name, function in _places() if self._hosts else ():
                new = _bound(function, self, getattr(owner, name))
                stack.enter_context(mock.patch.object(owner, name, new))
            yield

    def see(self, event: str, args: tuple[Any, ...], recorder: Recorder) -> None:
        """Refuse connections, and look-ups of the address of a host."""
        if is_beyond() or event not in _LOOKUPS | _CONNECTS:
            return
        address = args[0] if event in _LOOKUPS else args[-1]
        if address is None or (
            isinstance(address, str | bytes) and event in _CONNECTS and is_ours()
        ):
            return
        host = str(address[0] if isinstance(address, tuple) else address)
        if event in _LOOKUPS and host in {"", socket.gethostname()}:
            return
        recorder.refuse(
            f"the task connects to {host}, which the sandbox refuses: "
            + (
                f"it records only {_KNOWN}"
                if host in self._hosts
                else f"--allow-network {host} lets one run do so, and answers the others from its"
                " recording"
            )
        )

    def may_reach(self, host: str) -> bool:
        """Whether a connection to this host is one to its recording."""
        return host in self._hosts and not is_beyond()

    def answer(self, key: str, ask: Callable[[], Any]) -> Any:
        """Return a host's answer, recorded now or earlier: repeats get the last one again. None:
        it was never heard."""
        if not self.is_recorded:
            with beyond():
                answer = ask()
            self.heard.setdefault(key, []).append(answer)
            return answer
        if not (recorded := self.heard.get(key)):
            self.recorder.trace.unanswered.append(key)
            return None
        return recorded[min(self.recorder.count_answer(key), len(recorded) - 1)]

    def begin(self, request: HttpRequest) -> Callable[[], HttpAnswer]:
        """Come to a request, which is a point, and count it; return the function that returns its
        answer."""
        label = f"{request.method} {request.host}{request.path}"
        self.recorder.reach("request", label)
        if request.method not in _SAFE:
            keys = [v for n, v in request.headers if n.lower().endswith("idempotency-key")]
            default = request.path if request.method in _ONCE else None
            self.recorder.note_request(label, keys[0] if keys else default)
        ask = partial(_ask, request)
        return lambda: self.answer(label, ask) or HttpAnswer(503, "Not Recorded")


def _bound(function: Callable[..., Any], *first: Any) -> Callable[..., Any]:
    return lambda *args, **named: function(*first, *args, **named)


def _ask(request: HttpRequest) -> HttpAnswer:
    kind = http.client.HTTPSConnection if request.is_tls else http.client.HTTPConnection
    connection = kind(request.host, request.port, timeout=PATIENCE_SECONDS)
    headers = {name: value for name, value in request.headers if name.lower() not in _HOPS}
    try:
        connection.request(request.method, request.path, request.body, headers)
        answer = connection.getresponse()
        kept = [each for each in answer.getheaders() if each[0].lower() not in _HOPS]
        return HttpAnswer(answer.status, answer.reason, kept, answer.read())
    finally:
        connection.close()


# -- the libraries: what takes the place of a method gets the network, the method, and its arguments


def _places() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Yield what is replaced, by its owner and name, with what takes its place."""
    for name in ("http.client", "urllib3.connection", "httpx"):
        with suppress(ImportError):
            module = import_module(name)
            if name == "httpx":
                yield module.HTTPTransport, "handle_request", _handle
                yield module.AsyncHTTPTransport, "handle_async_request", _handle_async
            else:
                yield module.HTTPConnection, "connect", _connect
                yield module.HTTPSConnection, "connect", _connect
    yield smtplib.SMTP, "_get_socket", _connect_mail
    yield smtplib.SMTP_SSL, "_get_socket", _connect_mail
    yield smtplib.SMTP, "send", _send
    yield smtplib.SMTP, "getreply", _reply
    yield smtplib.SMTP, "sendmail", _mail


def _connect(network: Network, connect: Callable[..., None], connection: Any) -> None:
    if network.may_reach(connection.host):
        connection.sock, connection.is_verified = _Exchange(network, connection), True
    else:
        connect(connection)


class _Exchange:
    """Stands for the socket of a connection of ``http.client``: what is sent is a request, and the
    file that is read holds the answer."""

    def __init__(self, network: Network, connection: Any) -> None:
        self._network = network
        self._connection = connection
        self._sent = b""

    def sendall(self, data: bytes) -> None:
        """Take a part of the request."""
        self._sent += data

    def makefile(self, *_: Any, **__: Any) -> io.BytesIO:
        """Return the answer to what was sent."""
        sent, self._sent = io.BytesIO(self._sent), b""
        method, path, _version = sent.readline().decode("latin-1").split()
        headers = http.client.parse_headers(sent)
        is_chunked = "chunked" in (headers.get("Transfer-Encoding") or "")
        body = _join_chunks(sent) if is_chunked else sent.read()
        to = self._connection
        is_tls = to.default_port == http.client.HTTPS_PORT
        request = HttpRequest(to.host, to.port, is_tls, method, path, headers.items(), body)
        answer = self._network.begin(request)()
        size = ("Content-Length", str(len(answer.content)))
        lines = [f"{name}: {value}\r\n" for name, value in [*answer.headers, size]]
        head = f"HTTP/1.1 {answer.status} {answer.reason}\r\n{''.join(lines)}\r\n"
        return io.BytesIO(head.encode("latin-1") + answer.content)

    def close(self, *_: Any) -> None:
        """Do nothing: there is no connection."""

    settimeout = shutdown = close


def _join_chunks(file: io.BytesIO) -> bytes:
    body = b""
    while size := int(file.readline().split(b";")[0], 16):
        body += file.read(size)
        file.readline()
    return body


def _handle(network: Network, handle: Callable[..., Any], transport: Any, request: Any) -> Any:
    if not network.may_reach(request.url.host):
        return handle(transport, request)
    return _response_of(request, network.begin(_request_of(request, request.read()))())


async def _handle_async(
    network: Network, handle: Callable[..., Any], transport: Any, request: Any
) -> Any:
    if not network.may_reach(request.url.host):
        return await handle(transport, request)
    answer = network.begin(_request_of(request, await request.aread()))
    return _response_of(request, await asyncio.to_thread(answer))


def _request_of(request: Any, body: bytes) -> HttpRequest:
    url = request.url
    port, is_tls = url.port or _PORTS[url.scheme], url.scheme == "https"
    path, headers = url.raw_path.decode("ascii"), request.headers.multi_items()
    return HttpRequest(url.host, port, is_tls, request.method, path, headers, body)


def _response_of(request: Any, answer: HttpAnswer) -> Any:
    make: Any = import_module("httpx").Response
    return make(answer.status, headers=answer.headers, content=answer.content, request=request)


def _connect_mail(
    network: Network, connect: Callable[..., Any], smtp: Any, host: str, port: int, timeout: Any
) -> Any:
    if not network.may_reach(host):
        return connect(smtp, host, port, timeout)
    network.recorder.reach("request", f"connect to {host}:{port}")
    smtp.server, smtp.asked = f"{host}:{port}", "greeting"
    if network.is_recorded:
        return socket.socket()  # nothing is sent to it, and TLS does not begin
    with beyond():
        return connect(smtp, host, port, timeout)


def _send(network: Network, send: Callable[..., None], smtp: Any, data: Any) -> None:
    smtp.asked = data.split()[0] if isinstance(data, str) else "the mail"
    if not (network.is_recorded and hasattr(smtp, "server")):
        send(smtp, data)


def _reply(network: Network, reply: Callable[[Any], Any], smtp: Any) -> Any:
    if not hasattr(smtp, "server"):
        return reply(smtp)
    answer = network.answer(f"{smtp.asked} of {smtp.server}", lambda: reply(smtp))
    return answer or (250, b"OK")


def _mail(
    network: Network,
    send: Callable[..., Any],
    smtp: Any,
    sender: str,
    to: Any,
    *rest: Any,
    **named: Any,
) -> Any:
    if hasattr(smtp, "server"):
        network.recorder.reach("request", f"mail by {smtp.server}")
    refused = send(smtp, sender, to, *rest, **named)
    if hasattr(smtp, "server"):
        recipients = [to] if isinstance(to, str) else to
        network.recorder.note_request(f"mail to {', '.join(recipients)}", None)
    return refused
