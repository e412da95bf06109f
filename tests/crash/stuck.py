"""Tasks that stand still, each in its own way: for the tests of the watchdog."""

from __future__ import annotations

import asyncio
import ctypes
import time
from pathlib import Path

from harness.journal import begin, note
from tests.crash.tasks import app

tasks = app.tasks


@app.task(retries=0, timeout=1.0)
async def hangs_in_an_await() -> None:
    begin()
    await _inner_await()


async def _inner_await() -> None:
    await asyncio.sleep(600)  # the line of hangs_in_an_await


@app.task(retries=0, timeout=1.0)
async def hangs_and_ignores() -> None:
    begin()
    while True:
        try:
            await _inner_await()
        except asyncio.CancelledError:
            continue


@app.task(retries=0, timeout=1.0)
def hangs_in_a_call() -> None:
    begin()
    time.sleep(600)  # the line of hangs_in_a_call


@app.task(retries=0, timeout=1.0)
def loops_in_python() -> None:
    begin()
    all(sum(range(1000)) for _ in iter(int, 1))  # the line of loops_in_python


@app.task(retries=0, timeout=1.0)
def hangs_in_c() -> None:
    begin()
    ctypes.PyDLL(None).sleep(600)  # the line of hangs_in_c


@app.task(retries=0, stall_timeout=1.0)
async def stalls() -> None:
    begin()
    await _inner_await()


@app.task(retries=0, timeout=1.0, cancel_grace=30.0)
def looks_and_obeys() -> None:
    attempt = begin()
    while not attempt.stopping:
        time.sleep(0.01)  # the line of looks_and_obeys
    note("asked", reason=attempt.stop_reason)
    raise RuntimeError("obeyed")


@app.task(retries=0, timeout=1.0, cancel_grace=0.5)
def looks_and_goes_on() -> None:
    attempt = begin()
    while not attempt.stopping:
        time.sleep(0.01)
    note("asked", reason=attempt.stop_reason)
    time.sleep(600)


@app.task(retries=0)
async def blocks_in_python(seconds: float, after: float = 0.0) -> None:
    await asyncio.sleep(after)
    begin()
    until = time.monotonic() + seconds
    any(time.monotonic() > until for _ in iter(int, 1))  # the line of blocks_in_python


@app.task(retries=0)
async def blocks_in_c(seconds: int, after: float = 0.0) -> None:
    await asyncio.sleep(after)
    begin()
    for _ in range(100):
        ctypes.PyDLL(None).sleep(seconds)  # the line of blocks_in_c


@app.task(backoff_first=0.05)
async def first_waits(seconds: float = 600) -> str:
    attempt = begin()
    if attempt.number == 1:
        await asyncio.sleep(seconds)
    return f"attempt {attempt.number}"


@app.task(keep_running_when_isolated=True)
async def waits_though_isolated(flag: str) -> str:
    return await _waits_for(flag)


@app.task(backoff_first=0.05)
async def waits_for_a_flag(flag: str) -> str:
    return await _waits_for(flag)


async def _waits_for(flag: str) -> str:
    attempt = begin()
    while not Path(flag).exists():
        await asyncio.sleep(0.05)
    return f"attempt {attempt.number}"
