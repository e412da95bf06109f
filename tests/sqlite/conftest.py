"""Tests of SQLite only, with the fixtures of the conformance suite."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import hands, other_store, session, watcher

__all__ = ["hands", "other_store", "session", "watcher"]


@pytest.fixture
def store_url(sqlite_url: str) -> str:
    """An empty store: only SQLite."""
    return sqlite_url
