"""The tasks of the benchmarks. Each attempt writes to the journal (harness/journal.py)."""

from __future__ import annotations

import asyncio
import re
import threading
import time

import outlast
from harness.journal import begin, note

app = outlast.App()

LIMIT = 2.0  # seconds that a hung task may run, or a loop may be blocked
FOREVER = 3600
SOON = 0.01  # seconds of back-off: what is measured is the watchdog, not the pause after a failure


@app.task
async def noop(value: int = 0) -> int:
    return value


@app.task
async def late() -> float:
    """Return by how many seconds it starts after its tick."""
    tick = outlast.current().tick
    assert tick is not None
    return time.time() - tick.timestamp()


@app.task
async def waits_once() -> int:
    """The first attempt waits; any later one returns at once."""
    attempt = begin()
    if attempt.number == 1:
        await asyncio.sleep(FOREVER)
    return attempt.number


@app.task
def sleeps_once() -> int:
    """The same, deaf to the wish to stop: only the end of its process ends it."""
    attempt = begin()
    if attempt.number == 1:
        time.sleep(FOREVER)
    return attempt.number


@app.task(timeout=LIMIT, backoff_first=SOON)
def hangs_once() -> int:
    attempt = begin()
    if attempt.number == 1:
        time.sleep(FOREVER)
    return attempt.number


@app.task(timeout=LIMIT, backoff_first=SOON)
async def hangs_once_async() -> int:
    """Hangs, and swallows the wish to stop."""
    attempt = begin()
    while attempt.number == 1:
        try:
            await asyncio.sleep(FOREVER)
        except asyncio.CancelledError:
            continue
    return attempt.number


@app.task(timeout=LIMIT, backoff_first=SOON)
async def blocks_loop_once() -> int:
    attempt = begin()
    while attempt.number == 1:
        sum(range(1000))
    return attempt.number


@app.task(timeout=LIMIT, backoff_first=SOON)
async def blocks_loop_in_c_once() -> int:
    attempt = begin()
    if attempt.number == 1:
        hold_gil()
    return attempt.number


@app.task(unresponsive_timeout=LIMIT, backoff_first=SOON)
async def answers_nothing_once() -> int:
    attempt = begin()
    if attempt.number == 1:
        hold_gil()
    return attempt.number


def hold_gil() -> None:
    """Hold the GIL in C, in a regular expression that takes years.

    (``sleep`` called with the GIL held would end at the first signal, such as the one that asks
    for the stacks.)
    """
    re.match("(a+)+$", "a" * 60 + "b")


# --- the steady load of bench/false_alarms.py -----------------------------------------------------


def done(attempt: outlast.Attempt) -> int:
    """Note the end of the work, with the wall clock as this process sees it."""
    note("done", job=attempt.job_id, token=attempt.token, wall=time.time())
    return attempt.number


@app.task
async def short(seconds: float) -> int:
    attempt = begin()
    await asyncio.sleep(seconds)
    return done(attempt)


@app.task
async def long_with_checkpoints(seconds: float) -> int:
    """Works for so long, saving twice a second, from the last checkpoint on."""
    attempt = begin()
    step = attempt.checkpoint or 0
    while step * 0.5 < seconds:
        await asyncio.sleep(0.5)
        step += 1
        attempt.report(min(1.0, step * 0.5 / seconds), f"step {step}")
        await attempt.save(step)
    return done(attempt)


@app.task
def long_plain(seconds: float) -> int:
    attempt = begin()
    # not time.sleep: libfaketime 0.9.10 breaks clock_nanosleep where it leaves the monotonic
    # clock alone
    threading.Event().wait(seconds)
    return done(attempt)
