"""Fixtures that every kind of test uses: stores to run on."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.pgbouncer import PgBouncerMissing, PgBouncerServer
from tests.servers import PostgresMissing, PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

settings.register_profile("outlast", deadline=None)  # a busy machine is no finding
settings.load_profile("outlast")
_database_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def pg_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server shared by the session (each xdist process has its own).

    Tests that stop or kill a server make their own: `with PostgresServer() as server: …`.
    """
    try:
        server = PostgresServer()
    except PostgresMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(f"PostgreSQL is needed in CI: {missing}")
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture
def pg_url(pg_server: PostgresServer) -> Iterator[str]:
    """The address of a fresh, empty PostgreSQL database, gone after the test."""
    name = f"outlast_test_{next(_database_numbers)}"
    url = pg_server.create_database(name)
    yield url
    pg_server.drop_database(name)


@pytest.fixture(scope="session")
def pgbouncer(pg_server: PostgresServer) -> Iterator[PgBouncerServer]:
    """A PgBouncer in front of `pg_server` that pools transactions: `pgbouncer.through(pg_url)`.

    For tests marked `pgbouncer`. Those that stop it, or want other settings, make their own, and
    use this one too, so that they are skipped where there is none.
    """
    try:
        server = PgBouncerServer(pg_server.url())
    except PgBouncerMissing as missing:
        pytest.skip(str(missing))
    with server:
        yield server


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The address of a SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'outlast.db'}"


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """An empty store of each kind: a test that uses this runs twice."""
    fixture = {"sqlite": "sqlite_url", "postgres": "pg_url"}[request.param]
    url: str = request.getfixturevalue(fixture)
    return url
