"""How plain tests wait: for what becomes so, and not for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

SECONDS = 60.0  # until a test fails because something did not happen


def until(done: Callable[[], Any], what: str = "", seconds: float = SECONDS) -> Any:
    """Return the first true answer."""
    end = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < end, what
        time.sleep(0.02)
    return found
