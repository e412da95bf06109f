"""The stage for tests with real processes; and which of them `make test` runs, too."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.scene import Scene
from tests.conftest import is_on
from tests.crash.kit import scene, shown

HERE = "tests/crash/"
# They are about workers and their runners, which know no store: on SQLite they are long.
OF_RUNNERS = {
    f"test_{each}.py"
    for each in ("bad_applications", "deploys", "encoded", "evidence", "output", "recalls")
} | {"test_runner_deaths.py", "test_suspects.py", "test_waits.py"}


@pytest.hookimpl(tryfirst=True)  # before the expression of -m is applied
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each of these tests as slow, except those marked `short`: one of each kind, and on
    PostgreSQL where it runs on each store."""
    for item in items:
        if not item.nodeid.startswith(HERE):
            continue
        if item.get_closest_marker("short") is None or is_on(item, "sqlite"):
            item.add_marker("slow")
        if item.path.name in OF_RUNNERS and is_on(item, "sqlite"):
            item.add_marker("long")


@contextlib.asynccontextmanager
async def played(url: str, folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """Open a scene; after the test, hold it to the kinds of crash that its marker names."""
    async with scene(url, folder) as opened:
        yield opened
        short = request.node.get_closest_marker("short")
        if short is not None and short.args:
            assert set(short.args) <= await shown(opened)


@pytest.fixture
async def stage(
    store_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Scene]:
    """A scene on each store."""
    async with played(store_url, tmp_path, request) as opened:
        yield opened


@pytest.fixture
async def sqlite_stage(
    sqlite_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Scene]:
    """A scene on SQLite, where the store makes no difference."""
    async with played(sqlite_url, tmp_path, request) as opened:
        yield opened


@pytest.fixture
async def pg_stage(
    pg_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Scene]:
    """A scene on PostgreSQL, for what only a server does."""
    async with played(pg_url, tmp_path, request) as opened:
        yield opened
