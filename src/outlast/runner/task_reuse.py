"""Asyncio tasks that run attempts one after the other: most attempts of small jobs never wait.

To make a task, put it in the loop's line and take it apart again costs as much as a small job. So
attempts wait in one line, and a reused task runs them in turn. A task whose attempt waits for
something belongs to that attempt until it has ended; for those behind it other tasks are created
with the next turns of the loop, twice as many at each.

An attempt has to find what it would find in a task of its own. So a task is reused only if it
cannot be told from a new task: its attempt completed, left the context as it was, holds no
reference to the task (as code that keys a session by ``current_task()`` does), has added no
callback and no attribute to it and has not asked to cancel it. Otherwise the task ends
there, and the next attempt has a new one.

How CPython counts references decides whether that works. ``OUTLAST_TASK_REUSE=off`` gives each
attempt a task of its own. This module needs the standard library only, so that a test can ask every
supported interpreter.
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

TURN_MAX = 100  # attempts that a task runs in one turn of the loop: others have their turns, too

AttemptT = TypeVar("AttemptT")
Task = asyncio.Task[None]


class ReusedTasks(Generic[AttemptT]):
    """Calls ``run(attempt, task)`` for each attempt, in their order; ``task`` is the asyncio task
    that it is called in. It returns whether it completed and left the context as it was."""

    def __init__(
        self, run: Callable[[AttemptT, Task], Coroutine[Any, Any, bool]], *, reuse: bool = True
    ) -> None:
        """Without ``reuse`` each attempt has a task of its own."""
        self._run = run
        self._most = TURN_MAX if reuse else 1
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._waiting: deque[AttemptT] = deque()
        self._tasks: set[Task] = set()
        self._opened = 0  # tasks, at the last turn; 0: nothing looks after those that wait
        self._had_enough = False  # a task has ended that was not held up

    def put(self, attempts: Iterable[AttemptT]) -> None:
        """Let attempts run, behind the others; the first with the loop's next turn."""
        self._waiting.extend(attempts)
        if not self._opened:
            self._open()

    def _open(self) -> None:
        """Create tasks for those that wait, and look again behind their first steps."""
        wanted = 1 if self._had_enough else max(1, 2 * self._opened)
        self._opened = min(wanted, len(self._waiting))
        self._had_enough = False
        for _ in range(self._opened):
            # not by ``context=``: the application's task factory may know of no such argument
            task: Task = self._context.copy().run(self._loop.create_task, self._live())
            if not task.done():  # as one of an eager factory may be by now
                self._tasks.add(task)  # the loop itself holds no reference to a task that waits
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
    """Return what there is that knows of this task, that it knows of, or has been asked of it."""
    return (
        sys.getrefcount(task),
        weakref.getweakrefcount(task),
        len(gc.get_referents(task)),  # with callbacks, and attributes: a task has no __dict__
        task.cancelling(),
        getattr(task, "_must_cancel", False),  # before Python 3.13, uncancel() leaves it as it is
    )


def is_as(before: Context) -> bool:
    """Whether the context is as it was in this copy of it: the same variables have the very same
    values. Equal ones would not do: a session that equals another is not that other.

    Copies share the one immutable mapping until a variable is set: most attempts set none."""
    now = copy_context()
    return gc.get_referents(now)[-1] is gc.get_referents(before)[-1] or (
        len(now) == len(before)
        and all(map(is_, now, before))
        and all(map(is_, now.values(), before.values()))
    )
