"""Runs coroutines from plain code, for the whole library: every ``NAME`` has its ``NAME_sync``.

A public coroutine runs in its caller's thread, also in its ``NAME_sync`` form. Only the parts
that need an event loop *hop*: onto the running loop, or else onto one background loop per process
(a daemon thread, started at first use). So a ``sqlite3`` connection of the caller's stays in its
thread, and no class exists twice.

The rule for the body of a coroutine that is to have a ``NAME_sync``: await only through ``hop``.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

from outlast.errors import SyncInLoop

S = TypeVar("S")
R = TypeVar("R")
P = ParamSpec("P")

FAREWELL_SECONDS = 2.0


def blocking(
    coroutine: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], R]:
    """Return ``NAME_sync`` for the method ``NAME``.

    Raises SyncInLoop when called in a thread whose event loop is running.
    """
    name = coroutine.__name__

    @functools.wraps(coroutine)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if loop_is_running():
            raise SyncInLoop(
                f"{name}_sync() would block the event loop that runs here: await {name}() instead"
            )
        return drive(coroutine(self, *args, **kwargs))

    call.__name__ = f"{name}_sync"
    call.__qualname__ = f"{coroutine.__qualname__}_sync"
    call.__doc__ = f"As ``{name}``, for plain code: blocks until it is done."
    plain: Callable[Concatenate[S, P], R] = call
    return plain


def loop_is_running() -> bool:
    """Whether this thread is inside of a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def drive(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run, in this thread and without an event loop, a coroutine that awaits only ``hop``."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} awaited something else than outlast.sync.hop")


def hop(make: Callable[[], Coroutine[Any, Any, R]]) -> Coroutine[Any, Any, R]:
    """To be awaited: ``make()`` on the running loop; without one, blocks until the background loop
    has done it."""
    return make() if loop_is_running() else _in_background(make)


async def _in_background(make: Callable[[], Coroutine[Any, Any, R]]) -> R:
    return _background.run(make)


class _Background:
    """One event loop per process, on a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        future = asyncio.run_coroutine_threadsafe(make(), self.loop())
        try:
            return future.result()
        except BaseException:  # Ctrl-C in the waiting thread: the call is not wanted any more
            future.cancel()
            raise

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                name = "outlast-sync"
                threading.Thread(target=self._loop.run_forever, name=name, daemon=True).start()
            return self._loop

    def stop(self) -> None:
        """Let connections be closed politely when the process ends, but do not insist."""
        if self._loop is not None:
            ending = asyncio.run_coroutine_threadsafe(self._loop.shutdown_asyncgens(), self._loop)
            with suppress(Exception):
                ending.result(FAREWELL_SECONDS)
            self._loop.call_soon_threadsafe(self._loop.stop)


_background = _Background()
_inherited: list[Any] = []  # kept alive: freeing them would touch what belongs to the parent


def _forget_after_fork() -> None:
    global _background
    _inherited.append(_background)
    _background = _Background()


@atexit.register
def _stop_at_exit() -> None:
    _background.stop()


os.register_at_fork(after_in_child=_forget_after_fork)
