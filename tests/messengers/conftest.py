"""Applications on PostgreSQL whose workers are woken by a messenger."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.messengers.kit import Shop
from tests.nats_server import NatsServer, missing


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """A NATS server shared by the session. Tests that harm a server make their own."""
    why = missing()
    if why:
        pytest.skip(why)
    with NatsServer() as server:
        yield server


@pytest.fixture
async def shop(pg_url: str, nats_server: NatsServer) -> AsyncIterator[Shop]:
    """An application and its store; poll intervals so long that only messages can be the cause."""
    async with Shop.opened(pg_url, nats_server.url) as opened:
        yield opened
