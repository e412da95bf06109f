"""Register the app with Django."""

from __future__ import annotations

from django.apps import AppConfig


class OutlastConfig(AppConfig):
    """``"outlast.contrib.django"`` in ``INSTALLED_APPS``."""

    name = "outlast.contrib.django"
    label = "outlast"
    verbose_name = "Outlast"
