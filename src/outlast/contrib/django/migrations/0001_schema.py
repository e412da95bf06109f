"""Make the schema of Outlast, and register the models of its tables. Django creates and changes no
table of an unmanaged model."""

from __future__ import annotations

from typing import Any

from django.db import migrations

from outlast.contrib.django.database import migrate
from outlast.contrib.django.models import AttemptRecord, JobRecord, ScheduleRecord
from outlast.contrib.django.project import database


def bring_up_to_date(apps: Any, schema_editor: Any) -> None:
    """Make the schema, only in the database that is the store."""
    if schema_editor.connection.alias == database():
        migrate(schema_editor.connection)


def as_it_is(model: Any) -> migrations.CreateModel:
    """Return the operation that registers a model with Django."""
    key = model._meta.pk  # noqa: SLF001  (so Django calls what is public)
    options = dict(model._meta.original_attrs)  # noqa: SLF001
    return migrations.CreateModel(model.__name__, [(key.name, key.clone())], options)


class OutlastMigration(migrations.Migration):
    """Not atomic: the store makes its schema in its own transaction, on its own connection."""

    initial = True
    atomic = False
    dependencies: Any = []
    operations = [
        migrations.RunPython(bring_up_to_date, migrations.RunPython.noop),
        *map(as_it_is, (JobRecord, AttemptRecord, ScheduleRecord)),
    ]


Migration = OutlastMigration
