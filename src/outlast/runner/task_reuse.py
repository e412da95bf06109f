"""Runs attempts one after the other in reused asyncio tasks: most small attempts never wait.

Creating a task, scheduling it and destroying it costs as much as a small job. So attempts wait in
one line, and a reused task runs them in turn. While an attempt waits for something, it has its task
to itself, and the loop's next iterations create others, twice as many in each.

An attempt must not be able to tell a reused task from a new one. So a task is reused only if its
attempt completed, left the context as it was, holds no reference to the task (as code that keys a
session by ``current_task()`` does), has added no callback and no attribute to it and has not
requested its cancellation. This depends on how CPython counts references;
``OUTLAST_TASK_REUSE=off`` gives each attempt a new task. This module needs only the standard
library, so that a test can run it on every supported interpreter.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from operator import is_
from typing import Any, Generic, TypeVar

RUNS_MAX = 100  # attempts of a task in one iteration of the loop: other tasks run in it, too

AttemptT = TypeVar("AttemptT")
Task = asyncio.Task[None]


class ReusedTasks(Generic[AttemptT]):
    """Calls ``run(attempt, task)`` for each attempt, in order, in the asyncio ``task``. It returns
    whether the attempt completed and left the context as it was."""

    def __init__(
        self, run: Callable[[AttemptT, Task], Coroutine[Any, Any, bool]], *, reuse: bool = True
    ) -> None:
        """Without ``reuse`` each attempt gets a new task."""
        self._run = run
        self._most = RUNS_MAX if reuse else 1
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._waiting: deque[AttemptT] = deque()
        self._tasks: set[Task] = set()
        self._opened = 0  # tasks created in the last iteration; 0: no call of _open is scheduled
        self._had_enough = False  # whether a task has ended since the last iteration

    def put(self, attempts: Iterable[AttemptT]) -> None:
        """Add attempts behind the others; the first runs with the loop's next iteration."""
        self._waiting.extend(attempts)
        if not self._opened:
            self._open()

    def _open(self) -> None:
        """Create tasks for waiting attempts, and check again after their first steps."""
        wanted = 1 if self._had_enough else max(1, 2 * self._opened)
        self._opened = min(wanted, len(self._waiting))
        self._had_enough = False
        for _ in range(self._opened):
            # not by ``context=``: the application's task factory may not accept that argument
            task: Task = self._context.copy().run(self._loop.create_task, self._live())
            if not task.done():  # a task of an eager factory may be done by now
                self._tasks.add(task)  # the loop itself holds no reference to a waiting task
        if self._opened:
            self._loop.call_soon(self._open)

    async def _live(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        known = _known(task)
        for _ in range(self._most):
            if not self._waiting:
                break
            completed = await self._run(self._waiting.popleft(), task)
            if not completed or known != _known(task):
                break
        self._tasks.discard(task)
        self._had_enough = True


def _known(task: Task) -> tuple[int, int, int, int, bool]:
    """Return counts of references to and from this task, and the cancellations requested of it."""
    return (
        sys.getrefcount(task),
        weakref.getweakrefcount(task),
        len(gc.get_referents(task)),  # callbacks and attributes included: a task has no __dict__
        task.cancelling(),
        getattr(task, "_must_cancel", False),  # before Python 3.13, uncancel() does not reset it
    )


def is_as(before: Context) -> bool:
    """Whether the context is as it was in this copy: the same variables hold the same objects, not
    only equal ones. Copies share the one immutable mapping until a variable is set."""
    now = copy_context()
    return gc.get_referents(now)[-1] is gc.get_referents(before)[-1] or (
        len(now) == len(before)
        and all(map(is_, now, before))
        and all(map(is_, now.values(), before.values()))
    )
