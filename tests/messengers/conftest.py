"""Applications on PostgreSQL whose workers are woken by a messenger."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from harness import rabbit_server
from harness.certificates import Authority
from harness.nats_server import NatsServer, missing
from harness.rabbit_server import RabbitServer
from harness.servers import PostgresServer
from tests.databases import Databases
from tests.messengers.kit import Shop


@pytest.fixture(scope="session")
def nats_can_start() -> None:
    """Skip where there is no NATS server to start: for tests that make their own."""
    why = missing()
    if why:
        pytest.skip(why)


@pytest.fixture(scope="session")
def nats_server(nats_can_start: None) -> Iterator[NatsServer]:
    """A NATS server shared by the session. Tests that harm a server make their own."""
    with NatsServer() as server:
        yield server


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that signs the certificates of the RabbitMQ node and of its clients."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def rabbit(authority: Authority) -> Iterator[RabbitServer]:
    """A RabbitMQ node shared by the session. A test that harms it restores it."""
    why = rabbit_server.missing()
    if why:
        pytest.skip(why)
    server = RabbitServer()
    server.speak_tls(authority)
    with server:
        yield server


@pytest.fixture
def pg_url(pg_server: PostgresServer, databases: Databases) -> Iterator[str]:
    """A database whose messages are not those of another test."""
    name = databases.make(own_id=True)
    yield pg_server.url(name)
    databases.drop(name)


@pytest.fixture
async def shop(pg_url: str, request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    """An application and its store, with NATS, or RabbitMQ where a test is marked so; poll
    intervals so long that only messages can be the cause."""
    is_rabbit = request.node.get_closest_marker("rabbitmq") is not None
    server = request.getfixturevalue("rabbit" if is_rabbit else "nats_server")
    async with Shop.opened(pg_url, server.url) as opened:
        yield opened
