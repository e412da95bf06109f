"""The stage for tests with real processes; and which of them `make test` runs, too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.crash.harness import Scene, scene

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before the expression of -m is applied
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take each of these tests for slow, but for one of each kind, which is marked `short`."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("short") is None:
            item.add_marker("slow")


@pytest.fixture
async def stage(store_url: str, tmp_path: Path) -> AsyncIterator[Scene]:
    """A scene on each store."""
    async with scene(store_url, tmp_path) as opened:
        yield opened


@pytest.fixture
async def sqlite_stage(sqlite_url: str, tmp_path: Path) -> AsyncIterator[Scene]:
    """A scene on SQLite, where the store makes no difference."""
    async with scene(sqlite_url, tmp_path) as opened:
        yield opened
