"""The test application, broken while a file exists."""

from __future__ import annotations

import os
from pathlib import Path

from tests.crash.tasks import app

if Path(os.environ["OUTLAST_TEST_SWITCH"]).exists():
    raise RuntimeError("broken by a deploy")

__all__ = ["app"]
