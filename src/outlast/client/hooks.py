"""Turn the user's hooks around tasks, functions that yield once, into context managers."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any

from outlast.errors import ConfigError

Context = AbstractAsyncContextManager[Any] | AbstractContextManager[Any]
"""The context manager that a lifespan or a hook around tasks returns, entered with ``with`` or
``async with``, whichever it supports."""


def is_taking(fn: Callable[..., Any], what: str, takes: str, *, least: int) -> bool:
    """Return whether ``fn`` takes an argument; ConfigError unless it takes 1, or ``least``."""
    required = [
        parameter
        for parameter in inspect.signature(fn).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
    ]
    if not least <= len(required) <= 1:
        raise ConfigError(f"the function under @app.{what} must take {takes}")
    return len(required) == 1


def make_context(fn: Callable[..., Any], what: str) -> Callable[..., Context]:
    """Return a factory of context managers for a generator function; a factory is returned
    unchanged."""
    if inspect.isasyncgenfunction(fn):
        return asynccontextmanager(fn)
    if inspect.isgeneratorfunction(fn):
        return contextmanager(fn)
    if getattr(fn, "__code__", None) in _MADE_BY_CONTEXTLIB:
        return fn
    raise ConfigError(f"@app.{what} needs a function that yields once, where the work is done")


def _nothing() -> Iterator[None]:
    yield


async def _nothing_async() -> AsyncIterator[None]:
    yield


_MADE_BY_CONTEXTLIB = (
    contextmanager(_nothing).__code__,
    asynccontextmanager(_nothing_async).__code__,
)
