"""Databases for tests on one server: bare, or copies of one that has Outlast's tables.

A copy takes a fraction of the time in which the migrations make the same tables. All copies have
the same id, except where a test shares a messenger with others.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any, Self

import psycopg

from harness.rounds import MOST, lower_functions
from harness.servers import PostgresServer
from outlast.store import open_store

_TEMPLATE = "outlast_template"
_OWN_ID = "UPDATE outlast_schema SET store_id = gen_random_uuid() WHERE number = 1"
_SESSIONS = "SELECT FROM pg_stat_activity WHERE datname = %s"
_PATIENCE = 0.1  # seconds


class Databases:
    """Makes and drops the databases of one test process, as a context manager."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._session: psycopg.Connection[Any] = psycopg.connect(server.url(), autocommit=True)
        # Copying files is faster than writing each page to the log, which newer servers do.
        newer = self._session.info.server_version >= 150_000
        self._strategy = "STRATEGY file_copy" if newer else ""
        self._has_template = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._session.close()

    def make(self, *, bare: bool = False, own_id: bool = False) -> str:
        """Return the name of a new database, with Outlast's tables unless it is to be bare.

        ``own_id``: it has an id of its own, as what it names on a shared messenger.
        """
        name = f"outlast_test_{next(self._numbers)}"
        if bare:
            self._copy("template0", name)
            return name
        self._make_template()
        self._copy(_TEMPLATE, name)
        if own_id:
            with psycopg.connect(self._server.url(name), autocommit=True) as own:
                own.execute(_OWN_ID)
        return name

    def url(self, name: str) -> str:
        """Return the address of a database."""
        return self._server.url(name)

    def drop(self, name: str) -> None:
        """Drop a database, also while it is in use.

        It waits for a session that is about to end: the server itself would look again only after
        a tenth of a second.
        """
        deadline = time.monotonic() + _PATIENCE
        while self._session.execute(_SESSIONS, [name]).fetchone() and time.monotonic() < deadline:
            time.sleep(0.001)
        self._session.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())

    def _copy(self, template: str, name: str) -> None:
        options = f"TEMPLATE {template} {self._strategy}"
        self._session.execute(f"CREATE DATABASE {name} {options}".encode())

    def _make_template(self) -> None:
        if not self._has_template:
            self._copy("template0", _TEMPLATE)
            asyncio.run(make_tables(self._server.url(_TEMPLATE)))
            if MOST:
                lower_functions(self._server.url(_TEMPLATE), MOST)
            self._has_template = True


async def make_tables(url: str) -> None:
    """Make Outlast's tables in a store that has none."""
    store = open_store(url)
    await store.open()
    await store.close()
