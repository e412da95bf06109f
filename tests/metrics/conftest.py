"""A store of each kind, open; and the programs of Prometheus, where they are installed."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from outlast.store import open_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from outlast.store.protocol import Store


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    """An empty store."""
    made = open_store(store_url)
    await made.open()
    yield made
    await made.close()


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name} on this machine: `make debian` installs it")
    return found


@pytest.fixture
def promtool() -> str:
    """Prometheus's tool, for tests marked ``prometheus``."""
    return _program("promtool")


@pytest.fixture
def prometheus() -> str:
    """The server, for tests marked ``prometheus``."""
    return _program("prometheus")
