"""Refuse the network, except hosts whose answers one run may record; answer the others from that.

An allowed host gets an address that does not exist, and a connection to it ends at a server of this
process. In the first run that server asks the host; later it answers by itself. So that it can
read, only the server speaks TLS to the host: in a run, contexts of ``ssl`` do not encrypt. It
speaks HTTP/1.1 and SMTP.
"""

from __future__ import annotations

import http.client
import select
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest import mock

import msgspec

from outlast.errors import describe
from outlast.testing.crashes.plain_tls import PlainObject, PlainSocket
from outlast.testing.crashes.recorder import Recorder, is_ours
from outlast.testing.crashes.servers import is_connecting

HEAD_MAX, BODY_MAX = 1 << 20, 64 << 20  # bytes of a request
PATIENCE_SECONDS = 30.0  # for a host's answer
_LOOK_SECONDS = 0.02  # between looks whether a client has begun TLS
_LOCAL = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::ffff:127.0.0.1"}
_FAKE = "240.0.0."  # reserved: no host has such an address
_HOSTS_MAX = 250
_SAFE, _ONCE = {"GET", "HEAD", "OPTIONS"}, {"PUT", "DELETE"}
_HOPS = {"transfer-encoding", "content-length", "connection", "keep-alive"}
_thread = threading.local()

Target = tuple[str, int]


class Heard(msgspec.Struct):
    """The messages of the first run. ``tls``: where a client has begun TLS; ``last``: where a host
    was last connected to."""

    answers: dict[tuple[Target, str], list[bytes]] = {}
    tls: set[Target] = set()
    last: dict[str, Target] = {}


class Network:
    """The network of all runs. ``is_recorded``: whether answers come from the recording."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = list(dict.fromkeys(hosts))[:_HOSTS_MAX]
        self.is_recorded = False
        self.heard = Heard()
        self.recorder = Recorder()
        self._ports: dict[Target, int] = {}
        self._servers: list[socket.socket] = []

    def close(self) -> None:
        """Stop answering."""
        for server in self._servers:
            server.close()
        self._servers, self._ports = [], {}

    @contextmanager
    def answering(self, recorder: Recorder) -> Iterator[None]:
        """Within the block, answer requests to the hosts."""
        self.recorder = recorder
        if not self._hosts:
            yield
            return
        ask, connect = socket.getaddrinfo, socket.socket.connect
        connect_ex, send = socket.socket.connect_ex, smtplib.SMTP.sendmail

        def getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
            return ask(self._fake(host), port, *args, **kwargs)

        def sendmail(smtp: smtplib.SMTP, *args: Any, **kwargs: Any) -> Any:
            host = getattr(smtp, "_host", "")
            recorder.reach("request", f"mail by {host}")
            return send(smtp, *args, **kwargs)

        with ExitStack() as stack:
            for owner, name, new in (
                (socket, "getaddrinfo", getaddrinfo),
                (socket.socket, "connect", self._redirecting(connect)),
                (socket.socket, "connect_ex", self._redirecting(connect_ex)),
                (smtplib.SMTP, "sendmail", sendmail),
                (ssl.SSLContext, "wrap_socket", self._wrapping(_REAL_WRAP, PlainSocket)),
                (ssl.SSLContext, "wrap_bio", self._wrapping(ssl.SSLContext.wrap_bio, PlainObject)),
            ):
                stack.enter_context(mock.patch.object(owner, name, new))
            yield

    def see(self, event: str, args: tuple[Any, ...], recorder: Recorder) -> None:
        """Refuse connections, and look-ups of the address of a host."""
        if getattr(_thread, "is_host", False) or is_connecting():
            return
        if event in {"socket.connect", "socket.sendto", "socket.sendmsg"}:
            address = args[-1]
            if address is None or (isinstance(address, str | bytes) and is_ours()):
                return
            host = str(address[0]) if isinstance(address, tuple) else str(address)
            if isinstance(address, tuple) and address[1] in self._ports.values():
                return
        elif event in {"socket.getaddrinfo", "socket.gethostbyname"}:
            host = str(args[0])
            known = {*self._hosts, "None", "", socket.gethostname()}
            if host.startswith(_FAKE) or host in known:
                return
        else:
            return
        recorder.refuse(
            f"the task connects to {host}, which the sandbox refuses: --allow-network {host} lets"
            " one run do so, and answers the others from its recording"
        )

    # -- the way to our own server -------------------------------------------------------------

    def _fake(self, host: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        is_real = getattr(_thread, "is_host", False) or name not in self._hosts
        return host if is_real else f"{_FAKE}{1 + self._hosts.index(name)}"

    def _target_of(self, address: Any) -> Target | None:
        if not isinstance(address, tuple) or getattr(_thread, "is_host", False):
            return None
        host = str(address[0])
        if host.startswith(_FAKE):
            host = self._hosts[int(host.removeprefix(_FAKE)) - 1]
        return (host, int(address[1])) if host in self._hosts else None

    def _redirecting(self, connect: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def connect_here(sock: socket.socket, address: Any) -> Any:
            target = self._target_of(address)
            if target is None:
                return connect(sock, address)
            try:
                self.recorder.reach("request", f"connect to {target[0]}:{target[1]}")
            except BaseException:
                sock.close()
                raise
            self.heard.last[target[0]] = target
            return connect(sock, (_LOCAL[sock.family], self._serve(target)))

        return connect_here

    def _serve(self, target: Target) -> int:
        """Return the port of the server for this host and port, which is started if need be."""
        if target not in self._ports:
            server = socket.create_server(("127.0.0.1", 0))
            self._servers.append(server)
            self._ports[target] = server.getsockname()[1]
            _start(_accept, self, server, target)
        return self._ports[target]

    def _wrapping(self, wrap: Callable[..., Any], make: Callable[..., Any]) -> Callable[..., Any]:
        """Return the ``wrap_socket`` or ``wrap_bio`` of a run: what ends here is not encrypted."""

        def wrap_here(context: Any, *given: Any, **kwargs: Any) -> Any:
            name = kwargs.get("server_hostname")
            host = name.decode() if isinstance(name, bytes) else name
            if host not in self.heard.last or getattr(_thread, "is_host", False):
                return wrap(context, *given, **kwargs)
            self.heard.tls.add(self.heard.last[host])
            return make(*given)

        return wrap_here


def _start(function: Callable[..., None], *args: Any) -> None:
    def run() -> None:
        _thread.is_host = True
        with suppress(OSError):  # the other end is gone
            function(*args)

    thread = threading.Thread(target=run, name="outlast-crash-network", daemon=True)
    thread.start()


def _accept(network: Network, server: socket.socket, target: Target) -> None:
    while True:
        client, _ = server.accept()
        _start(_Conversation(network, client, target).run)


class _Conversation:
    """One connection of the task, with the host or with the recording behind it."""

    def __init__(self, network: Network, client: socket.socket, target: Target) -> None:
        self._network = network
        self._client = client
        self._target = target
        self._recorder = network.recorder
        self._host: socket.socket | None = None
        self._is_tls = False

    def run(self) -> None:
        """Serve until the end of the connection."""
        try:
            if self._host_speaks_first():
                self._speak_smtp()
                self._network.heard.tls.discard(self._target)  # the next one begins without it
            else:
                self._speak_http()
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._recorder.trace.unanswered.append(f"{self._target[0]}: {describe(error)}")
        finally:
            for each in (self._client, self._host):
                if each is not None:
                    each.close()

    def _host_speaks_first(self) -> bool:
        network = self._network
        if network.is_recorded:
            return (self._target, "greeting") in network.heard.answers
        self._connect()
        while True:
            assert self._host is not None
            ready, _, _ = select.select([self._client, self._host], [], [], _LOOK_SECONDS)
            if self._target in network.heard.tls and not self._is_tls:
                self._connect()  # the client has begun TLS
            elif ready:
                return self._client not in ready

    def _connect(self) -> None:
        if self._host is not None:
            self._host.close()
        self._host = socket.create_connection(self._target, PATIENCE_SECONDS)
        if self._target in self._network.heard.tls:
            self._encrypt()

    def _encrypt(self) -> None:
        assert self._host is not None
        context = ssl.create_default_context()
        self._host = _REAL_WRAP(context, self._host, server_hostname=self._target[0])
        self._is_tls = True

    def _answer(self, key: str, ask: Callable[[], bytes]) -> bytes:
        """Return the host's answer, recorded now or earlier: repeats get the last one again."""
        answers = self._network.heard.answers
        if not self._network.is_recorded:
            answer = ask()
            answers.setdefault((self._target, key), []).append(answer)
            return answer
        recorded = answers.get((self._target, key))
        if not recorded:
            self._recorder.trace.unanswered.append(f"{key} of {self._target[0]}")
            return b""
        at = self._recorder.count_answer((self._target, key))
        return recorded[min(at, len(recorded) - 1)]

    # -- HTTP ----------------------------------------------------------------------------------

    def _speak_http(self) -> None:
        file = self._client.makefile("rb")
        first = file.readline(HEAD_MAX)
        if not first:
            return
        headers = http.client.parse_headers(file)
        length = int(headers.get("Content-Length") or 0)
        if "chunked" in (headers.get("Transfer-Encoding") or ""):
            body = _read_chunks(file)
        else:
            body = file.read(min(length, BODY_MAX))
        method, path, *_ = first.decode("latin-1").split()
        self._note_request(method, path, headers)
        answer = self._answer(f"{method} {path}", lambda: self._ask(first, headers, method, body))
        self._client.sendall(answer or b"HTTP/1.1 503 Not Recorded\r\nContent-Length: 0\r\n\r\n")

    def _note_request(self, method: str, path: str, headers: Any) -> None:
        keys = [
            value for name, value in headers.items() if name.lower().endswith("idempotency-key")
        ]
        label = f"{method} {self._target[0]}{path}"
        if method not in _SAFE:
            key = keys[0] if keys else path if method in _ONCE else None
            self._recorder.note_request(label, key, f"{self._target[0]}:{self._target[1]}")

    def _ask(self, first: bytes, headers: Any, method: str, body: bytes) -> bytes:
        """Send a request to the host; return its whole answer, in one piece."""
        if self._host is None:
            self._connect()
        assert self._host is not None
        kept = [(name, value) for name, value in headers.items() if name.lower() not in _HOPS]
        kept += [("Content-Length", str(len(body))), ("Connection", "close")]
        self._host.sendall(first + _head(kept) + body)
        answer = http.client.HTTPResponse(self._host, method=method)
        answer.begin()
        content = answer.read()
        kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOPS]
        kept += [("Content-Length", str(len(content))), ("Connection", "close")]
        status = f"HTTP/1.1 {answer.status} {answer.reason}\r\n".encode("latin-1")
        return status + _head(kept) + content

    # -- SMTP ----------------------------------------------------------------------------------

    def _speak_smtp(self) -> None:
        """Pass commands and replies; only a recording run reaches the host."""
        recipients: list[str] = []
        self._client.sendall(self._answer("greeting", self._reply))
        file = self._client.makefile("rb")
        while line := file.readline(HEAD_MAX):
            verb = line.split(b" ")[0].strip().upper().decode("latin-1")
            reply = self._answer(verb, lambda sent=line: self._reply(sent)) or b"250 OK\r\n"  # type: ignore[misc]
            if verb == "RCPT":
                recipients.append(line.partition(b":")[2].split()[0].decode("latin-1").strip("<>"))
            if verb == "STARTTLS" and self._host is not None:
                self._encrypt()
            self._client.sendall(reply)
            if verb == "DATA" and reply.startswith(b"354"):
                mail = _read_mail(file)
                self._recorder.note_request(
                    f"mail to {', '.join(recipients)}", None, self._target[0]
                )
                recipients = []
                self._client.sendall(self._answer("the mail", lambda sent=mail: self._reply(sent)))  # type: ignore[misc]

    def _reply(self, sent: bytes = b"") -> bytes:
        """Send this to the host; return its reply, of one line or several."""
        assert self._host is not None
        self._host.sendall(sent)
        reply = b""
        while True:
            line = b""
            while not line.endswith(b"\n"):
                byte = self._host.recv(1)
                if not byte:
                    return reply + line
                line += byte
            reply += line
            if line[3:4] != b"-":
                return reply


_REAL_WRAP = ssl.SSLContext.wrap_socket


def _head(headers: Sequence[tuple[str, str]]) -> bytes:
    lines = [f"{name}: {value}\r\n" for name, value in headers]
    return "".join([*lines, "\r\n"]).encode("latin-1")


def _read_chunks(file: Any) -> bytes:
    body = b""
    while size := int(file.readline(HEAD_MAX).split(b";")[0], 16):
        body += file.read(min(size, BODY_MAX))
        file.readline(HEAD_MAX)
    file.readline(HEAD_MAX)
    return body


def _read_mail(file: Any) -> bytes:
    mail = b""
    while (line := file.readline(HEAD_MAX)) and line != b".\r\n":
        mail += line
    return mail + b".\r\n"
