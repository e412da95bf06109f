"""Implement the backend of ``django.tasks``: a call becomes a job in Django's own transaction."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils import timezone

from outlast.base.config import check_name
from outlast.base.sync import blocking, loop_is_running
from outlast.client.limits import Limit, in_stream
from outlast.contrib.django import calls
from outlast.contrib.django import tasks_api as api
from outlast.contrib.django.database import begins_by_reading, is_of_tests, url_of
from outlast.contrib.django.project import app, own_url, refuse_loop_in_atomic
from outlast.contrib.django.results import read_result
from outlast.errors import ConfigError, ConnectionMismatch, UsageError, text_of
from outlast.store.values import NewJob

READS_FIRST = (
    "a transaction on {!r} that begins with a read can no longer write once a worker has written"
)
MEND = 'Let its OPTIONS in DATABASES have "transaction_mode": "IMMEDIATE".'


class TaskBackend(api.BaseTaskBackend):
    """``outlast.contrib.django.Backend``: tasks of ``django.tasks`` as jobs.

    ``enqueue`` is part of the transaction that is open on ``OPTIONS["database"]``: the job exists
    if it commits. The other OPTIONS are the options of ``@app.task`` (``retries``, ``timeout``
    and so on) for all tasks of the backend, ``limits`` by their names in OUTLAST["LIMITS"], and
    ``url``: the store's URL for workers, if it differs from Django's.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True
    enqueues_in_transaction = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.database = self.options.get("database", DEFAULT_DB_ALIAS)
        databases: Any = connections.databases
        if self.database not in databases:
            raise ImproperlyConfigured(
                f"OPTIONS['database'] of the task backend {alias!r} is {self.database!r}; DATABASES"
                f" has {', '.join(sorted(databases))}"
            )
        self._known_names: set[tuple[str, str]] = set()
        self.task_options, self._policy, self._placement = calls.read_options(self.options)

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """The limits of its jobs. ImproperlyConfigured if the settings do not have them."""
        return calls.find_limits(self.options.get("limits", ()))

    def validate_task(self, task: Any) -> None:
        """Check a task as Django does, and that workers can serve a queue of its name."""
        super().validate_task(task)
        names = (task.queue_name, task.module_path)
        if names in self._known_names:
            return
        try:
            check_name("queue_name", task.queue_name)
            check_name("a task's path", task.module_path)
        except ConfigError as error:
            raise api.InvalidTask(text_of(error)) from error
        calls.note(task)
        self._known_names.add(names)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store a job that calls the task, in the open transaction; without one, at once.

        Raises:
            TypeError: the arguments are not JSON, or the function does not take them.
            BadArguments: they are too large.
            ImproperlyConfigured: the database has no tables of Outlast, or the tables of another
            store. UsageError: an event loop runs here: ``await task.aenqueue(…)``.
            ConfigError: the task is under an ordered limit, and the priority is not its own.
        """
        self.validate_task(task)
        if loop_is_running():
            raise UsageError("enqueue() would block the event loop here: await aenqueue() instead")
        result = self._new_result(task, args, kwargs)
        try:
            job_id = self._store_sync(self._job_of(task, result))
        except ConnectionMismatch as error:
            raise ImproperlyConfigured(
                f"the task backend {self.alias!r}: {text_of(error)}"
            ) from error
        object.__setattr__(result, "id", str(job_id))
        api.task_enqueued.send(type(self), task_result=result)
        return result

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """As ``enqueue``, in the thread in which Django runs plain code.

        UsageError: the transaction that is open belongs to the thread of this event loop, where
        ``asyncio.run`` was called inside ``atomic``: the job could not be part of it.
        """
        refuse_loop_in_atomic()
        return await super().aenqueue(task, args, kwargs)

    def get_result(self, result_id: str) -> Any:
        """Return a job's result from the store; TaskResultDoesNotExist if the store has no such
        job."""
        return read_result(self, result_id)

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        """Return what is wrong with the settings, for ``manage.py check``."""
        found: list[checks.CheckMessage] = []
        if not apps.is_installed("outlast.contrib.django"):
            fix = "Add 'outlast.contrib.django' to INSTALLED_APPS."
            found.append(checks.Error("The app of Outlast is missing.", fix, id="outlast.E001"))
        try:
            _ = self.limits
        except ImproperlyConfigured as error:
            found.append(checks.Error(text_of(error), id="outlast.E003"))
        connection = connections[self.database]
        try:
            _ = own_url() or is_of_tests(connection) or url_of(connection)
        except ImproperlyConfigured as error:
            found.append(checks.Warning(text_of(error), id="outlast.W001"))
        if begins_by_reading(connection):
            found.append(checks.Warning(READS_FIRST.format(self.database), MEND, id="outlast.W002"))
        return found

    def _new_result(self, task: Any, args: Any, kwargs: Any) -> Any:
        try:
            result = api.TaskResult(
                task=task,
                id="",
                status=api.TaskResultStatus.READY,
                enqueued_at=timezone.now(),
                started_at=None,
                finished_at=None,
                last_attempted_at=None,
                args=args,
                kwargs=kwargs,
                backend=self.alias,
                errors=[],
                worker_ids=[],
            )
        except (TypeError, ValueError) as error:
            raise TypeError(calls.explain_no_json(task, args, kwargs)) from error
        calls.check_call(task, result.args, result.kwargs)
        return result

    def _job_of(self, task: Any, result: Any) -> NewJob:
        job = NewJob(
            task=task.module_path,
            queue=task.queue_name,
            args=calls.encode(task, result.args, result.kwargs),
            priority=int(task.priority),
            run_at=None if task.run_after is None else _seconds(task.run_after),
            expires=self._placement.expires,
            policy=self._policy,
        )
        own_priority = int(calls.known[task.module_path].priority)
        return in_stream(job, self.limits, own_priority=own_priority)

    async def _store(self, job: NewJob) -> int:
        await app.stores.admit([job])
        (stored,) = await app.stores.enqueue([job], connections[self.database])
        return stored.job_id

    _store_sync = blocking(_store)


def _seconds(at: datetime) -> float:
    return (timezone.make_aware(at) if timezone.is_naive(at) else at).timestamp()
