"""Asks an interpreter whether it shows all by which a task that has run an attempt can be told.

    python3.13 -I reuse_probe.py .../src/outlast/runner/task_reuse.py

A program of its own, of the standard library only: it also runs where Outlast is not installed.
Prints a JSON object: for each thing that an attempt may leave, whether the next one had its task.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib.util
import json
import sys
import weakref
from typing import Any

BOUND: contextvars.ContextVar[str] = contextvars.ContextVar("bound", default="nothing")
kept: list[Any] = []


def take_back(task: asyncio.Task[Any]) -> None:
    task.cancel()
    task.uncancel()


LEFT = {
    "nothing": lambda task: None,
    "a reference": kept.append,
    "a weak reference": lambda task: kept.append(weakref.ref(task, lambda _: None)),
    "a callback": lambda task: task.add_done_callback(kept.append),
    "a request to cancel": lambda task: task.cancel(),
    "a request taken back": take_back,
    "an attribute": lambda task: setattr(task, "session", "of the first"),
    "a variable": lambda task: BOUND.set("something"),
}


def load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("task_reuse", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def shares(module: Any, what: str) -> bool:
    """Return whether an attempt that follows one that has left this has the same task."""
    names: list[str] = []
    both = asyncio.Event()

    async def run(number: int, task: asyncio.Task[None]) -> bool:
        before = contextvars.copy_context()
        names.append(task.get_name())  # unlike an id, none is given twice
        if number == 1:
            LEFT[what](asyncio.current_task())
        else:
            both.set()
        return bool(module.is_as(before))

    module.ReusedTasks(run).put([1, 2])
    await asyncio.wait_for(both.wait(), 60)
    return names[0] == names[1]


async def ask(path: str) -> dict[str, bool]:
    module = load(path)
    return {what: await shares(module, what) for what in LEFT}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(ask(sys.argv[1]))))
