"""Use a database of Django as a store: its URL, and the schema in it.

The settings come from the connection, since tests run on a database of another name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction

from outlast.base.clock import SYSTEM
from outlast.base.sync import drive, run_in_background
from outlast.errors import ConfigError, text_of
from outlast.store import open_store
from outlast.store.backend import backend_of
from outlast.store.foreign import open_driver

_OF_DJANGO = {"isolation_level", "server_side_binding", "pool"}
# The tables that identify the store, hold its last numbers, and what workers announce once.
_KEPT = {"outlast_schema", "outlast_incarnation", "outlast_sequences", "outlast_tasks"}
_IN_TESTS = "memorydb_"  # in the name that Django gives to a test database in memory


def url_of(connection: Any) -> str:
    """Return the URL of the store in a connection's database. ImproperlyConfigured, with what to
    write, if that database cannot be a store."""
    make = _URLS.get(connection.vendor)
    if make is None:
        raise ImproperlyConfigured(
            f"Outlast stores jobs in PostgreSQL and SQLite; {connection.alias!r} is on"
            f" {connection.vendor}: name another with OPTIONS['database'] in TASKS"
        )
    return make(connection)


def _url_of_file(connection: Any) -> str:
    if connection.is_in_memory_db():
        raise ImproperlyConfigured(
            f"the database {connection.alias!r} is in the memory of this process, where no worker"
            " can see it; give its TEST settings a NAME, such as BASE_DIR / 'test.sqlite3'"
        )
    return f"sqlite:///{quote(os.path.abspath(connection.settings_dict['NAME']))}"


def _url_of_server(connection: Any) -> str:
    known = connection.settings_dict
    user, password, host, port = (
        str(known[name] or "") for name in ("USER", "PASSWORD", "HOST", "PORT")
    )
    query = _query(connection.alias, known["OPTIONS"])
    hosts = ",".join(f"[{each}]" if ":" in each else each for each in host.split(","))
    address = f"{hosts}:{port}" if port else hosts
    if not host or host.startswith("/") or "," in address:  # a port may be for all hosts
        named = {"host": hosts, "port": port}
        query = {name: value for name, value in named.items() if value} | query
        address = ""
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    end = f"?{urlencode(query, quote_via=quote, safe='/')}" if query else ""
    place = f"{login}@{address}" if login else address
    return f"postgresql://{place}/{quote(str(known['NAME'] or ''), safe='')}{end}"


def _query(alias: str, options: Mapping[str, Any]) -> dict[str, str]:
    make = backend_of("postgresql://").make_query
    assert make is not None
    try:
        return make({name: value for name, value in options.items() if name not in _OF_DJANGO})
    except ConfigError as error:
        raise ImproperlyConfigured(
            f"workers cannot connect to {alias!r} by Django's options: {text_of(error)}; name the"
            " store with OPTIONS['url'] in TASKS"
        ) from None


_URLS: dict[str, Callable[[Any], str]] = {"sqlite": _url_of_file, "postgresql": _url_of_server}


def migrate(connection: Any) -> None:
    """Bring the schema in this connection's database up to date."""
    if is_in_memory(connection):
        atomic: Any = transaction.atomic
        with atomic(using=connection.alias):
            driver, callers = open_driver(connection)
            assert callers.migrate is not None
            drive(callers.migrate(driver, SYSTEM))
        return
    url = url_of(connection)
    try:
        run_in_background(lambda: _migrate(url))
    except ConfigError as error:
        raise ImproperlyConfigured(text_of(error)) from error


async def _migrate(url: str) -> None:
    store = open_store(url)
    try:
        await store.migrate()
    finally:
        await store.close()


def empty(alias: str) -> None:
    """Delete all jobs, workers, schedules, pauses and the rows about them. The schema, its id and
    the issued numbers stay, so no token is issued twice."""
    connection: Any = connections[alias]
    own = [name for name in connection.introspection.table_names() if name.startswith("outlast_")]
    atomic: Any = transaction.atomic
    with atomic(using=alias), connection.cursor() as cursor:
        for name in sorted({*own} - _KEPT):
            cursor.execute(f"DELETE FROM {connection.ops.quote_name(name)}")  # noqa: S608  (quoted)


def begins_by_reading(connection: Any) -> bool:
    """Whether a transaction takes the write lock only at its first write, which fails if another
    has written since its first read. Only Django's backend for SQLite has that option."""
    mode = connection.settings_dict["OPTIONS"].get("transaction_mode") or "DEFERRED"
    return hasattr(connection, "transaction_modes") and str(mode).upper() == "DEFERRED"


def is_of_tests(connection: Any) -> bool:
    """Whether Django has made this database in memory for tests, most of which need no worker."""
    return is_in_memory(connection) and _IN_TESTS in str(connection.settings_dict["NAME"])


def is_in_memory(connection: Any) -> bool:
    """Whether only this process sees the database, as in most tests on SQLite."""
    look: Callable[[], bool] | None = getattr(connection, "is_in_memory_db", None)
    return look is not None and look()
