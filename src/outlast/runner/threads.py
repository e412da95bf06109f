"""Calls plain functions in threads, handed over many at a time in both directions.

Waking a thread for each function, and the loop for each return, costs more than a small job. So
functions wait in one line, which threads empty; twice as many are added after each millisecond in
which no function was taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import thread as pools
from typing import Any

MORE_SECONDS = 0.001  # until more threads are added for waiting functions
FULL_SECONDS = 0.05  # the same if all threads are busy: each takes from the line before it ends

Work = Callable[..., Any]
Done = Callable[[Any], None]


class Threads:
    """Calls functions in threads, ``most`` at a time, in their order. For one event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="outlast-task")
        self._counting = threading.Lock()
        self._at_work = 0  # threads
        self._waiting: deque[tuple[Work, Done, tuple[Any, ...]]] = deque()
        self._taken = 0
        self._taken_before = 0
        self._coming = 0  # threads added at the last check; 0: no check is scheduled
        self._returned: deque[tuple[Done, Any]] = deque()
        self._waking = False
        self._closed = False

    def call(self, work: Work, done: Done, *args: Any) -> None:
        """Call ``work(*args)``, which must not raise, in a thread; ``done`` gets its value."""
        self._waiting.append((work, done, args))
        if not (self._coming or self._closed):
            self._come()

    def close(self) -> None:
        """Let go of the threads; waiting functions are not called any more."""
        self._closed = True
        self._waiting.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _come(self) -> None:
        moved, self._taken_before = self._taken != self._taken_before, self._taken
        self._coming = min(len(self._waiting), 1 if moved else 2 * self._coming or 1)
        with self._counting:
            more = max(0, min(self._coming, self._most - self._at_work))
            self._at_work += more
        for started in range(more):
            try:
                self._pool.submit(self._work)
            except RuntimeError:  # the system has no free thread now: it may have one later
                with self._counting:
                    self._at_work -= more - started
                more = 0
                break
        if self._coming and not self._closed:
            self._loop.call_later(MORE_SECONDS if more else FULL_SECONDS, self._come)

    def _work(self) -> None:
        try:
            while self._waiting:
                try:
                    work, done, args = self._waiting.popleft()
                except IndexError:  # another thread was faster
                    break
                self._taken += 1  # a race at worst adds an unneeded thread
                self._hand_over(done, work(*args))
        finally:  # even after an asynchronous exception that came too late
            with self._counting:
                self._at_work -= 1

    def _hand_over(self, done: Done, value: Any) -> None:
        """Hand a value over to the loop, which is woken once for all values returned by then."""
        self._returned.append((done, value))
        if not self._waking:
            self._waking = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
                self._loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        self._waking = False  # first: a thread that saw it set has already appended its value
        while self._returned:
            done, value = self._returned.popleft()
            done(value)


def _leave_pool() -> None:
    """In a forked child: Python's exit would wait for this thread, itself, and so end with 1."""
    getattr(pools, "_threads_queues", {}).pop(threading.current_thread(), None)


os.register_at_fork(after_in_child=_leave_pool)
