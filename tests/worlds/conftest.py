"""Worlds: the surroundings in which users found faults, each a fixture that the next is found in.

A world is a server, a pooler, a host or a browser as it stands somewhere else, brought up by its
fixture in seconds and gone after the test. What cannot be had here is skipped, with the reason.
`make worlds` runs them all; `make test` leaves them out.
"""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test of this folder as slow."""
    for item in items:
        if item.nodeid.startswith("tests/worlds/"):
            item.add_marker("slow")
