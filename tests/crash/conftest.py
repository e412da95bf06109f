"""The stage for tests with real processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.crash.harness import Scene, scene


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
