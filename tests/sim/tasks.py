"""What simulated jobs do: real tasks of a real application, run by the real executor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import outlast
from outlast.model.job import Policy
from outlast.store.values import NewJob

app = outlast.App("sqlite:///never-opened.db")
RUNNER: ContextVar[Any] = ContextVar("runner")

BACKOFF = {"backoff_first": 0.2, "backoff_max": 2.0}


@app.task(retries=4, max_losses=40)
async def work(steps: int, pause: float, ending: str, saves: bool, ballast: str = "") -> int:
    """Take some steps, save after each, and end as asked; some endings ask for a retry.
    ``ballast`` is for slow links to carry."""
    attempt = outlast.current()
    done = int(attempt.checkpoint or 0)
    for step in range(done, steps):
        RUNNER.get().step(attempt)
        await asyncio.sleep(pause)
        if saves:
            await attempt.save(step + 1)
        attempt.report(step / steps)
    if attempt.number <= 2:
        await _come_to(ending)
    return steps


async def _come_to(ending: str) -> None:
    if ending == "error":
        raise ValueError("simulated")
    if ending == "snooze":
        raise outlast.Snooze(0.5)
    if ending == "retry":
        raise outlast.Retry(after=0.1)
    if ending == "crash":
        await RUNNER.get().crash()


@app.task(retries=4, max_losses=40)
async def polite(steps: int, pause: float) -> int:
    """Take some steps; when asked to stop, return the number done, as careless code does."""
    attempt = outlast.current()
    done = int(attempt.checkpoint or 0)
    try:
        while done < steps and not attempt.stopping:
            RUNNER.get().step(attempt)
            await asyncio.sleep(pause)
            done += 1
            await attempt.save(done)
    except asyncio.CancelledError:
        return done
    return done


@app.task(retries=1, max_losses=40, timeout=6)
async def stubborn(seconds: float) -> None:
    """Ignore requests to stop for a while."""
    attempt = outlast.current()
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        RUNNER.get().step(attempt)
        try:
            await asyncio.sleep(0.5)
        except asyncio.CancelledError:
            continue


@app.task(retries=3, max_losses=40)
async def poison() -> None:
    """Kill the runner, always."""
    RUNNER.get().step(outlast.current())
    await RUNNER.get().crash()


_PATIENT = Policy(retries=4, max_losses=40, backoff_first=0.2, backoff_max=2.0)
_LIMITED = Policy(retries=1, max_losses=40, backoff_first=0.2, backoff_max=2.0, timeout=6.0)


BALLAST = 100_000  # bytes
_BRIEF = Policy(retries=0, max_losses=40, backoff_first=0.2, backoff_max=2.0, timeout=4.0)


def brief(chance: Callable[[], float], index: int) -> NewJob:
    """Return a job that ends well within its timeout, after which it has no retry."""
    args = {"steps": 2, "pause": 0.2 + chance(), "ending": "complete", "saves": False}
    return NewJob(task="work", args=json.dumps(args), key=f"k{index}", policy=_BRIEF)


def heavy(chance: Callable[[], float], index: int) -> NewJob:
    """Return a job whose arguments take a slow link a second or two."""
    args = {
        "steps": 2, "pause": chance(), "ending": "complete", "saves": False,
        "ballast": "x" * BALLAST,
    }  # fmt: skip
    return NewJob(task="work", args=json.dumps(args), key=f"k{index}", policy=_PATIENT)


def drawn(chance: Callable[[], float], index: int, *, poisons: bool, themed: bool) -> NewJob:
    """Return some job: with ``poisons`` it may take its runner down; ``themed``: often long."""
    dice = chance()
    if poisons and dice < 0.05:
        return NewJob(task="poison", key=f"k{index}", policy=_PATIENT)
    if dice < (0.3 if themed else 0.12):
        args: dict[str, object] = {"seconds": (16.0 if themed else 10.0) * chance()}
        policy = _PATIENT if themed else _LIMITED
        return NewJob(task="stubborn", args=json.dumps(args), key=f"k{index}", policy=policy)
    if dice > 0.9:
        args = {"steps": 2 + int(8 * chance()), "pause": 1.5 * chance()}
        return NewJob(task="polite", args=json.dumps(args), key=f"k{index}", policy=_PATIENT)
    endings = ["complete", "complete", "error", "snooze", "retry", "crash" if poisons else "retry"]
    long = chance() < (0.6 if themed else 0.25)  # longer than a lease
    args = {
        "steps": 8 + int(12 * chance()) if long else 1 + int(6 * chance()),
        "pause": 0.5 + 0.7 * chance() if long else 2.0 * chance() ** 2,
        "ending": endings[int(len(endings) * chance())],
        "saves": chance() < 0.5,
    }
    return NewJob(
        task="work", args=json.dumps(args), key=f"k{index}", policy=_PATIENT,
        delay=3.0 * chance() if chance() < 0.2 else 0.0,
    )  # fmt: skip
