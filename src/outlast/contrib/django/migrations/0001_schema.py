"""The schema of Outlast, and the models of its tables: that they exist, and nothing more, since
Django makes and changes nothing of what is not managed."""

from __future__ import annotations

from typing import Any

from django.db import migrations

from outlast.contrib.django.database import migrate
from outlast.contrib.django.models import AttemptRecord, JobRecord, ScheduleRecord
from outlast.contrib.django.project import database


def bring_up_to_date(apps: Any, schema_editor: Any) -> None:
    """Make the schema, in the database that is the store and in no other."""
    if schema_editor.connection.alias == database():
        migrate(schema_editor.connection)


def as_it_is(model: Any) -> migrations.CreateModel:
    """Return the operation by which Django knows of a model."""
    key = model._meta.pk  # noqa: SLF001  (so Django calls what is public)
    options = dict(model._meta.original_attrs)  # noqa: SLF001
    return migrations.CreateModel(model.__name__, [(key.name, key.clone())], options)


class OutlastMigration(migrations.Migration):
    """Not atomic: the store makes its schema in a transaction and on a connection of its own."""

    initial = True
    atomic = False
    dependencies: Any = []
    operations = [
        migrations.RunPython(bring_up_to_date, migrations.RunPython.noop),
        *map(as_it_is, (JobRecord, AttemptRecord, ScheduleRecord)),
    ]


Migration = OutlastMigration
