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


@app.task(retries=4, max_losses=40)
async def work(
    steps: int, pause: float, ending: str, saves: bool, ballast: str = "", again: bool = False
) -> int:
    """Take some steps, save after each, and end as asked; some endings ask for a retry.
    ``ballast`` is for slow links to carry; ``again``: first save what was saved last."""
    attempt = outlast.current()
    done = int(attempt.checkpoint or 0)
    if again:
        RUNNER.get().step(attempt)
        await attempt.save(done)
    for step in range(done, steps):
        RUNNER.get().step(attempt)
        await asyncio.sleep(pause)
        if saves:
            await attempt.save(step + 1)
        attempt.report(step / steps)
    if ending == "lost":
        await RUNNER.get().take_its_worker_down()
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


def release(*, sealed: bool, **tasks: Callable[..., Any]) -> outlast.App:
    """Return the application with some more tasks; ``sealed``: what it stores is encrypted, so that
    the same is never stored as the same text."""
    codecs = [outlast.Encryption({"2026": KEY})] if sealed else []
    one = outlast.App(app.url, payloads=codecs)
    one.tasks.update(app.tasks)
    for name, function in tasks.items():
        one.task(name=name)(function)
    return one


KEY = "A" * 43 + "="
SEALED = release(sealed=True)


def plain(kind: str, text: str | None) -> str | None:
    """Return what was stored, sealed or not, as JSON."""
    return None if text is None else SEALED.stores.payloads.decode(kind, text)


_PATIENT = Policy(retries=4, max_losses=40, backoff_first=0.2, backoff_max=2.0)
_LIMITED = Policy(retries=1, max_losses=40, backoff_first=0.2, backoff_max=2.0, timeout=6.0)


BALLAST = 100_000  # bytes
_STEADY = Policy(retries=0, max_losses=40, stall_timeout=2.5)
_LOSING = Policy(retries=1, max_losses=3, backoff_first=0.2, backoff_max=2.0)
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


def steady(chance: Callable[[], float], index: int) -> NewJob:
    """Return a job that saves all the time, and must under its stall limit."""
    args = {"steps": 15 + int(25 * chance()), "pause": 0.3, "ending": "complete", "saves": True}
    return NewJob(task="work", args=json.dumps(args), key=f"k{index}", policy=_STEADY)


def relapsing(chance: Callable[[], float], index: int) -> NewJob:
    """Return a job that saves again what it has saved; it may take its worker down each time."""
    lost = chance() < 0.3
    args = {
        "steps": 0 if lost else 1 + int(6 * chance()), "pause": chance(), "saves": True,
        "ending": "lost" if lost else "complete", "again": True,
    }  # fmt: skip
    policy = _LOSING if lost else _PATIENT
    return NewJob(task="work", args=json.dumps(args), key=f"k{index}", policy=policy)


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
