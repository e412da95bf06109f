"""``outlast`` with a worker whose watchdog never runs."""

from __future__ import annotations

import asyncio

from outlast.cli import main
from outlast.worker.runners.watchdog import Watchdog


async def stuck(self: Watchdog) -> float:
    """Never come back."""
    await asyncio.Event().wait()
    return 0.0


Watchdog.run_once = stuck  # type: ignore[method-assign]

if __name__ == "__main__":
    main()
