"""Import ``django.tasks`` of Django 6.0, else the package django-tasks, its backport."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import django
import msgspec
from django.core.exceptions import ImproperlyConfigured

_version: Any = django.VERSION
IS_BUILT_IN: bool = _version >= (6, 0)
PACKAGE = "django.tasks" if IS_BUILT_IN else "django_tasks"


def _load(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ImproperlyConfigured(
            "before Django 6.0 its tasks are a package of their own: pip install django-tasks, and"
            " add 'django_tasks' to INSTALLED_APPS"
        ) from error


_base = _load(f"{PACKAGE}.base")
_exceptions = _load(f"{PACKAGE}.exceptions")
_signals = _load(f"{PACKAGE}.signals")

BaseTaskBackend: Any = _load(f"{PACKAGE}.backends.base").BaseTaskBackend
Task: Any = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
TaskResultStatus: Any = _base.TaskResultStatus
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
InvalidTask: Any = _exceptions.InvalidTask if IS_BUILT_IN else _exceptions.InvalidTaskError
normalize_json: Any = _load(
    "django.utils.json" if IS_BUILT_IN else "django_tasks.utils"
).normalize_json
task_enqueued: Any = _signals.task_enqueued
task_started: Any = _signals.task_started
task_finished: Any = _signals.task_finished


def to_plain(value: Any) -> Any:
    """Return values that Django has normalized as JSON's own types: Django lets subclasses of str
    pass (a SafeString, a choice). ValueError for a value that JSON cannot express.
    """
    try:
        _plain.encode(value)
    except (TypeError, UnicodeError):
        return json.loads(json.dumps(value, allow_nan=False))
    return value


_plain = msgspec.json.Encoder()
