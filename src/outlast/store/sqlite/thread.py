"""Runs the thread on which a SQLite connection lives.

It does for ``loop.run_in_executor`` what a ThreadPoolExecutor of one thread does, at a third of the
CPU time: a call is one entry in a queue and one future of the loop that asked, which the thread
resolves there. (asyncio takes a future of its own loop as it is.)
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from outlast.base.sync import serve

T = TypeVar("T")
Call = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]
Calls = SimpleQueue[Call | None]


class OneThread(Executor):
    """Runs functions one after the other, as they come from any loop.

    A call that is cancelled before its turn does not run. After the calls it was given, the thread
    ends with ``shutdown``, when this object is no longer referenced, and at the interpreter's end.
    """

    def __init__(self, name: str) -> None:
        self._calls: Calls = SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=(self._calls,), name=name, daemon=True)
        self._starting = threading.Lock()
        self._end = weakref.finalize(self, _end, self._calls, self._thread)

    def submit(  # type: ignore[override]
        self, job: Callable[..., T], /, *args: Any
    ) -> asyncio.Future[T]:
        """Return the future of ``job(*args)``, on the running loop. RuntimeError after the end."""
        if not self._end.alive:
            raise RuntimeError("this thread has ended")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._calls.put((loop, future, job, args))
        if self._thread.ident is None:
            with self._starting:
                if self._thread.ident is None:  # no other loop's thread has started it first
                    self._thread.start()
        return future

    def shutdown(self, *_: Any, **__: Any) -> None:
        """Finish the calls that were given, and end. Safe to call twice."""
        self._end()


def _end(calls: Calls, thread: threading.Thread) -> None:
    calls.put(None)
    if thread.ident is not None and thread is not threading.current_thread():
        thread.join()


def _serve(calls: Calls) -> None:
    serve()
    while (call := calls.get()) is not None:
        loop, future, job, args = call
        if not future.cancelled():
            result, error = _outcome(job, args)
            with suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(_resolve, future, result, error)
            del result, error
        del call, loop, future, job, args  # nothing is kept alive until the next call


def _outcome(job: Callable[..., T], args: tuple[Any, ...]) -> tuple[T | None, BaseException | None]:
    try:
        return job(*args), None
    except BaseException as error:
        return None, error


def _resolve(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    with suppress(asyncio.InvalidStateError):  # cancelled, maybe by a signal at this very moment
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
