"""Defines the kinds of stores: which one a URL names, and its parts beside the store itself.

Each kind is one ``Backend``, registered in ``outlast/store/__init__.py``. All other code asks the
entry of a URL and never which kind it is. An entry is light: it imports its store, and so its
driver, only when it is asked to open it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from outlast.base.clock import SYSTEM, Clock
from outlast.base.config import URL_DEFAULT, URL_VARIABLE
from outlast.base.credentials import FILE_SCHEMES, check_encoded, check_ends, redact
from outlast.base.forks import importing
from outlast.errors import ConfigError, text_of

if TYPE_CHECKING:
    from outlast.store.finding import Route
    from outlast.store.inspector import ReadableStore
    from outlast.store.lockfile import LockFile
    from outlast.store.protocol import ForeignConnection, ForeignDriver, PresenceLock, Store
    from outlast.store.wakeup import Wakeup


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options for opening a store. Each kind uses the options that concern it.

    Attributes:
        clock: where "now" comes from.
        connections: to a server, at most, per event loop; reserved: how many of them are only for
            a worker's own trips (its exchange, its registration); idle_seconds: how long others
            stay open without being used, None: they are kept.
        notify: whether enqueuing wakes idle workers (NOTIFY takes a global lock at commit).
        statement_timeout: seconds that a server may work on one statement; keep it below the
            lease. connect_timeout: seconds for a new connection.
        busy_timeout: seconds that a call waits for the write lock of a file.
        pooler: a transaction pooler stands between: nothing is kept in the session. One that
            refuses our settings is recognised by that.
        only: the id of the only store that may be here; None: any.
        read_only: never make a file or a schema, never write.
        application: the name of its sessions in lists of the server's sessions.
        lock: the lock file of the worker that beats here; it may carry the beat.
        durable: whether a commit survives a power cut, if the store decides that; False in tests.
    """

    clock: Clock = SYSTEM
    connections: int = 1
    reserved: int = 0
    idle_seconds: float | None = None
    notify: bool = True
    statement_timeout: float = 30.0
    connect_timeout: float = 10.0
    busy_timeout: float = 30.0
    pooler: bool = False
    only: str | None = None
    read_only: bool = False
    application: str = "outlast"
    lock: LockFile | None = None
    durable: bool = True


DEFAULTS = StoreOptions()


class Callers(msgspec.Struct, frozen=True, kw_only=True):
    """How the connections that callers hand in are recognised and used, for one kind of store.

    Attributes:
        kinds: of connections, for people.
        drivers: the class of each kind, as module and name, and the function that makes a driver of
            one. Nothing is imported for it: an object of a library that is not loaded cannot exist.
        engines: of SQLAlchemy, for people; engine_drivers: SQLAlchemy's names of their drivers.
        defers_commit: whether a write on a connection of SQLAlchemy waits for its commit.
        connect: returns the verbs on a connection, from its driver; ``notify``: whether the commit
            of the caller wakes workers; ``clock``; ``file``: the application's, to refuse a copy.
        migrate: brings the schema up to date in the transaction that is open on a connection, for a
            database that no other connection sees, as in tests; None if there is no such database.
    """

    kinds: str
    drivers: tuple[tuple[str, str, Callable[[Any], ForeignDriver]], ...]
    engines: str
    engine_drivers: tuple[str, ...]
    defers_commit: Callable[[Any], bool]
    connect: Callable[..., ForeignConnection]
    migrate: Callable[[ForeignDriver, Clock], Coroutine[Any, Any, object]] | None = None


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of store.

    Attributes:
        schemes: of its URLs.
        forms: URLs for people, each with its meaning if that is not obvious.
        open_store: returns the store at a URL, not yet connected. ConfigError for an
            invalid URL, or if the driver is not installed.
        open_readable: as open_store, without verbs: for a command that only reads.
        open_wakeup: returns the wake-up that announces new jobs to a worker.
        load_callers: returns how callers' own connections are used; None if they cannot be.
        open_presence: returns the lock that a live worker's session holds, given the URL,
            the seconds that one answer may take, and the worker's wake-up; None if the store knows
            no presence.
        find_file: returns the absolute path of the file that a URL (SCHEME:///PATH?OPTIONS) names;
            None if URLs name a server. Workers of a file are on one machine, so that they need no
            messenger.
        read_route: returns how safe the network path to the server is, given the URL and the
            environment variables; None if there is no server.
        make_query: returns the parameters of a URL that connects as another client of that server
            does with these options. ConfigError for options that a URL cannot have.
    """

    schemes: tuple[str, ...]
    forms: tuple[str, ...]
    open_store: Callable[[str, StoreOptions], Store]
    open_readable: Callable[[str, StoreOptions], ReadableStore]
    open_wakeup: Callable[[str, Clock], Wakeup]
    load_callers: Callable[[], Callers] | None = None
    open_presence: Callable[[str, float, Wakeup], PresenceLock] | None = None
    find_file: Callable[[str], Path] | None = None
    read_route: Callable[[str, Mapping[str, str]], Route] | None = None
    make_query: Callable[[Mapping[str, Any]], dict[str, str]] | None = None


_backends: list[Backend] = []


def register(backend: Backend) -> None:
    """Make a kind of store known."""
    _backends.append(backend)
    all_callers.cache_clear()
    if backend.find_file is not None:
        FILE_SCHEMES.update(backend.schemes)


@cache
def all_callers() -> Sequence[Callers]:
    """Return how each kind of store uses callers' connections."""
    with importing:
        return [each.load_callers() for each in _backends if each.load_callers is not None]


def backend_of(url: str) -> Backend:
    """Return the kind of store that a URL names. ConfigError with what to write if it is none."""
    check_ends(url)
    scheme, colon, _ = url.partition(":")
    for each in _backends:
        if colon and scheme in each.schemes:
            return each
    raise _unknown(url)


def resolve_url(url: str | None) -> str:
    """Return ``url``, else ``$OUTLAST_URL``, else a SQLite file in the working directory; a file
    with its absolute path, since a later change of directory would lead to another file.
    ConfigError unless it names a store. An empty ``url`` or variable (from a template that was not
    filled in) is refused: jobs in an unintended file would wait forever.
    """
    if url is None and (given := os.environ.get(URL_VARIABLE)) is not None:
        if not given:
            raise ConfigError(
                f"${URL_VARIABLE} is empty: set it to the URL of the store, or unset it for"
                f" {URL_DEFAULT} in this directory"
            )
        try:
            return resolve_url(given)
        except ConfigError as error:
            raise ConfigError(f"${URL_VARIABLE}: {text_of(error)}") from None
    url = URL_DEFAULT if url is None else url
    if not url.partition("://")[2]:
        raise _unknown(url)
    if (file := file_of(url)) is None:
        return check_encoded(url)
    start, mark, query = url.partition("?")
    return f"{start.partition(':')[0]}:///{quote(os.fsencode(file))}{mark}{query}"


def open_store(url: str, **options: Any) -> Store:
    """Return the store that the URL names, not yet connected; ``options``: of ``StoreOptions``.
    ConfigError for any other URL, or if the driver is not installed."""
    with importing:
        return backend_of(url).open_store(url, StoreOptions(**options))


def open_readable(url: str, **options: Any) -> ReadableStore:
    """As ``open_store``, only to read."""
    return backend_of(url).open_readable(url, StoreOptions(read_only=True, **options))


def file_of(url: str) -> Path | None:
    """Return the absolute path of the file that a URL names; None if it names a server."""
    find_file = backend_of(url).find_file
    with importing:
        return None if find_file is None else find_file(url)


def describe_place(url: str) -> str:
    """Return where the store is, for people: the file's absolute path, or the redacted URL."""
    file = file_of(url)
    return redact(url) if file is None else str(file)


def _unknown(url: str) -> ConfigError:
    forms = " or ".join(form for each in _backends for form in each.forms)
    scheme, end, _ = url.partition("://")
    kind, _, driver = scheme.partition("+")
    known = end and driver.isidentifier() and any(kind in each.schemes for each in _backends)
    more = f"; here no driver is named: leave out '+{driver}'" if known else ""
    return ConfigError(f"{redact(url)!r} is not the URL of a store; write {forms}{more}")
