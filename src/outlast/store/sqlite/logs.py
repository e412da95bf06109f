"""What attempts have printed: a plain function of a cursor, under the write lock."""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Cursor

from outlast.store.logs import LOGS_KEPT, JobLog, lines_text
from outlast.store.statements import statements

_LOGS = statements("sqlite", "logs")


def keep_logs(cursor: Cursor, now: float, logs: Sequence[JobLog]) -> set[int]:
    """Replace what is kept of running attempts; return the tokens for which it was done."""
    return {each.token for each in logs if _keep(cursor, each)}


def _keep(cursor: Cursor, log: JobLog) -> bool:
    values = {
        "job_id": log.job_id,
        "token": log.token,
        "number": log.number,
        "printed": log.printed,
        "lines": lines_text(log.lines),
    }
    is_kept: bool = cursor.execute(_LOGS["keep"], values).rowcount == 1
    if is_kept:
        cursor.execute(_LOGS["trim"], {"job_id": log.job_id, "kept": LOGS_KEPT})
    return is_kept
