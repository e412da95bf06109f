"""Provide the application that a project's workers import: ``outlast.contrib.django.runner:app``.

Importing it sets Django up and imports the module ``tasks`` of each app. Tasks that are declared on
a backend of another kind are included, since ``using(backend=…)`` may send them here.
"""

from __future__ import annotations

import sys
from typing import Any

import django
from django.utils.module_loading import autodiscover_modules

from outlast.contrib.django import calls
from outlast.contrib.django import tasks_api as api
from outlast.contrib.django.project import app, settings_limits

__all__ = ["app"]


def _tasks_in_modules() -> list[Any]:
    modules = [module for name, module in list(sys.modules.items()) if name.endswith("tasks")]
    found = [
        value for module in modules for value in list(getattr(module, "__dict__", {}).values())
    ]
    return [value for value in found if isinstance(value, api.Task)]


def _set_up() -> None:
    django.setup()
    settings_limits()
    autodiscover_modules("tasks")
    for task in _tasks_in_modules():
        calls.note(task)
    for task in list(calls.known.values()):
        calls.register(task)


_set_up()
