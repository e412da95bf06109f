"""Tasks with limits, for a worker that sleeps."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import outlast

app = outlast.App()
STALL, TIMEOUT = 3.0, 8.0


@app.task(retries=0, stall_timeout=STALL, timeout=TIMEOUT)
def works(flag: str) -> str:
    """Work and report until the flag is there."""
    attempt = outlast.current()
    attempt.save_sync("begun")
    while not Path(flag).exists():
        attempt.check()
        attempt.report(0.5)
        time.sleep(0.05)
    return "done"


@app.task(retries=0, timeout=TIMEOUT)
async def waits(flag: str) -> str:
    """Wait, and use no processor meanwhile, until the flag is there."""
    await outlast.current().save("begun")
    while not Path(flag).exists():
        await asyncio.sleep(0.2)
    return "done"
