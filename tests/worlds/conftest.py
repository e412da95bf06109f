"""Worlds: the surroundings in which users found faults, each a fixture that the next is found in.

A world is a server, a pooler, a host or a browser as it stands somewhere else, brought up by its
fixture in seconds and gone after the test. What cannot be had here is skipped, with the reason.
`make worlds` runs them all; `make test` leaves them out.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.servers import PostgresMissing, find_debian_binaries, installed_binaries


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test of this folder as slow."""
    for item in items:
        if item.nodeid.startswith("tests/worlds/"):
            item.add_marker("slow")


@pytest.fixture(scope="session")
def older_binaries() -> Path:
    """Those of Debian's PostgreSQL, for a test that moves a store from there to a newer server."""
    try:
        binaries = find_debian_binaries()
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    old, new = [
        subprocess.check_output([each / "postgres", "--version"])
        for each in (binaries, installed_binaries())
    ]
    if old == new:
        pytest.skip("there is no newer server to move to: OUTLAST_TEST_PG_BIN names Debian's")
    return binaries
