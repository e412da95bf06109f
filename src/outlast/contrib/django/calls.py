"""Turn calls of Django's tasks into jobs, and make the tasks of Outlast that run them.

A job is stored with Django's form of a call, ``{"args": […], "kwargs": {…}}``; its task is named by
the path of the function.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import cache
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from outlast.base.config import MAX_PAYLOAD
from outlast.client.limits import Limit, check_limits
from outlast.client.task import Call
from outlast.client.task import Task as OutlastTask
from outlast.client.task_options import Placement, TaskOptions, make_placement, make_policy
from outlast.contrib.django.attempts import function_of
from outlast.contrib.django.project import app, settings_limits
from outlast.contrib.django.tasks_api import normalize_json, to_plain
from outlast.errors import BadArguments, ConfigError, text_of
from outlast.insight.row import plain
from outlast.model.job import Policy
from outlast.payload.codec import to_json, too_large
from outlast.payload.signature import Signature

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
OF_BACKENDS = {"database", "url"}
OF_TASKS = TaskOptions.__annotations__.keys() - {
    *("name", "queue", "priority", "aliases"),  # the task says these
    *("fair", "aging"),  # a call has no tenant, and streams for limits alone
}

known: dict[str, Any] = {}
"""The tasks that Django has made, by the names that their jobs have."""


def read_options(options: dict[str, Any]) -> tuple[TaskOptions, Policy, Placement]:
    """Return the task options in a backend's OPTIONS, and the limits and the place of its jobs.
    ImproperlyConfigured for an option that is unknown or invalid."""
    if unknown := options.keys() - OF_BACKENDS - OF_TASKS:
        known = ", ".join(sorted({*OF_BACKENDS, *OF_TASKS}))
        raise ImproperlyConfigured(
            f"OPTIONS: Outlast's backend has no option {', '.join(sorted(unknown))}; choose from:"
            f" {known}"
        )
    given: Any = {name: value for name, value in options.items() if name in OF_TASKS}
    try:
        return given, make_policy(given), make_placement(given)
    except ConfigError as error:
        raise ImproperlyConfigured(f"OPTIONS: {text_of(error)}") from error


def find_limits(names: Any) -> tuple[Limit, ...]:
    """Return the limits of these names in OUTLAST["LIMITS"]; ImproperlyConfigured for one that is
    missing, or that no job can have."""
    known = settings_limits()
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ImproperlyConfigured(f"OPTIONS: limits must be a list of names, such as [{names!r}]")
    given = tuple(names)
    for name in given:
        if name not in known:
            told = ", ".join(sorted(known)) or "none"
            raise ImproperlyConfigured(
                f"OPTIONS: limits has {name!r}; the limits in OUTLAST['LIMITS'] are: {told}"
            )
        if per := known[name].spec.per:
            raise ImproperlyConfigured(
                f"OPTIONS: {name!r} is a limit per {per}, which calls of Django's tasks cannot"
                f" name; it is for tasks of @app.task"
            )
    try:
        return check_limits(known[name] for name in given)
    except ConfigError as error:
        raise ImproperlyConfigured(f"OPTIONS: {text_of(error)}") from error


def note(task: Any) -> None:
    """Remember a task that Django has made, by the task name of its jobs."""
    known.setdefault(task.module_path, task)


def register(task: Any) -> OutlastTask[..., Any]:
    """Return the task of the project's App that runs this one of Django."""
    mine = app.tasks.get(task.module_path)
    if mine is not None:
        return mine
    backend = task.get_backend()
    options: TaskOptions = getattr(backend, "task_options", TaskOptions())
    options = {
        **options,
        "limits": getattr(backend, "limits", ()),
        "queue": task.queue_name,
        "priority": task.priority,
    }
    function = function_of(task)
    made: OutlastTask[..., Any] = app.task(**{**options, "name": task.module_path})(function)
    made.signature = _Signature(task, function)
    return made


class _Signature(Signature):
    """Takes the calls that the function of a task of Django takes, in Django's form."""

    def __init__(self, task: Any, function: Any) -> None:
        super().__init__(function, task.module_path, app.max_payload, app.stores.payloads)
        self._of = task

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        try:
            check_call(self._of, [*args], kwargs)
        except TypeError as error:
            raise BadArguments(text_of(error)) from error
        return super().bind(args, kwargs)


def call(task: Any, *args: Any, **kwargs: Any) -> Call[Any]:
    """Return a call of a task of Django, such as ``app.schedule`` and ``app.enqueue_many`` take."""
    if isinstance(task, OutlastTask):
        return task.call(*args, **kwargs)
    check_call(task, list(args), kwargs)
    return register(task).call(*args, **kwargs)


@cache
def _signature(function: Any) -> inspect.Signature:
    return inspect.signature(function)


@cache
def _positional(function: Any) -> range:
    parameters = _signature(function).parameters.values()
    places = [each for each in parameters if each.kind in _BY_POSITION]
    required = [each for each in parameters if each.default is each.empty]
    by_name = [each for each in required if each.kind is each.KEYWORD_ONLY]
    least = sum(each.kind in _BY_POSITION for each in required)
    return range(0) if by_name else range(least, len(places) + 1)


def check_call(task: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Raise TypeError, as Python would, for arguments that the function does not take."""
    context = [None] if task.takes_context else []
    if not kwargs and len(context) + len(args) in _positional(task.func):
        return
    try:
        _signature(task.func).bind(*context, *args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{task.module_path}{_signature(task.func)}: {text_of(error)}") from error


def explain_no_json(task: Any, args: Any, kwargs: Any) -> str:
    """Return which argument of a call is not JSON, and what to pass instead."""
    for place, value in (*enumerate(args, 1), *kwargs.items()):
        try:
            normalize_json(value)
        except (TypeError, ValueError) as error:
            return (
                f"argument {place!r} of {task.module_path} is not JSON: {text_of(error)}: pass"
                " something to make it from, such as the pk of an object or a date as a text"
            )
    return f"the arguments of {task.module_path} are not JSON"


def encode(task: Any, args: list[Any], kwargs: dict[str, Any]) -> str:
    """Return a call as the arguments of a job; TypeError if not JSON, BadArguments if too large."""
    given = {name: value for name, value in (("args", args), ("kwargs", kwargs)) if value}
    what = f"the arguments of task {task.module_path}"
    try:
        text = _json_of(what, given)
    except (BadArguments, ValueError) as error:
        raise TypeError(text_of(error)) from error
    if len(text) > MAX_PAYLOAD:
        raise too_large(f"{what} have", len(text), MAX_PAYLOAD, "pass")
    return text.decode()


def _json_of(what: str, given: dict[str, Any]) -> bytes:
    try:
        return to_json(what, given)
    except BadArguments:
        return to_json(what, to_plain(given))


def decode(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return a job's call; an empty one if its arguments are of another kind."""
    given = plain(text)
    if not isinstance(given, dict):
        return [], {}
    args, kwargs = given.get("args", []), given.get("kwargs", {})
    return (
        args if isinstance(args, list) else [],
        kwargs if isinstance(kwargs, dict) else {},
    )
