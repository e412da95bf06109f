"""Shows where a coroutine stands while it waits, which no dump of threads shows.

The chain of awaits is walked from the attempt's outermost coroutine inwards and written in
``faulthandler``'s format for threads, so that one reader understands both. If the innermost
coroutine waits for another asyncio task, the chain continues there; it ends at a future, an async
generator or an object of C.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import traceback
from itertools import islice
from types import FrameType
from typing import Any

from outlast.model.crash import TEXT_MAX, clean
from outlast.runner.stacks import is_mark

FRAMES_MAX = 100  # as many as faulthandler shows
STACKS_MAX = 8 * TEXT_MAX  # characters, of all threads
STEPS_MAX = 10_000  # tasks can wait for each other in a circle
HEAD = "Coroutine (most recent call first):"


def stack_of(task: asyncio.Task[Any]) -> str:
    """Return where the task's coroutines stand, innermost first, or "" if that is not known."""
    frames = _frames(task)
    if not frames:
        return ""
    lines = [_line_of(frame, frame.f_lineno) for frame in reversed(frames)]
    return clean("\n".join([HEAD, *lines]), TEXT_MAX)


def stacks_here() -> str:
    """Return the stacks of all threads of this process, as ``faulthandler`` writes them."""
    stacks = []
    for ident, frame in sys._current_frames().items():  # noqa: SLF001
        above = islice(traceback.walk_stack(frame), FRAMES_MAX)
        lines = [_line_of(one, number) for one, number in above]
        stacks.append("\n".join([f"Thread {ident:#018x} (most recent call first):", *lines]))
    return clean("\n\n".join(stacks), STACKS_MAX)


def _line_of(frame: FrameType, number: int) -> str:
    return f'  File "{frame.f_code.co_filename}", line {number} in {frame.f_code.co_name}'


def _frames(task: asyncio.Task[Any]) -> list[FrameType]:
    """Return the frames from the one that names the attempt inwards; for a very deep chain, that
    frame and the innermost ones."""
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
