"""Batch tasks, one of whose items may be poison."""

from __future__ import annotations

import asyncio
import os
import time

import outlast
from harness.journal import note
from tests.crash.application import app


def _note(items: list[int]) -> None:
    tokens = [attempt.token for attempt in outlast.current_batch()]
    note("batch", items=items, tokens=tokens, pid=os.getpid())


@app.task(batch=100, batch_wait=0.5, backoff_first=0.01, backoff_max=0.02, retries=1)
async def indexes(items: list[int]) -> list[str]:
    _note(items)
    if -1 in items:
        os._exit(1)
    return [f"item {item}" for item in items]


@app.task(batch=100, batch_wait=0.5, backoff_first=0.01, backoff_max=0.02, retries=1)
def indexes_in_a_thread(items: list[int]) -> list[str]:
    _note(items)
    if -1 in items:
        os._exit(1)
    return [f"item {item}" for item in items]


@app.task(batch=20, batch_wait=0.2)
async def waits_in_a_batch(items: list[int]) -> list[int]:
    """Return at the second time; at the first, wait for the test to do something."""
    _note(items)
    if all(attempt.number == 1 for attempt in outlast.current_batch()):
        await asyncio.sleep(600)
    return items


@app.task(batch=3, batch_wait=5, cancel_grace=0.1)
async def goes_on_without_one(items: list[int]) -> list[int]:
    """Go on for a while once one job is cancelled, longer than a kill would take."""
    _note(items)
    while not any(attempt.cancelled for attempt in outlast.current_batch()):
        await asyncio.sleep(0.01)
    await asyncio.sleep(1.5)
    return items


@app.task(batch=3, batch_wait=3, timeout=0.5, cancel_grace=0.1, retries=0)
async def blocks_in_a_batch(items: list[int]) -> None:
    """Keep the loop from turning."""
    _note(items)
    time.sleep(600)  # noqa: ASYNC251


_ALL = (indexes, indexes_in_a_thread, waits_in_a_batch, goes_on_without_one, blocks_in_a_batch)
tasks = {each.name: each for each in _ALL}
