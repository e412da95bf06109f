"""Register the app with Django."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.core.exceptions import ImproperlyConfigured


class OutlastConfig(AppConfig):
    """``"outlast.contrib.django"`` in ``INSTALLED_APPS``."""

    name = "outlast.contrib.django"
    label = "outlast"
    verbose_name = "Outlast"

    def ready(self) -> None:
        """Let ``manage.py check`` look at the settings."""
        checks.register(_check_limits)


def _check_limits(**_: Any) -> list[checks.CheckMessage]:
    from outlast.contrib.django.project import settings_limits
    from outlast.errors import text_of

    try:
        settings_limits()
    except ImproperlyConfigured as error:
        return [checks.Error(text_of(error), id="outlast.E002")]
    return []
