"""Run Outlast as an app of Django: tasks of ``django.tasks`` are jobs in the project's database.

``INSTALLED_APPS`` takes ``"outlast.contrib.django"``, and a backend of ``TASKS`` is
``"outlast.contrib.django.Backend"``. ``app`` is the ``outlast.App`` of the project, for tasks that
use checkpoints, keys and the rest: ``@app.task``.

apps.py        the app, as Django knows it
tasks_api.py   django.tasks, or the package that brings it to Django 5.2
database.py    the URL of a store for a connection of Django, and the schema in its database
project.py     the database that is the store, and the project's App
calls.py       calls of Django's tasks as jobs, and the functions that run them
backend.py     the backend of django.tasks
results.py     a job in the store as a TaskResult
attempts.py    what happens around each attempt in a worker: context, signals
connections.py  Django's connections around each attempt: too old or broken ones are closed
runner.py      the application that workers import
models.py      the tables of the store, as models that are not managed
admin.py       jobs and schedules in Django's admin
page_settings.py  OUTLAST_PAGE: what the page and the admin hide, and whether users may act there
page.py        the page for operators, as a view
urls.py        its address
testing.py     jobs that run in tests
migrations/    make the schema, also in test databases
management/    manage.py outlast
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlast.contrib.django.backend import TaskBackend as Backend
    from outlast.contrib.django.calls import call
    from outlast.contrib.django.project import app

__all__ = ["Backend", "app", "call"]

_HOMES = {
    "Backend": ("backend", "TaskBackend"),
    "app": ("project", "app"),
    "call": ("calls", "call"),
}


def __getattr__(name: str) -> Any:
    """Import a name on demand: Django imports this package before its apps are ready."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(f"{__name__}.{module}"), attribute)
