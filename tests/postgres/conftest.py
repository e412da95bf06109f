"""Tests of PostgreSQL only, with the fixtures of the conformance suite."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import bare_session, hands, other_store, session, watcher

__all__ = ["bare_session", "hands", "other_store", "session", "watcher"]


@pytest.fixture
def store_url(pg_url: str) -> str:
    """An empty store: only PostgreSQL."""
    return pg_url
