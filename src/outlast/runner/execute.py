"""One attempt, from its arguments to its end. The same code in a runner and in process.

    decode the arguments → enter the ``around`` hooks → call the task → judge what came out

Whatever a task does, exactly one end is told, and nothing that it raises gets past this room.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import sys
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Protocol

from outlast.app import App, Context
from outlast.attempt import Attempt, Link, StopReason, set_current
from outlast.clock import Clock
from outlast.codec import encode_result
from outlast.errors import (
    BadArguments,
    Cancel,
    Dead,
    LostLease,
    Retry,
    Snooze,
    UnknownTask,
    Verdict,
)
from outlast.model.crash import LIMITS, Crash, CrashKind, bounded, clean
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.runner.chain import stack_of
from outlast.runner.command import CommandFailed
from outlast.runner.marks import call_marked, marked
from outlast.runner.protocol import End
from outlast.store.base import Claimed
from outlast.task import Task

_WITHOUT_RESULT = Outcome(kind=OutcomeKind.COMPLETED, result=encode_result(None))


_Returned = tuple[Any, BaseException | None]  # what a plain function has returned or raised


class ExecutorLink(Link, Protocol):
    """What the executor needs besides what attempts need: where ends go."""

    def ended(self, end: End) -> None:
        """Take note of one attempt's end."""
        ...

    def stood(self, token: int, stack: str) -> None:
        """Take note of where an attempt's coroutine stands at its limit."""
        ...


class Executor:
    """Runs attempts in this process: coroutines in the loop, plain functions in threads."""

    def __init__(
        self, app: App, link: ExecutorLink, resources: Any, *, clock: Clock, threads: int
    ) -> None:
        self._app = app
        self._link = link
        self._resources = resources
        self._clock = clock
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="outlast-task")
        self._returned: deque[tuple[asyncio.Future[_Returned], _Returned]] = deque()
        self._waking = False
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._attempts: dict[int, Attempt] = {}

    def start(self, claimed: Claimed) -> None:
        """Start an attempt; its end goes to the link."""
        try:
            task, attempt, args, kwargs = self._prepare(claimed)
        except (BadArguments, UnknownTask) as error:
            outcome = crashed(CrashKind.UNDECODABLE, str(error))
            self._link.ended(End(claimed.token, outcome))
            return
        except Exception as error:  # such as a limit that no clock can show: told, not raised
            self._link.ended(End(claimed.token, crashed(CrashKind.ERROR, _words(error))))
            return
        self._attempts[claimed.token] = attempt
        self._tasks[claimed.token] = self._loop.create_task(
            marked(claimed.token, self._live(task, attempt, args, kwargs)),
            name=f"job {claimed.job_id}",
        )

    def stop(self, token: int, reason: str) -> None:
        """Ask an attempt to stop: a coroutine is cancelled, a plain function can only look."""
        attempt, task = self._attempts.get(token), self._tasks.get(token)
        if attempt is not None:
            attempt._stop(reason)  # noqa: SLF001
            if task is not None and not self._runs_in_thread(attempt):
                if reason in LIMITS and (stack := stack_of(task)):
                    self._link.stood(token, stack)
                # behind its first step: a task cancelled before that never runs, nor tells its end
                asyncio.get_running_loop().call_soon(task.cancel)

    def runs(self, token: int) -> bool:
        """Whether this attempt has begun and not ended."""
        return token in self._tasks

    def close(self) -> None:
        """Let go of the threads; attempts must have ended or be past caring."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _leave_if_forked(self, error: BaseException | None) -> None:
        """End a child that a task has forked and that came back here: it has a copy of the loop
        and of the link, but the attempt is its parent's to end."""
        if os.getpid() == self._pid:
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        code = error.code if isinstance(error, SystemExit) else int(error is not None)
        os._exit(code if isinstance(code, int) else int(code is not None))

    def _runs_in_thread(self, attempt: Attempt) -> bool:
        return not self._app.find(attempt.task).is_async

    async def _live(self, task: Task[..., Any], attempt: Attempt, args: Any, kwargs: Any) -> None:
        set_current(attempt)
        try:
            if self._app.around_fns:
                value = await self._call(task, attempt, args, kwargs)
            elif task.is_async:
                value = await task.fn(*args, **kwargs)
            else:
                value = await self._in_thread(attempt.token, task.fn, [], args, kwargs)
            outcome = self._completed(attempt, value)
        except BaseException as error:
            self._leave_if_forked(error)
            outcome = judged(error, attempt)
        self._leave_if_forked(None)
        self._tasks.pop(attempt.token, None)
        self._attempts.pop(attempt.token, None)
        self._link.ended(End(attempt.token, outcome, attempt.completed_in))

    def _prepare(
        self, claimed: Claimed
    ) -> tuple[Task[..., Any], Attempt, tuple[Any, ...], dict[str, Any]]:
        task = self._app.find(claimed.task)
        args, kwargs = task.signature.decode(claimed.args)
        timeout = claimed.policy.timeout
        attempt = Attempt(
            self._link,
            claimed,
            deadline=None if timeout is None else self._clock.wall() + timeout,
            resources=self._resources,
            returns=task.returns,
            max_payload=self._app.max_payload,
        )
        return task, attempt, args, kwargs

    def _completed(self, attempt: Attempt, value: Any) -> Outcome:
        if attempt.completed_in:
            return Outcome(kind=OutcomeKind.COMPLETED)
        if value is None:
            return _WITHOUT_RESULT
        try:
            result = encode_result(value, Any, self._app.max_payload)
        except BadArguments as error:
            return crashed(CrashKind.REJECTED_RESULT, str(error))
        return Outcome(kind=OutcomeKind.COMPLETED, result=result)

    async def _call(self, task: Task[..., Any], attempt: Attempt, args: Any, kwargs: Any) -> Any:
        async with contextlib.AsyncExitStack() as stack:
            inner: list[AbstractContextManager[Any]] = []
            for around in self._app.around_fns:
                context = around(attempt)
                if isinstance(context, AbstractContextManager) and not task.is_async:
                    inner.append(context)  # entered in the function's own thread
                else:
                    await entered(stack, context)
            if task.is_async:
                return await task.fn(*args, **kwargs)
            return await self._in_thread(attempt.token, task.fn, inner, args, kwargs)

    async def _in_thread(
        self, token: int, fn: Callable[..., Any], around: list[Any], args: Any, kwargs: Any
    ) -> Any:
        context = contextvars.copy_context()
        ended: asyncio.Future[_Returned] = self._loop.create_future()

        def call() -> _Returned:
            # an exception is handed back as a value: a Verdict must not end the thread pool
            try:
                with contextlib.ExitStack() as stack:
                    for manager in around:
                        stack.enter_context(manager)
                    return fn(*args, **kwargs), None
            except BaseException as error:
                self._leave_if_forked(error)
                return None, error
            finally:
                self._leave_if_forked(None)

        def work() -> None:
            try:
                returned = call_marked(token, call)
            except BaseException as error:  # of our own: it must not be waited for for ever
                returned = None, error
            self._hand_over(ended, returned)

        self._threads.submit(context.run, work)
        value, error = await ended
        if error is not None:
            raise error
        return value

    def _hand_over(self, ended: asyncio.Future[_Returned], returned: _Returned) -> None:
        """Hand what a function has returned over to the loop, which is woken once for all that
        have returned by then."""
        self._returned.append((ended, returned))
        if not self._waking:
            self._waking = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        self._waking = False  # first: whoever has seen it set has handed over already
        while self._returned:
            ended, returned = self._returned.popleft()
            if not ended.done():
                ended.set_result(returned)


async def entered(stack: contextlib.AsyncExitStack, context: Context) -> Any:
    """Enter a context of either kind on the stack; return what it gives."""
    if isinstance(context, AbstractContextManager):
        return stack.enter_context(context)
    return await stack.enter_async_context(context)


async def enter_lifespan(app: App, stack: contextlib.AsyncExitStack) -> Any:
    """Enter the application's lifespan, if it has one; return its resources."""
    return None if app.lifespan_fn is None else await entered(stack, app.lifespan_fn(app))


def judged(error: BaseException, attempt: Attempt) -> Outcome:
    """Return the end that an exception out of a task stands for.

    Once an attempt was asked to stop, whatever it raises is its way to obey. An exception of the
    user's own making may break while it is looked at: that is an end, too.
    """
    try:
        return _judged(error, attempt)
    except Exception as broken:
        return Outcome(kind=OutcomeKind.CRASHED, crash=_report(CrashKind.ERROR, broken))


def _judged(error: BaseException, attempt: Attempt) -> Outcome:
    if isinstance(error, Verdict):
        return _verdict(error)
    if isinstance(error, LostLease):
        return Outcome(kind=OutcomeKind.CRASHED, crash=_report(CrashKind.LOST_LEASE, error))
    if attempt.stop_reason is not None:
        return _stopped(attempt.stop_reason, error)
    return Outcome(kind=OutcomeKind.CRASHED, crash=_report(CrashKind.ERROR, error))


def _verdict(error: Verdict) -> Outcome:
    if isinstance(error, Snooze):
        return Outcome(kind=OutcomeKind.SNOOZED, delay=float(error.seconds), message=_said(error))
    if isinstance(error, Cancel):
        return Outcome(kind=OutcomeKind.CANCELLED, message=_said(error))
    crash = _report(CrashKind.ERROR, error)
    if isinstance(error, Dead):
        return Outcome(kind=OutcomeKind.DEAD, message=_said(error), crash=crash)
    after = error.after if isinstance(error, Retry) else None
    delay = None if after is None else float(after)
    return Outcome(kind=OutcomeKind.CRASHED, crash=crash, delay=delay)


def _stopped(reason: StopReason, error: BaseException) -> Outcome:
    if reason is StopReason.CANCEL:
        return Outcome(kind=OutcomeKind.CANCELLED, message="cancelled")
    if reason is StopReason.DRAIN:
        return Outcome(kind=OutcomeKind.RELEASED, message="the worker is stopping")
    kind = CrashKind.LOST_LEASE if reason is StopReason.LEASE_LOST else CrashKind(reason.value)
    return Outcome(kind=OutcomeKind.CRASHED, crash=_report(kind, error))


_OBEYED = {
    CrashKind.TIMEOUT: "it ran longer than its timeout and was stopped",
    CrashKind.STALLED: "it neither reported nor saved for its stall_timeout and was stopped",
    CrashKind.UNRESPONSIVE: "it kept its runner from answering and was stopped",
}


def _report(kind: CrashKind, error: BaseException) -> Crash:
    words = _words(error)
    words = _OBEYED.get(kind, words)
    if isinstance(error, CommandFailed):
        return _report_on_command(kind, error)
    crash = Crash(
        kind=kind,
        message=words,
        exception=type(error).__qualname__,
        traceback="".join(_lines(error)),
    )
    return bounded(crash)


def _report_on_command(kind: CrashKind, error: CommandFailed) -> Crash:
    """Return the report on a command: where it stood in Python is of no use to anyone."""
    crash = Crash(
        kind=kind,
        message=_OBEYED.get(kind, str(error)),
        exit_code=error.exit_code,
        signal=error.signal,
        output=error.output,
    )
    return bounded(crash)


def _said(error: Verdict) -> str:
    return clean(str(error))


def _words(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _lines(error: BaseException) -> list[str]:
    """Return the traceback from the user's first frame on; ours are of no use to anyone."""
    try:
        report = traceback.TracebackException.from_exception(error, limit=-30)
        own = __file__
        report.stack = traceback.StackSummary.from_list(
            [frame for frame in report.stack if frame.filename != own]
        )
        return list(report.format())
    except Exception:
        return [f"{type(error).__name__} (its traceback cannot be formatted)"]


def crashed(kind: CrashKind, message: str) -> Outcome:
    """Return a crashed end with this message."""
    message = clean(message)
    crash = Crash(kind=kind, message=message)
    return Outcome(kind=OutcomeKind.CRASHED, crash=crash, message=message)
