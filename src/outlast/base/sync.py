"""Run coroutines from plain code, for the whole library: every ``NAME`` has its ``NAME_sync``.

A public coroutine runs in its caller's thread, even in its ``NAME_sync`` form. Only the parts that
need an event loop *hop*: onto the running loop, or onto one background loop per process (a daemon
thread, started at first use). So the caller's ``sqlite3`` connection stays in its thread, and no
class is needed in two versions. A coroutine that is to have a ``NAME_sync`` awaits only ``hop``.

A signal handler or a finalizer may make such a call anywhere, even in the middle of another one in
its thread, and a handler of ``atexit`` after ours has stopped the background loop.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from outlast.base.greenlets import GreenletEvent, find_gevent, find_greenlets, start
from outlast.errors import SyncInLoop, UsageError

S = TypeVar("S")
R = TypeVar("R")
P = ParamSpec("P")

FAREWELL_SECONDS = 2.0  # that connections get to close when the process ends


def blocking(
    coroutine: Callable[Concatenate[S, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[S, P], R]:
    """Return ``NAME_sync`` for the method ``NAME``. It raises SyncInLoop in a thread whose event
    loop (of asyncio or trio) is running."""
    name = coroutine.__name__

    @functools.wraps(coroutine)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        refuse_in_loop(name)
        return drive(coroutine(self, *args, **kwargs))

    call.__name__ = f"{name}_sync"
    call.__qualname__ = f"{coroutine.__qualname__}_sync"
    call.__doc__ = f"As ``{name}``, for plain code: blocks until it is done."
    plain: Callable[Concatenate[S, P], R] = call
    return plain


def refuse_in_loop(name: str) -> None:
    """Raise SyncInLoop if NAME_sync would block an event loop that runs in this thread."""
    if loop_is_running():
        raise SyncInLoop(
            f"{name}_sync() would block the event loop that runs here: await {name}() instead"
        )
    if getattr(_thread, "serves", False):
        raise SyncInLoop(f"{name}_sync() was called by a finalizer, in a thread that it waits for")
    if (trio := sys.modules.get("trio")) is not None and _is_running(trio):
        raise SyncInLoop(
            f"{name}_sync() would block trio's event loop, which runs here: call it in a"
            " thread, with trio.to_thread.run_sync()"
        )


def serve() -> None:
    """Mark this thread as one for which calls wait: a finalizer that is run in it by the garbage
    collector, and calls a NAME_sync, would wait for itself."""
    _thread.serves = True


def loop_is_running() -> bool:
    """Whether this thread is inside a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _is_running(trio: Any) -> bool:
    try:
        return bool(trio.lowlevel.in_trio_run())
    except AttributeError:  # an old release, or one that is being imported
        return False


def drive(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run, in this thread and without an event loop, a coroutine that awaits only ``hop``."""
    before, _thread.drives = _drives(), True
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
    finally:
        _thread.drives = before
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} awaited something other than outlast.base.sync.hop")


def hop(make: Callable[[], Coroutine[Any, Any, R]]) -> Coroutine[Any, Any, R]:
    """Return an awaitable that runs ``make()`` on the running loop or, without one, on the
    background loop while it blocks. UsageError on a loop that is not asyncio's: it would block."""
    if loop_is_running():
        return make()
    _check_driven()
    return _in_background(make)


async def result_of(answer: Future[R]) -> R:
    """Return the result of a future, once it has one; as ``hop``, but the future needs no loop."""
    if loop_is_running():
        return await asyncio.wrap_future(answer)
    _check_driven()
    return answer.result()


def _check_driven() -> None:
    if not _drives():
        raise UsageError(
            "this is not an asyncio event loop: call the NAME_sync form in a thread, for example"
            " with trio.to_thread.run_sync()"
        )


def run_in_background(make: Callable[[], Coroutine[Any, Any, R]]) -> R:
    """Return the result of ``make()``, run on the background loop, even if a loop runs in this
    thread (for tests only). SyncInLoop on the background loop."""
    if getattr(_thread, "is_background", False):
        raise SyncInLoop(
            "this call would wait for the event loop that it runs on: make it in your test's own"
            " code"
        )
    return _background.run(make)


async def _in_background(make: Callable[[], Coroutine[Any, Any, R]]) -> R:
    return _background.run(make)


class _Call(Generic[R]):
    """A coroutine on the background loop, for which a thread waits. A future of
    ``concurrent.futures`` has a lock: a signal handler that makes a call while the waiting thread
    holds it would wait for the loop, and the loop for the lock."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, make: Callable[[], Coroutine[Any, Any, R]]
    ) -> None:
        self._loop = loop
        self._make = make  # there: a coroutine that an interrupted call leaves makes Python warn
        self._task: asyncio.Task[R] | None = None
        self._await_end: Callable[[], object]
        self._note_end: Callable[[], object]
        if find_gevent() is not None:
            event = GreenletEvent()
            self._await_end, self._note_end = event.wait, event.set
        else:
            lock = threading.Lock()
            lock.acquire()
            self._await_end, self._note_end = lock.acquire, lock.release

    def wait(self) -> R:
        """Return the coroutine's result, or raise its exception."""
        self._loop.call_soon_threadsafe(self._start)
        try:
            self._await_end()
        except BaseException:  # Ctrl-C in the waiting thread: the call is no longer wanted
            self._loop.call_soon_threadsafe(self._cancel)
            raise
        task = self._task
        assert task is not None
        try:
            return task.result()
        finally:
            del self, task  # else an error would refer to itself through this frame

    def _start(self) -> None:
        self._task = self._loop.create_task(_made(self._make))
        self._task.add_done_callback(self._end)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _end(self, task: asyncio.Task[R]) -> None:
        if not task.cancelled():
            task.exception()  # mark it retrieved, even if the caller no longer waits
        self._note_end()


async def _made(make: Callable[[], Coroutine[Any, Any, R]]) -> R:
    return await make()


class _Background:
    """One event loop per process, on its own thread."""

    def __init__(self) -> None:
        self._starting = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0  # of the process that has started the loop
        # kept: freeing one warns, and prints an error if the garbage collector frees it
        self._stopped: list[asyncio.AbstractEventLoop] = []

    def run(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        return _Call(self.loop(), make).wait()

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop; start it if there is none. UsageError once Python shuts down: no
        other thread runs then; and in a fork that Python has not seen, which has no such thread."""
        if sys.is_finalizing():
            raise UsageError(
                "Python is shutting down and starts no threads: call this earlier, or in atexit"
            )
        if self._loop is not None and self._pid != os.getpid():
            raise UsageError(
                "the application was used before a fork that Python has not seen: start uWSGI with"
                " --py-call-uwsgi-fork-hooks or --lazy-apps, or enqueue nothing before it forks"
            )
        with self._starting:
            return self._loop or self._adopt(_start_loop())

    def _adopt(self, started: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
        """Keep this loop, unless a signal handler in this thread has started another meanwhile."""
        if self._loop is not None:
            self._stopped.append(started)
            started.call_soon_threadsafe(started.stop)
            return self._loop
        self._loop, self._pid = started, os.getpid()
        return started

    def stop(self) -> None:
        """Let connections close, for a limited time. A later call starts another loop."""
        loop, self._loop = self._loop, None
        if loop is not None and self._pid == os.getpid():
            self._stopped.append(loop)
            ending = asyncio.run_coroutine_threadsafe(loop.shutdown_asyncgens(), loop)
            with suppress(Exception):
                ending.result(FAREWELL_SECONDS)
            if find_gevent() is None:  # else its thread frees what Python frees, too, and crashes
                loop.call_soon_threadsafe(loop.stop)


def _start_loop() -> asyncio.AbstractEventLoop:
    if find_gevent() is None:
        if (greenlets := find_greenlets()) is not None:
            raise UsageError(
                f"{greenlets}, which cannot wait for an event loop: enqueue in a process with"
                " gevent or with threads, as of gunicorn -k gthread"
            )
        loop = asyncio.new_event_loop()
        start(threading.Thread(target=_run, args=(loop,), name="outlast-sync", daemon=True))
        return loop
    made: list[asyncio.AbstractEventLoop] = []
    started = GreenletEvent()

    def run() -> None:  # the loop is made there: gevent's selector belongs to a thread
        made.append(asyncio.new_event_loop())
        made[0].call_soon(started.set)
        _run(made[0])

    start(threading.Thread(target=run))
    started.wait()
    return made[0]


def _run(loop: asyncio.AbstractEventLoop) -> None:
    _thread.is_background = True
    loop.run_forever()


def _drives() -> bool:
    return getattr(_thread, "drives", False)


asyncio.new_event_loop().close()  # the first of a process takes a lock: not in a signal handler
_thread = threading.local()
_background = _Background()
_inherited: list[Any] = []  # kept alive: freeing them would touch the parent's resources


def _forget_after_fork() -> None:
    global _background
    _inherited.append(_background)
    _background = _Background()


@atexit.register
def _stop_at_exit() -> None:
    _background.stop()


os.register_at_fork(after_in_child=_forget_after_fork)
