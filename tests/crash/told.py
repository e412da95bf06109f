"""Files beside the journal of a test, to which many processes add lines."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("OUTLAST_TEST_JOURNAL", "/nonexistent")).parent


def write(name: str, what: dict[str, Any]) -> None:
    """Add a line to a file of this test; many processes do."""
    line = json.dumps({"pid": os.getpid(), **what}) + "\n"
    with (FOLDER / name).open("ab", buffering=0) as file:
        file.write(line.encode())


def read(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return what all processes have written."""
    path = folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
