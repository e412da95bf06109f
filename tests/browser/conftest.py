"""All tests here need a browser: they are marked so."""

from __future__ import annotations

import pytest

HERE = "tests/browser/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them; one browser serves all of them, so they run in one process."""
    for item in items:
        if item.nodeid.startswith(HERE):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.xdist_group("browser"))
