"""``outlast`` as on a machine of its own: its workers have another boot id, so that they see no
lock file of others, and no others see theirs. Their lock files are real."""

from __future__ import annotations

import os
from pathlib import Path

from outlast.store import lockfile

BOOT_ID = "OUTLAST_TEST_BOOT_ID"


def as_on(name: str, folder: Path) -> dict[str, str]:
    """Return the environment of a worker on a host of this name."""
    return {
        "OUTLAST_TEST_MODULE": "harness.other_host",
        BOOT_ID: f"boot of {name}",
        "OUTLAST_RUN_DIR": str(folder / name),
    }


if __name__ == "__main__":
    lockfile.boot_id = lambda: os.environ[BOOT_ID]  # before other modules import it
    from outlast.cli import main

    main()
