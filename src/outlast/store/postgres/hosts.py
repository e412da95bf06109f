"""Finds the host that answers, among several in a URL and several addresses of one name.

A host without power answers nothing; one whose disk hangs accepts a connection and says nothing.
The driver tries them in turn under one timeout, which the first can use up. So each is tried
separately, ``STAGGER_SECONDS`` after the one before it, or once that one has failed. The first
session wins; the other tries are ended. While one host is silent, hosts that have refused are
asked again: a standby may be the primary by then.
"""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401  # which a look-up imports, and no fork would wait for that
import os
import socket
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from outlast.errors import text_of
from outlast.store.postgres.errors import NotMatched, NotReady

T = TypeVar("T", bound=Hashable)
Host = tuple[str, int]  # its name or address, or the path of a socket; the port

STAGGER_SECONDS = 0.5
AGAIN_SECONDS = 1.0  # of silence, before those that have refused are asked again
STANDBY_SECONDS = 2.0  # for a standby to answer, where one is preferred; at most half of the time
ENDING_SECONDS = 1.0  # for a try to end once it is cancelled
# Why a host does not do for this attribute. Where all would do, the first that answers is meant.
LACKS = {
    "primary": "it is a standby",
    "read-write": "it is a standby, or read-only",
    "standby": "it is not a standby",
    "read-only": "it takes writes",
}
PRIMARY, STANDBY, READ_ONLY = ROLES = ("the primary", "a standby", "read-only")
_answered: dict[Hashable, Hashable] = {}  # the way by which a session was reached last


class Door:
    """The running loop as the driver sees it, but all connections are made to one address; None: to
    none, and ``asked`` gets the hosts that the driver would try."""

    def __init__(self, address: Host | None = None) -> None:
        self.asked: list[Host] = []
        self._address = address
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def create_connection(
        self, factory: Any, host: Any = None, port: Any = None, **more: Any
    ) -> Awaitable[Any]:
        """Connect to the address; the server's certificate still has to name the host."""
        if self._address is None:
            return self._refuse(host, port)
        if host is None:  # over a socket that was made before
            return self._loop.create_connection(factory, **more)
        if more.get("ssl"):
            more.setdefault("server_hostname", host)
        return self._loop.create_connection(factory, *self._address, **more)

    def create_unix_connection(self, _factory: Any, path: str) -> Awaitable[Any]:
        return self._refuse(path, int(path.rpartition(".")[2]))

    async def _refuse(self, *host: Any) -> None:
        self.asked.append(host)
        raise ConnectionRefusedError


async def reach_host(url: str, seconds: float, connect: Callable[..., Awaitable[Any]]) -> Any:
    """Return a session with the host that answers first, and has what the URL asks for, within
    ``seconds``; ``connect``: the driver's, with all other arguments.

    Where standbys are preferred, the first seconds are theirs.
    """
    attributes, loop = attributes_of(url), asyncio.get_running_loop()
    hosts = await _hosts_of(connect)
    end = loop.time() + seconds

    async def open_host(host: Host, until: float, **more: Any) -> Any:
        more |= {"host": host[0], "port": host[1]}
        try:
            async with asyncio.timeout_at(until):
                addresses = await _addresses_of(*host)
                if len(addresses) <= 1:
                    return await connect(**more)
                return await _reach(
                    (url, host), addresses, lambda address: connect(loop=Door(address), **more)
                )
        except NotMatched:
            why = LACKS.get(attributes, "it is not what target_session_attrs asks for")
            raise ConnectionError(why) from None
        except Unreached as unreached:
            raise unreached.most_telling() from None

    key = url if attributes in LACKS else None  # otherwise one could stay with a standby for good
    if attributes == "prefer-standby":
        soon = loop.time() + min(seconds / 2, STANDBY_SECONDS)
        with suppress(Unreached):
            return await _reach(
                key, hosts, lambda host: open_host(host, soon, target_session_attrs="standby")
            )
    only = {"target_session_attrs": "any"} if attributes == "prefer-standby" else {}
    try:
        return await _reach(key, hosts, lambda host: open_host(host, end, **only))
    except Unreached as unreached:
        raise unreached.of_hosts() from None


async def ask_hosts(seconds: float, connect: Callable[..., Awaitable[Any]]) -> dict[str, str]:
    """Return the role (``ROLES``) of each host that ``connect`` would try, or why it gives no
    session within ``seconds``."""

    async def ask(host: Host) -> str:
        try:
            async with asyncio.timeout(seconds):
                session = await connect(host=host[0], port=host[1], target_session_attrs="any")
        except Exception as error:
            return _reason(error)
        settings = session.get_settings()
        session.terminate()
        if getattr(settings, "in_hot_standby", "off") == "on":
            return STANDBY
        return READ_ONLY if settings.default_transaction_read_only == "on" else PRIMARY

    hosts = await _hosts_of(connect)
    roles = await asyncio.gather(*map(ask, hosts))
    return {_name(*host): role for host, role in zip(hosts, roles, strict=True)}


async def _hosts_of(connect: Callable[..., Awaitable[Any]]) -> list[Host]:
    door = Door()
    with suppress(ConnectionRefusedError):  # by the door; others tell of a certificate
        await connect(loop=door)
    return list(dict.fromkeys(door.asked))


def attributes_of(url: str) -> str:
    """Return ``target_session_attrs`` from the URL or the environment."""
    asked = dict(parse_qsl(url.partition("?")[2])).get("target_session_attrs")
    return asked or os.environ.get("PGTARGETSESSIONATTRS") or "any"


async def _addresses_of(host: str, port: int) -> list[Host]:
    """Return the addresses of a name; none of a socket in the file system."""
    if host.startswith("/"):
        return []
    kind, numeric = socket.SOCK_STREAM, socket.AI_NUMERICHOST
    try:  # without a thread, which the handlers of atexit cannot have
        found = socket.getaddrinfo(host, port, type=kind, flags=numeric)
    except socket.gaierror:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=kind)
    return list(dict.fromkeys((str(name), int(at)) for *_, (name, at, *_) in found))


async def _reach(key: Hashable, ways: Sequence[T], open_: Callable[[T], Awaitable[Any]]) -> Any:
    """Return the first connection of those that ``open_`` makes by these ways; the one that was the
    first before under this key is tried first (None: in the given order). Raises ``Unreached``."""
    last = _answered.get(key)
    left = sorted(ways, key=lambda way: way != last)
    tries: dict[asyncio.Task[Any], T] = {}
    winner: asyncio.Task[Any] | None = None
    try:
        while left or tries:
            if left:
                way = left.pop(0)
                tries[asyncio.ensure_future(open_(way))] = way
            pending = [each for each in tries if not each.done()]
            seconds = STAGGER_SECONDS if left else AGAIN_SECONDS
            done, _ = await asyncio.wait(
                pending, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            winner = next((each for each in tries if _has_won(each)), None)
            if winner is not None:
                if key is not None and len(ways) > 1:
                    _answered[key] = tries[winner]
                return winner.result()
            if len(tries) >= len(ways) and all(each.done() for each in tries):
                break
            if not (left or done):
                asked = [tries[each] for each in pending]
                left = [way for way in ways if way not in asked]
    finally:
        others = [each for each in tries if each is not winner]
        for each in others:
            each.cancel()
            each.add_done_callback(_close)
        if any(not each.done() for each in others):
            try:
                await asyncio.wait(others, timeout=ENDING_SECONDS)
            except asyncio.CancelledError:
                if winner is not None:
                    _close(winner)  # its caller is gone
                raise
    failed = {tries[each]: error for each in tries if (error := each.exception())}
    raise Unreached([*failed.items()])


class Unreached(Exception):
    """No way leads to a session; ``failures``: each way, with its error."""

    def __init__(self, failures: list[tuple[Any, BaseException]]) -> None:
        super().__init__()
        self.failures = failures

    def most_telling(self) -> BaseException:
        """Return the error of a server that answered, if there is one; first one that is ready to
        say what it refuses."""

        def rank(error: BaseException) -> tuple[bool, bool]:
            is_starting = isinstance(error, NotReady)
            return isinstance(error, (OSError, UnicodeError)), is_starting

        return min((error for _, error in self.failures), key=rank)

    def of_hosts(self) -> BaseException:
        """Return one error for all hosts, of the most telling kind, that names each with its
        reason. A socket that is not there is one of several places where the driver looks."""
        told = [each for each in self.failures if not isinstance(each[1], FileNotFoundError)]
        if len(told) <= 1:
            return (told or self.failures)[-1][1]
        telling = self.most_telling()
        kind = ConnectionError if isinstance(telling, UnicodeError) else type(telling)
        return kind("; ".join(f"{_name(*host)}: {_reason(error)}" for host, error in told))


def _name(host: str, port: int) -> str:
    return host if host.startswith("/") else f"{host}:{port}"


def _reason(error: BaseException) -> str:
    return "no answer" if isinstance(error, TimeoutError) and not error.args else text_of(error)


def _has_won(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _close(task: asyncio.Task[Any]) -> None:
    if _has_won(task):
        task.result().terminate()
