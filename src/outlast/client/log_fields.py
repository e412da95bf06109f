"""Add job, token and task to log records, so that a log of many jobs can be read by job."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from outlast.client.attempt import find_current


def add_job_fields(
    logger: Any, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Add ``job_id``, ``token`` and ``task`` of the attempt that logs to an event of structlog.

    A processor: ``structlog.configure(processors=[outlast.add_job_fields, …])``. Outside an
    attempt it adds nothing, and it replaces no field that is there.
    """
    attempt = find_current()
    if attempt is not None:
        event.setdefault("job_id", attempt.job_id)
        event.setdefault("token", attempt.token)
        event.setdefault("task", attempt.task)
    return event


def mark_records() -> None:
    """Give each record of ``logging`` in this process ``outlast_job``, ``outlast_token`` and
    ``outlast_task``; None outside an attempt. The prefix keeps them apart from any ``extra={…}``:
    logging refuses a collision with a KeyError."""
    make = logging.getLogRecordFactory()

    def marked(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        attempt = find_current()
        record.outlast_job = None if attempt is None else attempt.job_id
        record.outlast_token = None if attempt is None else attempt.token
        record.outlast_task = None if attempt is None else attempt.task
        return record

    logging.setLogRecordFactory(marked)
