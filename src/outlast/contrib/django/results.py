"""Read a job as a TaskResult, on Django's own connection, which sees its own transaction."""

from __future__ import annotations

import builtins
import contextlib
import re
from typing import Any

import msgspec
from django.utils.module_loading import autodiscover_modules

from outlast.client.job import ID_LIMIT
from outlast.contrib.django import calls
from outlast.contrib.django import tasks_api as api
from outlast.insight.row import plain
from outlast.model.crash import LIMITS, Crash, CrashKind
from outlast.model.job import State
from outlast.model.lifecycle import OutcomeKind

STATUSES = {
    State.QUEUED: api.TaskResultStatus.READY,
    State.BLOCKED: api.TaskResultStatus.READY,
    State.RUNNING: api.TaskResultStatus.RUNNING,
    State.COMPLETED: api.TaskResultStatus.SUCCESSFUL,
    State.DEAD: api.TaskResultStatus.FAILED,
    State.CANCELLED: api.TaskResultStatus.FAILED,
}
_FAILED_PATH, _CANCELLED_PATH = "outlast.JobFailed", "outlast.JobCancelled"


def read_result(backend: Any, result_id: str) -> Any:
    """Return the TaskResult of a job; TaskResultDoesNotExist if no task of Django has it."""
    from outlast.contrib.django.models import JobRecord

    text = str(result_id)
    if not (text.isascii() and text.isdigit() and int(text) < ID_LIMIT):
        raise api.TaskResultDoesNotExist(text)
    job = JobRecord.objects.using(backend.database).filter(pk=int(text)).first()
    task = None if job is None else _task_of(job.task)
    if job is None or task is None:
        raise api.TaskResultDoesNotExist(text)
    return _result_of(backend, task, job)


def _task_of(name: str) -> Any:
    """Return the task of this name. It imports modules of apps, never one that only a row names."""
    if name not in calls.known:
        autodiscover_modules("tasks")
    return calls.known.get(name)


def _result_of(backend: Any, task: Any, job: Any) -> Any:
    attempts = list(job.attempts.all()) if job.attempt_count else []
    args, kwargs = calls.decode(job.args)
    status = STATUSES[State(job.state)]
    result = api.TaskResult(
        task=_as_enqueued(backend, task, job),
        id=str(job.pk),
        status=status,
        enqueued_at=job.enqueued_at,
        started_at=attempts[0].started_at if attempts else job.started_at,
        finished_at=job.ended_at,
        last_attempted_at=job.started_at or (attempts[-1].started_at if attempts else None),
        args=args,
        kwargs=kwargs,
        backend=backend.alias,
        errors=_errors(job, attempts),
        worker_ids=_worker_ids(job, attempts),
    )
    if status == api.TaskResultStatus.SUCCESSFUL:
        object.__setattr__(result, "_return_value", plain(job.result))
    return result


def _as_enqueued(backend: Any, task: Any, job: Any) -> Any:
    """Return the task with the options of this job, or as declared if the settings forbid them."""
    waits = not job.attempt_count and job.run_at > job.enqueued_at
    changes = {"priority": job.priority, "queue_name": job.queue, "backend": backend.alias}
    with contextlib.suppress(Exception):
        return task.using(**changes, run_after=job.run_at if waits else None)
    return task


def _worker_ids(job: Any, attempts: list[Any]) -> list[str]:
    """Return the id of a worker for each attempt; "" for attempts that the store has not kept."""
    ids = [""] * job.attempt_count
    for attempt in attempts:
        if attempt.worker_id is not None and 0 < attempt.number <= len(ids):
            ids[attempt.number - 1] = str(attempt.worker_id)
    last = job.worker_id or job.completed_by
    if last is not None and ids:
        ids[-1] = str(last)
    return ids


def _errors(job: Any, attempts: list[Any]) -> list[Any]:
    found = [_error_of(crash) for each in attempts if (crash := _crash_of(each)) is not None]
    if job.state == State.CANCELLED:
        why = next((each.message for each in reversed(attempts) if each.message), "")
        text = f"{_CANCELLED_PATH}: {why or 'the job was cancelled'}\n"
        found.append(api.TaskError(exception_class_path=_CANCELLED_PATH, traceback=text))
    return found


def _crash_of(attempt: Any) -> Crash | None:
    if attempt.crash is None or attempt.outcome == OutcomeKind.CANCELLED:
        return None
    try:
        return msgspec.json.decode(attempt.crash, type=Crash)
    except (msgspec.DecodeError, UnicodeError, RecursionError):  # a damaged row
        return None


def _error_of(crash: Crash) -> Any:
    """Return a crash report as an error, with the traceback of an exception or the known facts."""
    path = _path_of(crash)
    text = crash.traceback or f"{path}: {crash.kind.value}: {crash.message}\n"
    return api.TaskError(exception_class_path=path, traceback=text)


def _path_of(crash: Crash) -> str:
    """Return the path of an exception class, whose module is in the traceback's last line, unless
    it is a built-in one."""
    if crash.kind in LIMITS:
        return "builtins.TimeoutError"
    if crash.kind is CrashKind.OUT_OF_MEMORY:
        return "builtins.MemoryError"
    name = crash.exception or ""
    if hasattr(builtins, name):
        return f"builtins.{name}"
    last_line = rf"^[\s|]*([\w.]+\.{re.escape(name)})(?::|$)"
    told = re.findall(last_line, crash.traceback or "", re.MULTILINE)
    return told[-1] if name and told else _FAILED_PATH
