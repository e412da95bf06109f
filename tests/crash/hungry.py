"""Tasks that take memory, and tasks that say which process they ran in."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import outlast
from harness.journal import begin, note
from tests.crash.application import app

KEPT: list[bytearray] = []
"""What tasks have taken and never give back, as a leak would."""


def take(megabytes: int) -> None:
    """Take memory for good, in steps, each page written."""
    KEPT.extend(bytearray(b"x") * (10 * 1024 * 1024) for _ in range(megabytes // 10))


@app.task(retries=0)
def eats(megabytes: int) -> str:
    """Take memory and stay."""
    begin()
    outlast.current().report(0.5, "eating")
    outlast.current().save_sync({"eaten": 0})
    print("hungry", flush=True)
    take(megabytes)
    note("full", pid=os.getpid())
    time.sleep(600)
    return "full"


@app.task(retries=0)
async def eats_with_neighbours(megabytes: int) -> None:
    begin()
    take(megabytes)
    await asyncio.sleep(600)


@app.task
def leaks(megabytes: int) -> int:
    """Take memory, and return without it."""
    begin()
    take(megabytes)
    return os.getpid()


@app.task
def waits_for(path: str) -> int:
    """Wait for a file; return the process that did."""
    begin()
    while not Path(path).exists():
        time.sleep(0.02)
    return os.getpid()


@app.task
def says_where(seconds: float = 0.05) -> int:
    """Return the process that it ran in, after a while."""
    time.sleep(seconds)
    return os.getpid()
