"""The same task twice: of Django's API and of ours."""

from __future__ import annotations

import django

from outlast.contrib.django import app

if django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task


@task
def mail(to: str, number: int) -> None:
    """Do nothing."""


@app.task
def native(to: str, number: int) -> None:
    """Do nothing."""
