"""The programs of Prometheus, where they are installed."""

from __future__ import annotations

import shutil

import pytest


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
