"""Frames that carry an attempt's token in their name, so that a stack says whose it is.

``faulthandler`` prints the names of functions and nothing else, also when the process dies of a
signal or when C code holds the GIL. So each attempt runs under one frame of our own whose name
holds its token, and whoever reads the stacks of a shared runner can tell its attempts apart.
A stack that is deeper than ``faulthandler`` prints (100 frames), and a task that the attempt has
started on the side, have no such frame: nobody is named then.
"""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

T = TypeVar("T")

_PREFIX = "outlast_attempt_"
_NO_GLOBALS: dict[str, Any] = {}
_NAMED = re.compile(rf" in {_PREFIX}(\d+)$", re.MULTILINE)
_LINE = re.compile(r'^ *(File ".*", line .* in .*)$', re.MULTILINE)
_CURRENT = "Current thread "
_OURS = str(Path(__file__).resolve().parents[1]) + os.sep
_STDLIB = sysconfig.get_path("stdlib") + os.sep


async def _await(inner: Awaitable[Any]) -> Any:
    return await inner


def _call(inner: Callable[[], Any]) -> Any:
    return inner()


def _renamed(function: Any, token: int) -> Any:
    name = f"{_PREFIX}{token}"
    code = function.__code__.replace(co_name=name, co_qualname=name)
    return FunctionType(code, _NO_GLOBALS, name)


def marked(token: int, inner: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """Return a coroutine that awaits ``inner`` in a frame that names the attempt."""
    coroutine: Coroutine[Any, Any, T] = _renamed(_await, token)(inner)
    return coroutine


def call_marked(token: int, inner: Callable[[], T]) -> T:
    """Call ``inner`` in a frame that names the attempt."""
    value: T = _renamed(_call, token)(inner)
    return value


def current_attempt(stacks: str) -> int | None:
    """Return the token that the current thread's stack names, or None.

    The current thread is the one that received the signal: the one that crashed, or, where
    stacks were asked for, the one that runs the event loop.
    """
    _, found, after = stacks.rpartition(_CURRENT)
    named = _NAMED.findall(after.split("\n\n", 1)[0]) if found else []
    return int(named[-1]) if named else None


def line_of(stacks: str, token: int) -> str | None:
    """Return where the attempt stands: the innermost line of the stacks that name it.

    The line is one of the user's own code where there is one, rather than one of what it calls.
    More than one stack can name an attempt: a plain function may take the interpreter's lock
    for good while the loop, in the attempt's own coroutine, still starts its thread.
    """
    lines: list[str] = []
    for stack in reversed(stacks.split("\n\n")):
        if str(token) in _NAMED.findall(stack):
            lines += _LINE.findall(stack)
    return max(lines, key=_nearness, default=None)  # of equals the first: the innermost


def _nearness(line: str) -> int:
    """Return how near to the user a line is: 0 our own, the standard library's, a package's."""
    path = line.split('"')[1]
    if path.startswith(_OURS):
        return 0
    if "/site-packages/" in path:
        return 2
    return 1 if path.startswith((_STDLIB, "<")) else 3


def own_first(stacks: str, token: int) -> str:
    """Return the stacks with those that name the attempt first: a cut takes the others."""
    parts = [part.strip("\n") for part in stacks.split("\n\n")]
    parts.sort(key=lambda part: str(token) not in _NAMED.findall(part))
    return "\n\n".join(part for part in parts if part)
