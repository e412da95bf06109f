"""Where a coroutine stands while it waits, which no dump of threads shows.

The chain of awaits is walked from the attempt's outermost coroutine inwards and written as
``faulthandler`` writes the stack of a thread, so that one reader understands both. What the
innermost coroutine waits for is followed into another asyncio task, and not further: a chain
ends at a future, an async generator or an object of C.
"""

from __future__ import annotations

import asyncio
import inspect
from types import FrameType
from typing import Any

from outlast.model.crash import TEXT_MAX, clean
from outlast.runner.stacks import is_mark

FRAMES_MAX = 100  # as many as faulthandler shows
STEPS_MAX = 10_000  # tasks can wait for each other in a circle
HEAD = "Coroutine (most recent call first):"


def stack_of(task: asyncio.Task[Any]) -> str:
    """Return where the task's coroutines stand, innermost first, or "" if that is not known."""
    frames = _frames(task)
    if not frames:
        return ""
    lines = [
        f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}'
        for frame in reversed(frames)
    ]
    return clean("\n".join([HEAD, *lines]), TEXT_MAX)


def _frames(task: asyncio.Task[Any]) -> list[FrameType]:
    """Return the frames from the one that names the attempt in; of a very deep chain that one and
    the innermost ones."""
    frames: list[FrameType] = []
    waits_for: Any = None
    inner: Any = task
    for _ in range(STEPS_MAX):
        if isinstance(inner, asyncio.Task):
            waits_for = getattr(inner, "_fut_waiter", None)
            inner = inner.get_coro()
        frame, awaited = _look(inner)
        if frame is not None:
            frames.append(frame)
            inner = awaited
        elif isinstance(waits_for, asyncio.Task):
            inner = waits_for
        else:
            break
    first = next((at for at, frame in enumerate(frames) if is_mark(frame.f_code.co_name)), 0)
    return frames[first : first + 1] + frames[first + 1 :][-(FRAMES_MAX - 1) :]


def _look(inner: Any) -> tuple[FrameType | None, Any]:
    """Return the frame of a suspended coroutine or generator, and what it awaits."""
    if inspect.iscoroutine(inner):
        return inner.cr_frame, inner.cr_await
    if inspect.isgenerator(inner):
        return inner.gi_frame, inner.gi_yieldfrom
    return None, None
