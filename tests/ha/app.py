"""The application of the drills. Each attempt writes to the journal when it began and was done,
and returns its own token: a result that was accepted under any other token is seen by that."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import outlast
from harness.journal import boot, note

app = outlast.App()
STEPS = 3


def begin(**fields: object) -> outlast.Attempt:
    attempt = outlast.current()
    tell("start", attempt, pid=os.getpid(), task=attempt.task, **fields)
    return attempt


def tell(event: str, attempt: outlast.Attempt, **fields: object) -> None:
    note(event, job=attempt.job_id, token=attempt.token, number=attempt.number, **fields)


def done(attempt: outlast.Attempt) -> dict[str, Any]:
    tell("done", attempt)
    return {"token": attempt.token}


@app.task
async def work(seconds: float) -> dict[str, Any]:
    attempt = begin(step=0)
    await asyncio.sleep(seconds)
    return done(attempt)


@app.task
async def due() -> dict[str, Any]:
    """Is enqueued long before it is due, so that there is work even while a producer waits."""
    return done(begin(step=0))


@app.task
async def steps(pause: float) -> dict[str, Any]:
    """Saves what it has done, also while the database is away."""
    step = (outlast.current().checkpoint or {"step": 0})["step"]
    attempt = begin(step=step)
    for number in range(step + 1, STEPS + 1):
        await asyncio.sleep(pause)
        asked_at = boot()
        await attempt.save({"step": number})
        tell("saved", attempt, step=number, asked_at=asked_at)
    return done(attempt)


@app.task
async def repeats(seconds: float) -> dict[str, Any]:
    """Runs a second time under another token, while its first attempt's end is handed in late."""
    attempt = begin(step=0)
    if attempt.number == 1:
        raise outlast.Snooze(0.1)
    await asyncio.sleep(seconds)
    return done(attempt)
