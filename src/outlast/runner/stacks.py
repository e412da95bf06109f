"""Runs each attempt under a frame whose name carries its token, so that a stack names its attempt.

``faulthandler`` prints only the names of functions, even when the process dies of a signal or when
C code holds the GIL. A stack that is deeper than it prints (100 frames), and an asyncio task that
the attempt has started, name no attempt.

The chain of awaits is walked from the attempt's outermost coroutine inwards, also into awaited
asyncio tasks, and written in ``faulthandler``'s format, so that one reader understands both. It
ends at a future, an async generator or an object of C.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from itertools import islice
from pathlib import Path
from types import FrameType, FunctionType, MappingProxyType
from typing import Any, TypeVar

from outlast.model.crash import TEXT_MAX, clean

T = TypeVar("T")

_PREFIX = "outlast_attempt_"
MANY = 0  # in place of a token: a call for many attempts, of which any may be the culprit
_NO_GLOBALS: dict[str, Any] = {}
_NONE: Mapping[str, Any] = MappingProxyType({})
_NAMED = re.compile(rf" in {_PREFIX}([0-9]{{1,19}})$", re.MULTILINE)
_LINE = re.compile(r'^ *(File ".*", line .* in .*)$', re.MULTILINE)
_CURRENT = "Current thread "
_OURS = str(Path(__file__).resolve().parents[1]) + os.sep
_STDLIB = sysconfig.get_path("stdlib") + os.sep
FRAMES_MAX = 100  # as many as faulthandler shows
STACKS_MAX = 8 * TEXT_MAX  # characters, of all threads
STEPS_MAX = 10_000  # tasks can wait for each other in a circle
HEAD = "Coroutine (most recent call first):"


async def _await(inner: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return await inner(*args, **kwargs)


def _call(inner: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return inner(*args, **kwargs)


_AWAIT, _CALL = _await.__code__.replace, _call.__code__.replace


def run_marked(
    token: int, inner: Callable[..., Awaitable[T]], args: Any = (), kwargs: Any = _NONE
) -> Coroutine[Any, Any, T]:
    """Return a coroutine that calls and awaits ``inner`` in a frame that names the attempt."""
    function = FunctionType(_AWAIT(co_name=f"{_PREFIX}{token}"), _NO_GLOBALS)
    coroutine: Coroutine[Any, Any, T] = function(inner, args, kwargs)
    return coroutine


def call_marked(token: int, inner: Callable[..., T], args: Any = (), kwargs: Any = _NONE) -> T:
    """Call ``inner`` in a frame that names the attempt."""
    value: T = FunctionType(_CALL(co_name=f"{_PREFIX}{token}"), _NO_GLOBALS)(inner, args, kwargs)
    return value


def is_mark(name: str) -> bool:
    """Whether this is the name of a frame that names an attempt."""
    return name.startswith(_PREFIX)


def current_attempt(stacks: str) -> int | None:
    """Return the token in the current thread's stack, or None: of the thread that got the signal,
    since it crashed or, if stacks were requested, runs the event loop."""
    _, found, after = stacks.rpartition(_CURRENT)
    named = _NAMED.findall(after.split("\n\n", 1)[0]) if found else []
    return int(named[-1]) if named else None


def line_of(stacks: str, token: int) -> str | None:
    """Return where the attempt stands: the innermost line of the stacks that name it, the user's
    own code first. More than one may: a plain function may take the GIL for good while the loop, in
    the attempt's own coroutine, still starts its thread."""
    lines: list[str] = []
    for stack in reversed(stacks.split("\n\n")):
        if str(token) in _NAMED.findall(stack):
            lines += _LINE.findall(stack)
    return max(lines, key=_nearness, default=None)  # first of equals: the innermost


def _nearness(line: str) -> int:
    """Rank whose code a line is: 0 Outlast's, 1 the standard library, 2 a package, 3 the user's."""
    path = line.split('"')[1]
    if path.startswith(_OURS):
        return 0
    if "/site-packages/" in path:
        return 2
    return 1 if path.startswith((_STDLIB, "<")) else 3


def own_first(stacks: str, token: int) -> str:
    """Return the stacks, the ones that name the attempt first: a cut removes the others."""
    parts = [part.strip("\n") for part in stacks.split("\n\n")]
    parts.sort(key=lambda part: str(token) not in _NAMED.findall(part))
    return "\n\n".join(part for part in parts if part)


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
    """Return the frames from the marked one inwards; of a deep chain, it and the innermost ones."""
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
