"""Runs an attempt from its arguments to its end, with the same code in a runner and in process.

    decode the arguments → enter the ``around`` hooks → call the task → judge what came out

Exactly one end is reported for each attempt, and no exception of a task leaves this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

from outlast.base import forks
from outlast.base.clock import Clock
from outlast.base.config import resolve_task_reuse
from outlast.base.credentials import hide_logins
from outlast.client.app import App
from outlast.client.attempt import Attempt, Family, Link, set_batch
from outlast.client.awaiting import running
from outlast.client.batches import BatchLink, BatchTask
from outlast.client.children import make_family
from outlast.client.flow_parts import read_inputs
from outlast.client.hooks import Context
from outlast.client.task import Task
from outlast.errors import BadArguments, UnknownTask, describe, text_of
from outlast.model.crash import LIMITS, CrashKind
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.payload.codec import encode_result, encode_return
from outlast.payload.payloads import PLAIN
from outlast.runner.batches import BatchCall, Batches
from outlast.runner.interruptions import count_interruptions
from outlast.runner.outcomes import (
    cut_short,
    excuse,
    judge,
    make_crashed,
    make_unawaited,
    make_undecodable,
)
from outlast.runner.protocol import Began, End, FunctionsEnded, StackAtLimit
from outlast.runner.stacks import call_marked, run_marked, stack_of
from outlast.runner.task_reuse import ReusedTasks, is_as
from outlast.runner.threads import Threads
from outlast.store.values import Claimed

_NOTHING = (Any, None, type(None))  # return annotations that None fits
_EXPIRED = Outcome(kind=OutcomeKind.RELEASED, message="it expired before it began", began=False)
_WITHOUT_RESULT = Outcome(kind=OutcomeKind.COMPLETED, result=encode_result(None))

RECALLED = Outcome(
    kind=OutcomeKind.RELEASED, message="it was taken back before it began", began=False
)

_Returned = list[Any]  # a plain function's return value and exception
Prepared = tuple[Task[..., Any], Attempt, tuple[Any, ...], dict[str, Any]]


class ExecutorLink(Link, Protocol):
    """The link of an executor: what attempts need, and the receiver of their ends."""

    def report_end(self, end: End, *, is_last: bool = False) -> None:
        """Note one attempt's end. ``is_last``: no attempt runs any more, so no end can join."""
        ...

    def send_ends(self) -> bool:
        """Send the noted ends, before others begin in their slots. Return whether ends are still
        reported: if not, no attempt may begin."""
        ...

    def send(self, frame: Began | FunctionsEnded | StackAtLimit) -> None:
        """Pass on what the worker should know of running attempts."""
        ...


class _Record(msgspec.Struct, eq=False):
    """What the executor knows of an attempt, from its announcement to its end."""

    has_come: bool = False  # until then it is on its way
    has_begun: bool = False  # it cannot be recalled any more
    is_recalled: bool = False
    asked: str | None = None  # the first reason for which it is asked to stop
    attempt: Attempt | None = None
    task: asyncio.Task[None] | None = None  # None: it waits, or a thread runs it
    call: BatchCall | None = None  # the call that it is part of
    is_over: bool = False  # its function has ended, though hooks around it may still run


# called when no attempt runs any more: the token that ended last, how many others have run since
# the executor was last idle, and whether code of any of them has run in the event loop
OnIdle = Callable[[int, int, bool], None]


class Executor:
    """Runs attempts in this process: coroutines in the loop, plain functions in threads."""

    def __init__(
        self,
        app: App,
        link: ExecutorLink,
        resources: Any,
        *,
        clock: Clock,
        threads: int,
        on_idle: OnIdle | None = None,
        make_attempt: Callable[..., Attempt] = Attempt,
    ) -> None:
        """``on_idle`` is called before the last end is reported. ``make_attempt`` takes the
        arguments of ``Attempt``."""
        self._app = app
        self._on_idle = on_idle
        self._make_attempt = make_attempt
        self._make_children = functools.partial(make_family, app.stores)
        self._ran = 0  # attempts since the executor was last idle
        self._in_loop = False  # whether the code of one of them, or its hooks, ran there
        self._link = link
        self._hide: Callable[[str], str] = getattr(link, "hide", hide_logins)
        self._end_fns = app._end_fns  # noqa: SLF001  # mostly empty
        self._resources = resources
        self._clock = clock
        self._forks = forks.generation
        self._loop = asyncio.get_running_loop()
        self._threads = Threads(threads)
        self._slots = threads
        self._held = 0  # slots, by attempts that may have begun
        self._waiting: deque[Claimed] = deque()  # attempts for a slot, in order of arrival
        self._filling = False  # the loop's next iteration fills the slots
        self._context = contextvars.copy_context()
        self._reused_tasks = ReusedTasks(self._run, reuse=resolve_task_reuse())
        self._records: dict[int, _Record] = {}  # by token
        self._here = 0  # attempts that have come and not ended
        self._begun: dict[int, float] = {}  # attempts with a limit; not reported yet
        self._over: list[int] = []  # attempts whose functions have ended; not reported yet
        self.batches = Batches(app, self._begin_batch, clock)

    def expect(self, tokens: Iterable[int]) -> None:
        """Note, in any thread, attempts that will be started: they can be recalled already."""
        for token in tokens:
            self._records.setdefault(token, _Record())

    def recall(self, tokens: Iterable[int]) -> list[int]:
        """Take back the attempts among these that have not begun; return them. In any thread."""
        recalled = []
        for token in tokens:
            if (record := self._records.get(token)) is not None:
                record.is_recalled = True
                # a beginning attempt first sets ``has_begun`` and then reads ``is_recalled``
                if not record.has_begun:
                    recalled.append(token)
        return recalled

    def start(self, attempts: Sequence[Claimed]) -> None:
        """Start attempts, in order, as slots come free; attempts of batch tasks gather instead. One
        that is here already is skipped: it would run twice at once, and have two ends."""
        new = []
        for claimed in attempts:
            record = self._records.setdefault(claimed.token, _Record())
            if not record.has_come:
                record.has_come = True
                self._here += 1
                new.append(claimed)
        self._waiting += self.batches.gather(new) if self.batches.tasks else new
        self._fill_slots()

    def end_recalled(self) -> None:
        """End the recalled ones of the attempts that gather, whose call may be far off."""
        for claimed in self.batches.take(lambda token: self._records[token].is_recalled):
            self._end(claimed, RECALLED)

    def _begin_batch(self, task: BatchTask[Any, Any], gathered: list[Claimed]) -> None:
        """Begin one call. The worker is told before the call can end this process."""
        if not self._link.send_ends():
            return
        claims, attempts, items = [], [], []
        for claimed in gathered:
            prepared = self._prepare_or_refuse(claimed)
            if isinstance(prepared, Outcome):
                self._end(claimed, prepared)
            else:
                claims.append(claimed)
                attempts.append(prepared[1])
                items.append(prepared[2][0])
        if not claims:
            return
        now = self._clock.boot()
        self._link.send(Began([(claimed.token, now) for claimed in claims]))
        call = BatchCall(task, attempts)
        self.batches.calls += 1
        for claimed in claims:
            self._records[claimed.token].call = call
        self._context.copy().run(self._loop.create_task, self._run_batch(call, claims, items))

    def _fill_slots(self) -> None:
        """Let attempts begin in free slots, while ends are reported. Earlier ends are sent first:
        so after a death of this process, an attempt has not begun if its worker knows as many
        unended attempts before it as there are slots."""
        self._filling = False
        if not self._waiting or not self._link.send_ends():
            return
        count = min(len(self._waiting), self._slots - self._held)
        attempts = [self._waiting.popleft() for _ in range(count)]
        self._held += count
        names = {claimed.task for claimed in attempts}
        if threaded := {name for name in names if not self._needs_loop(name)}:
            for claimed in attempts:
                if claimed.task in threaded:
                    self._note_begun(claimed)
                    self._threads.call(self._run_in_thread, self._end_and_free_slot, claimed)
            attempts = [claimed for claimed in attempts if claimed.task not in threaded]
        self._reused_tasks.put(attempts)

    def _free_slot(self) -> None:
        """Let another attempt begin: with the loop's next iteration, so that ends of this one are
        sent together, or at once if all attempts have ended."""
        self._held -= 1
        if not self._waiting:
            return
        if not self._held:
            self._fill_slots()
        elif not self._filling:
            self._filling = True
            self._loop.call_soon(self._fill_slots)

    def _needs_loop(self, name: str) -> bool:
        try:
            return bool(self._app.around_fns) or self._app.find(name).is_async
        except UnknownTask:
            return True

    def stop(self, token: int, reason: str) -> None:
        """Ask an attempt to stop: a coroutine is cancelled, a plain function has to check. Hooks
        around a function that has ended are not cancelled."""
        if (record := self._records.get(token)) is None:
            return
        record.asked = record.asked or reason  # a thread that begins it first sets ``attempt``, and
        if (attempt := record.attempt) is None:  # then reads this
            return
        attempt._stop(record.asked)  # noqa: SLF001
        if record.task is not None and self._app.find(attempt.task).is_async:
            if reason in LIMITS and (stack := stack_of(record.task)):
                self._link.send(StackAtLimit(token, stack))
            self._loop.call_soon(self._cancel, token)

    def _note_task(self, token: int, asyncio_task: asyncio.Task[None]) -> None:
        """Note the asyncio task that runs an attempt; it may have been asked to stop by now."""
        record = self._records[token]
        record.task = asyncio_task
        if record.asked is not None:
            self._loop.call_soon(self._cancel, token)

    def _cancel(self, token: int) -> None:
        record = self._records.get(token)
        if record is None or record.attempt is None or record.task is None or record.is_over:
            return
        if record.call is not None:
            record.call.stop(record.task)
        elif self._app.find(record.attempt.task).is_async:
            record.attempt._noticed = True  # noqa: SLF001  # interrupted wherever it waits
            record.task.cancel()

    def find_stack(self, token: int) -> str:
        """Return where an attempt's coroutine stands; "" if it has none or does not wait."""
        record = self._records.get(token)
        if record is None or record.attempt is None or record.task is None:
            return ""
        return stack_of(record.task) if self._app.find(record.attempt.task).is_async else ""

    def runs(self, token: int) -> bool:
        """Whether this attempt is here: it has not ended."""
        return token in self._records

    def _note_begun(self, claimed: Claimed) -> None:
        """Note that an attempt begins, if it has a limit. The note is sent with the loop's next
        iteration: most attempts of small jobs have ended by then."""
        if claimed.policy.timeout is None and claimed.policy.stall_timeout is None:
            return
        if not self._begun:
            self._loop.call_soon(self._tell_begun)
        self._begun[claimed.token] = self._clock.boot()

    def _tell_begun(self) -> None:
        begun, self._begun = self._begun, {}
        if told := [(token, at) for token, at in begun.items() if token in self._records]:
            self._link.send(Began(told))

    def _note_over(self, token: int) -> None:
        """Note that the function of an attempt, or its whole call, has ended, though hooks around
        it may still run."""
        if (record := self._records.get(token)) is None:
            return
        ended = [token] if record.call is None else [one.token for one in record.call.attempts]
        for one in ended:
            self._records[one].is_over = True
        if not self._over:
            self._loop.call_soon(self._tell_over)
        self._over += ended

    def _tell_over(self) -> None:
        over, self._over = self._over, []
        if told := [token for token in over if token in self._records]:
            self._link.send(FunctionsEnded(told))

    def close(self) -> None:
        """Let go of the threads. Attempts must have ended, or their ends no longer matter."""
        self.batches.close()
        self._threads.close()

    def _leave_if_forked(self, error: BaseException | None) -> None:
        """End a forked child of a task that returned here: only its parent may end the attempt."""
        if self._forks == forks.generation:
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        code = error.code if isinstance(error, SystemExit) else int(error is not None)
        os._exit(code if isinstance(code, int) else int(code is not None))

    async def _run(self, claimed: Claimed, asyncio_task: asyncio.Task[None]) -> bool:
        """Run one attempt in this asyncio task; return whether the task may be reused."""
        prepared = self._prepare_or_refuse(claimed)
        if isinstance(prepared, Outcome):
            self._end(claimed, prepared)
            self._free_slot()
            return True
        task, attempt, args, kwargs = prepared
        self._note_begun(claimed)
        self._in_loop = True
        asyncio_task.set_name(f"job {claimed.job_id}")
        self._note_task(claimed.token, asyncio_task)
        running.set(attempt)
        before = contextvars.copy_context()
        try:
            if self._app.around_fns or not task.is_async:
                value = await run_marked(attempt.token, self._call, (task, attempt, args, kwargs))
            else:
                value = await run_marked(attempt.token, task.fn, args, kwargs)
            outcome = self._complete(attempt, value)
            raised = False
        except BaseException as error:
            self._leave_if_forked(error)
            outcome = judge(error, attempt, task._error_rules)  # noqa: SLF001
            raised = True
        if not raised:
            self._leave_if_forked(None)
        self._end(claimed, outcome)  # after the exception is gone, with what its frames held
        self._free_slot()
        return not raised and is_as(before)

    async def _run_batch(self, call: BatchCall, claims: list[Claimed], items: list[Any]) -> None:
        first, asyncio_task = call.attempts[0], asyncio.current_task()
        assert asyncio_task is not None
        asyncio_task.set_name(f"batch of {len(items)} jobs")
        self._in_loop = True
        for claimed in claims:
            self._note_task(claimed.token, asyncio_task)
        set_batch(call.attempts)
        value, error = None, None
        try:
            value = await run_marked(call.mark, self._call, (call.task, first, (items,), {}))
        except BaseException as raised:
            error = raised
        self._leave_if_forked(error)
        outcomes = call.judge(value, error, self._complete)
        error = None  # before the ends, as in ``_run``; and its traceback refers to this frame
        self.batches.calls -= 1
        for claimed, outcome in zip(claims, outcomes, strict=True):
            self._end(claimed, outcome)

    def _end(self, claimed: Claimed, outcome: Outcome) -> None:
        """Report the end of an attempt, even of one that could not begin."""
        attempt = self._records.pop(claimed.token).attempt
        self._here -= 1
        # here, since the loop's thread runs handlers first
        if attempt is not None and attempt._interruptions != count_interruptions():  # noqa: SLF001
            outcome = excuse(outcome)
        if self._end_fns:
            unread = msgspec.structs.replace(claimed, checkpoint=None)  # it may be unreadable
            self._tell_end(attempt or self._make_attempt(self._link, unread), outcome)
        others = self._ran
        self._ran += attempt is not None
        if self._ran and not self._here:
            if self._on_idle is not None:
                with contextlib.suppress(Exception):  # it must not keep the end back
                    self._on_idle(claimed.token, others, self._in_loop)
            self._ran, self._in_loop = 0, False
        end = End(claimed.token, outcome, attempt is not None and attempt.completed_in)
        self._link.report_end(end, is_last=not self._here)

    def _tell_end(self, attempt: Attempt, outcome: Outcome) -> None:
        """Call the functions that trace attempts, before the end is reported."""
        for tell in self._end_fns:
            try:
                tell(attempt, outcome)
            except Exception:  # it must not keep the end back
                logging.getLogger("outlast").exception(
                    "a listener failed at the end of %r", attempt
                )

    def _prepare_or_refuse(self, claimed: Claimed) -> Prepared | Outcome:
        """Return what an attempt needs to begin, or its end if it cannot, for example because it
        has waited for too long since its claim."""
        record = self._records[claimed.token]
        record.has_begun = True
        if record.is_recalled:
            return RECALLED
        if claimed.begin_by is not None and self._clock.boot() >= claimed.begin_by:
            return _EXPIRED
        try:
            prepared = self._prepare(claimed)
        except (BadArguments, UnknownTask) as error:
            return make_undecodable(error, self._hide)
        except Exception as error:  # such as a limit that no clock can show: reported, not raised
            return make_crashed(CrashKind.ERROR, describe(error), self._hide)
        record.attempt = attempt = prepared[1]
        attempt._interruptions = count_interruptions()  # noqa: SLF001
        if record.asked is not None:
            attempt._stop(record.asked)  # noqa: SLF001
        return prepared

    def _prepare(self, claimed: Claimed) -> Prepared:
        task = self._app.find(claimed.task)
        more = read_inputs(claimed, self._app.stores.payloads) if claimed.policy.inputs else None
        args, kwargs = task.signature.decode(claimed.args, more)
        timeout = claimed.policy.timeout
        link: Any = self._link
        make_children: Callable[[], Family] = self._make_children
        if task.batch:
            link = BatchLink(self._link)
            make_children = link.refuse
        attempt = self._make_attempt(
            link,
            claimed,
            deadline=None if timeout is None else self._clock.wall() + timeout,
            resources=self._resources,
            returns=task.returns,
            saves=task.checkpoint,
            max_payload=self._app.max_payload,
            payloads=self._app.stores.payloads,
            make_children=make_children,
        )
        return task, attempt, args, kwargs

    def _complete(self, attempt: Attempt, value: Any) -> Outcome:
        if attempt.completed_in:
            return Outcome(kind=OutcomeKind.COMPLETED)
        if attempt._verdict is not None and not attempt._finished:  # noqa: SLF001
            return judge(attempt._verdict(), attempt)  # noqa: SLF001
        if attempt._noticed and (stopped := cut_short(attempt)) is not None:  # noqa: SLF001
            return stopped
        most, payloads = self._app.max_payload, self._app.stores.payloads
        if value is None and attempt.returns in _NOTHING and payloads is PLAIN:
            return _WITHOUT_RESULT
        try:
            result, misfit = encode_return(value, attempt.returns, most, payloads)
        except BadArguments as error:
            if inspect.iscoroutine(value):
                value.close()
                return make_unawaited()
            return make_crashed(CrashKind.REJECTED_RESULT, text_of(error), self._hide)
        return Outcome(kind=OutcomeKind.COMPLETED, result=result, message=misfit)

    async def _call(self, task: Task[..., Any], attempt: Attempt, args: Any, kwargs: Any) -> Any:
        """Call the task inside its hooks. A hook that swallows its exception, or never calls it,
        does not complete it."""
        raised: BaseException | None = None
        try:
            async with contextlib.AsyncExitStack() as stack:
                try:
                    return await self._call_in(stack, task, attempt, args, kwargs)
                except BaseException as error:
                    raised = error
                    raise
            assert raised is not None
            raise raised
        finally:
            raised = None  # break the cycle: its traceback refers to this frame

    async def _call_in(
        self,
        stack: contextlib.AsyncExitStack,
        task: Task[..., Any],
        attempt: Attempt,
        args: Any,
        kwargs: Any,
    ) -> Any:
        inner: list[AbstractContextManager[Any]] = []
        for around in self._app.around_fns:
            context = around(attempt)
            if isinstance(context, AbstractContextManager) and not task.is_async:
                inner.append(context)  # entered in the function's own thread
            else:
                await entered(stack, context)
        if not task.is_async:
            return await self._in_thread(attempt.token, task.fn, inner, args, kwargs)
        try:
            return await task.fn(*args, **kwargs)
        finally:
            self._note_over(attempt.token)

    def _run_in_thread(self, claimed: Claimed) -> tuple[Claimed, Outcome]:
        try:
            return claimed, self._context.copy().run(self._run_plain, claimed)
        except BaseException as error:  # an error of ours: the attempt must still get an end
            return claimed, make_crashed(CrashKind.ERROR, describe(error), self._hide)

    def _run_plain(self, claimed: Claimed) -> Outcome:
        prepared = self._prepare_or_refuse(claimed)
        if isinstance(prepared, Outcome):
            return prepared
        task, attempt, args, kwargs = prepared
        running.set(attempt)
        try:
            value = call_marked(attempt.token, task.fn, args, kwargs)
            self._leave_if_forked(None)
            return self._complete(attempt, value)
        except BaseException as error:
            self._leave_if_forked(error)
            return judge(error, attempt, task._error_rules)  # noqa: SLF001

    def _end_and_free_slot(self, ended: tuple[Claimed, Outcome]) -> None:
        self._end(*ended)
        self._free_slot()

    async def _in_thread(
        self, token: int, fn: Callable[..., Any], inner: list[Any], args: Any, kwargs: Any
    ) -> Any:
        """Call a plain function inside its hooks, as ``_call`` does, in a thread."""
        ended: asyncio.Future[_Returned] = self._loop.create_future()
        context = contextvars.copy_context()
        call_of_many = self._records[token].call
        mark = token if call_of_many is None else call_of_many.mark

        def call() -> Any:
            raised: BaseException | None = None
            try:
                with contextlib.ExitStack() as stack:
                    try:
                        for manager in inner:
                            stack.enter_context(manager)
                        return fn(*args, **kwargs)
                    except BaseException as error:
                        raised = error
                        raise
                    finally:
                        if self._forks == forks.generation:
                            self._loop.call_soon_threadsafe(self._note_over, token)
                assert raised is not None
                raise raised
            finally:
                raised = None

        def work() -> _Returned:
            # an exception is handed back as a value: a Verdict must not end the thread
            try:
                value = context.run(call_marked, mark, call)
            except BaseException as error:
                self._leave_if_forked(error)
                return [None, error]
            self._leave_if_forked(None)
            return [value, None]

        self._threads.call(work, functools.partial(_set, ended))
        returned = await ended
        value, error = returned
        returned.clear()  # the thread may still hold it: the exception has to be gone at the end
        if error is not None:
            raise error
        return value


def _set(future: asyncio.Future[_Returned], returned: _Returned) -> None:
    if not future.done():
        future.set_result(returned)


async def entered(stack: contextlib.AsyncExitStack, context: Context) -> Any:
    """Enter a sync or async context on the stack; return its value."""
    if isinstance(context, AbstractContextManager):
        return stack.enter_context(context)
    return await stack.enter_async_context(context)


async def enter_lifespan(app: App, stack: contextlib.AsyncExitStack) -> Any:
    """Enter the application's lifespan, if it has one; return its resources."""
    return None if app.lifespan_fn is None else await entered(stack, app.lifespan_fn(app))
