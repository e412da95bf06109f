"""Wrap each attempt in a worker: give it the context and signals of Django's tasks.

The TaskResult of an attempt is made without a query; ``refresh()`` on it reads the rest. An error
of a signal's receiver is logged, and the attempt does not fail. No signal waits for the single
thread in which asgiref runs thread-sensitive code: the query of a neighbour may hold it for long.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections
from django.utils import timezone

from outlast.base.config import CONCURRENCY_MAX
from outlast.client.attempt import Attempt, current
from outlast.contrib.django import tasks_api as api
from outlast.errors import Cancel, Dead, LostLease, Snooze, Stopped

# a thread for each attempt that sends signals, so that none waits for another: few are ever made
_tellers = ThreadPoolExecutor(CONCURRENCY_MAX, thread_name_prefix="outlast-signals")


def function_of(task: Any) -> Callable[..., Any]:
    """Return the function that a worker runs for a task of Django."""
    return _coroutine(task) if inspect.iscoroutinefunction(task.func) else _plain(task)


def _plain(task: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        result = _begun(task, args, kwargs)
        api.task_started.send_robust(_sender(task), task_result=result)
        try:
            value = _as_json(task.func(*_context(task, result), *args, **kwargs))
        except BaseException as error:
            if _failed(result, error):
                api.task_finished.send_robust(_sender(task), task_result=result)
            raise
        _succeeded(result, value)
        api.task_finished.send_robust(_sender(task), task_result=result)
        return value

    return run


def _coroutine(task: Any) -> Callable[..., Any]:
    async def run(*args: Any, **kwargs: Any) -> Any:
        result = _begun(task, args, kwargs)
        await _tell(api.task_started, task, result)
        try:
            value = _as_json(await task.func(*_context(task, result), *args, **kwargs))
        except BaseException as error:
            if _failed(result, error):
                await _tell(api.task_finished, task, result)
            raise
        _succeeded(result, value)
        await _tell(api.task_finished, task, result)
        return value

    return run


async def _tell(signal: Any, task: Any, result: Any) -> None:
    """Send a signal to its receivers, in a thread of its own; async ones run in this loop."""
    if signal.has_listeners(_sender(task)):
        await sync_to_async(_tell_here, thread_sensitive=False, executor=_tellers)(
            signal, task, result
        )


def _tell_here(signal: Any, task: Any, result: Any) -> None:
    try:
        signal.send_robust(_sender(task), task_result=result)
    finally:
        connections.close_all()  # this thread's: it may be idle for long


def _as_json(value: Any) -> Any:
    """Return a result as Django normalizes it; TypeError if it is not JSON."""
    return api.to_plain(api.normalize_json(value))


def _sender(task: Any) -> type:
    return type(task.get_backend())


def _context(task: Any, result: Any) -> list[Any]:
    return [api.TaskContext(task_result=result)] if task.takes_context else []


def _begun(task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    attempt, now = current(), timezone.now()
    return api.TaskResult(
        task=task,
        id=str(attempt.job_id),
        status=api.TaskResultStatus.RUNNING,
        enqueued_at=None,
        started_at=now if attempt.number == 1 else None,
        finished_at=None,
        last_attempted_at=now,
        args=list(args),
        kwargs=kwargs,
        backend=task.backend,
        errors=[],
        worker_ids=[""] * (attempt.number - 1) + [str(attempt.worker_id)],
    )


def _succeeded(result: Any, value: Any) -> None:
    _end(result, api.TaskResultStatus.SUCCESSFUL)
    object.__setattr__(result, "_return_value", value)


def _failed(result: Any, error: BaseException) -> bool:
    """Return whether this failure is the job's last; if so, note it in the result."""
    if not _is_final(error, current()):
        return False
    _end(result, api.TaskResultStatus.FAILED)
    path = f"{type(error).__module__}.{type(error).__qualname__}"
    text = "".join(traceback.format_exception(error))
    result.errors.append(api.TaskError(exception_class_path=path, traceback=text))
    return True


def _is_final(error: BaseException, attempt: Attempt) -> bool:
    """Whether no attempt follows, as far as this attempt can know: the store decides."""
    if isinstance(error, Dead | Cancel):
        return True
    if isinstance(error, Snooze | Stopped | LostLease) or attempt._stop_reason is not None:  # noqa: SLF001  (by ``stopping`` the task would seem to have noticed the request)
        return attempt._stop_reason == "cancel"  # noqa: SLF001
    return attempt.is_last_try


def _end(result: Any, status: Any) -> None:
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", timezone.now())
