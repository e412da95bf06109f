"""The times of a store as datetimes: seconds since 1970 on SQLite, timestamps on PostgreSQL."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from outlast.insight.row import moment


class MomentField(models.Field):
    """A time that is only read."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> datetime | None:
        """Return it as Django's settings want it: aware, or of the server's zone."""
        at = value if value is None or isinstance(value, datetime) else moment(value)
        if at is None or timezone.is_aware(at) == settings.USE_TZ:
            return at
        change = timezone.make_aware if settings.USE_TZ else timezone.make_naive
        shown: datetime = change(at)
        return shown
