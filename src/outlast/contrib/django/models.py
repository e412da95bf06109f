"""Present the tables of the store as models, which are not managed: only its verbs change rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from outlast.contrib.django.project import database
from outlast.insight.row import moment
from outlast.model.job import State


class MomentField(models.Field):
    """A read-only time, stored as seconds since 1970."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> datetime | None:
        """Return the time in the form of Django's settings: aware, or in the server's zone."""
        at = moment(value)
        if at is None or timezone.is_aware(at) == settings.USE_TZ:
            return at
        change = timezone.make_aware if settings.USE_TZ else timezone.make_naive
        shown: datetime = change(at)
        return shown


def _table(name: str, one: str, many: str, **options: Any) -> type:
    names = {"verbose_name": one, "verbose_name_plural": many}
    own = {"managed": False, "db_table": name, "default_permissions": (), **names, **options}
    return type("Meta", (), own)


class _InTheStore(models.Manager):
    """Reads the database that is the store, which need not be the default one."""

    def get_queryset(self) -> Any:
        """Return all rows."""
        return super().get_queryset().using(database())


class JobRecord(models.Model):
    """A job in the store."""

    Meta = _table(
        "outlast_jobs",
        "job",
        "jobs",
        ordering=["-id"],
        permissions=[
            ("view_job", "Can view jobs"),
            ("requeue_job", "Can requeue jobs"),
            ("cancel_job", "Can cancel jobs"),
            ("discard_job", "Can discard dead jobs"),
            ("bulk_job", "Can act on all jobs of a filter"),
            ("pause_job", "Can pause queues, tasks and tenants"),
            ("limit_job", "Can change limits"),
            ("drain_worker", "Can drain workers"),
        ],
    )

    objects: Any = _InTheStore()
    id = models.BigIntegerField(primary_key=True)
    task = models.TextField()
    queue = models.TextField()
    state = models.CharField(max_length=9, choices=[(each.value, each.value) for each in State])
    priority = models.SmallIntegerField()
    args = models.TextField()
    key = models.TextField(null=True)
    tenant = models.TextField(null=True)
    attempt_count = models.IntegerField("attempts")
    failures = models.IntegerField()
    losses = models.IntegerField()
    worker_id = models.BigIntegerField("worker", null=True)
    completed_by = models.BigIntegerField(null=True)
    enqueued_at = MomentField()
    run_at = MomentField("due at")
    started_at = MomentField(null=True)
    ended_at = MomentField(null=True)
    progress = models.TextField(null=True)
    checkpoint = models.TextField(null=True)
    result = models.TextField(null=True)

    def __str__(self) -> str:
        return f"{self.pk} ({self.task})"


class AttemptRecord(models.Model):
    """An attempt that did not complete."""

    Meta = _table("outlast_attempts", "attempt", "attempts", ordering=["token"])

    objects: Any = _InTheStore()
    token = models.BigIntegerField(primary_key=True)
    job_id: int
    job = models.ForeignKey(
        JobRecord, models.DO_NOTHING, related_name="attempts", db_constraint=False
    )
    number = models.IntegerField()
    worker_id = models.BigIntegerField(null=True)
    outcome = models.TextField()
    message = models.TextField()
    started_at = MomentField()
    ended_at = MomentField()
    crash = models.TextField(null=True)

    def __str__(self) -> str:
        return f"attempt {self.number} of job {self.job_id}"


class ScheduleRecord(models.Model):
    """A schedule in the store."""

    Meta = _table(
        "outlast_schedules",
        "schedule",
        "schedules",
        ordering=["name"],
        permissions=[
            ("view_schedule", "Can view schedules"),
            ("trigger_schedule", "Can trigger schedules"),
        ],
    )

    objects: Any = _InTheStore()
    name = models.CharField(max_length=200, primary_key=True)
    call = models.TextField()
    spec = models.TextField()
    overlap = models.TextField()
    catch_up = models.TextField()
    origin = models.TextField()
    paused = models.BooleanField()
    next_tick = MomentField(null=True)
    last_tick = MomentField(null=True)
    last_job = models.BigIntegerField(null=True)
    fired = models.BigIntegerField()
    skipped = models.BigIntegerField()
    missed = models.BigIntegerField()

    def __str__(self) -> str:
        return str(self.name)
