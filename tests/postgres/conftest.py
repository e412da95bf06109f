"""Tests of PostgreSQL only, with the fixtures of the conformance suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.servers import PostgresMissing, PostgresServer, find_debian_binaries
from tests.conformance.conftest import bare_session, hands, other_store, session, watcher
from tests.databases import Databases
from tests.kept import pytest_asyncio_loop_factories

__all__ = [
    "bare_session",
    "hands",
    "other_store",
    "pytest_asyncio_loop_factories",
    "session",
    "watcher",
]


# Their tests share a database: a new one, with new sessions, took half of their processor time.
# Not for tests of plans, sessions or roles, nor for those that harm what a later test would use.
SHARING = {
    f"test_{name}"
    for name in (
        "astray", "callers_connections", "claim_floors", "dependencies", "events", "functions",
        "held_schedules", "held_suspects", "kept_plans", "limits", "limits_model", "looks_in_parts",
        "many_at_once", "named_lanes", "notices_left", "numbers", "peek", "pruning", "races",
        "repeats", "sound", "strangers", "streams_by_sql", "times", "tokens", "urls", "wake_turns",
        "wakeup",
    )
}  # fmt: skip


@pytest.fixture
def pg_url(
    request: pytest.FixtureRequest, pg_server: PostgresServer, databases: Databases
) -> Iterator[str]:
    """A database with Outlast's empty tables: shared with others, or gone after the test."""
    if request.path.stem in SHARING:
        yield request.getfixturevalue("kept_url")
        return
    name = databases.make()
    yield pg_server.url(name)
    databases.drop(name)


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
