"""Runs each attempt under a frame whose name carries its token, so that a stack names its attempt.

``faulthandler`` prints only the names of functions, also when the process dies of a signal or when
C code holds the GIL. So each attempt runs under one frame of Outlast whose name holds its token,
and a reader of a shared runner's stacks can tell its attempts apart. A stack that is deeper than
``faulthandler`` prints (100 frames), and an asyncio task that the attempt has started, have no such
frame and so name no attempt.
"""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from types import FunctionType, MappingProxyType
from typing import Any, TypeVar

T = TypeVar("T")

_PREFIX = "outlast_attempt_"
_NO_GLOBALS: dict[str, Any] = {}
_NONE: Mapping[str, Any] = MappingProxyType({})
_NAMED = re.compile(rf" in {_PREFIX}([0-9]{{1,19}})$", re.MULTILINE)
_LINE = re.compile(r'^ *(File ".*", line .* in .*)$', re.MULTILINE)
_CURRENT = "Current thread "
_OURS = str(Path(__file__).resolve().parents[1]) + os.sep
_STDLIB = sysconfig.get_path("stdlib") + os.sep


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
    """Return the token that the current thread's stack names, or None.

    The current thread is the one that received the signal: the one that crashed, or, if stacks were
    requested, the one that runs the event loop.
    """
    _, found, after = stacks.rpartition(_CURRENT)
    named = _NAMED.findall(after.split("\n\n", 1)[0]) if found else []
    return int(named[-1]) if named else None


def line_of(stacks: str, token: int) -> str | None:
    """Return where the attempt stands: the innermost line of the stacks that name it.

    A line of the user's own code is preferred to a line of the code that it calls. More than one
    stack can name an attempt: a plain function may take the GIL for good while the loop, in the
    attempt's own coroutine, still starts its thread.
    """
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
    """Return the stacks with those that name the attempt first: a cut removes the others."""
    parts = [part.strip("\n") for part in stacks.split("\n\n")]
    parts.sort(key=lambda part: str(token) not in _NAMED.findall(part))
    return "\n\n".join(part for part in parts if part)
