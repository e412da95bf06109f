"""Tests of PostgreSQL only, with the fixtures of the conformance suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.servers import PostgresMissing, PostgresServer, find_debian_binaries
from tests.conformance.conftest import bare_session, hands, other_store, session, watcher

__all__ = ["bare_session", "hands", "other_store", "session", "watcher"]


@pytest.fixture
def store_url(pg_url: str) -> str:
    """An empty store: only PostgreSQL."""
    return pg_url


@pytest.fixture(scope="session")
def debian_server() -> Iterator[PostgresServer]:
    """Debian's PostgreSQL: most people run one that is older than the wheel's."""
    try:
        server = PostgresServer(binaries=find_debian_binaries())
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    with server:
        yield server
