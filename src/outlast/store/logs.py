"""Defines the kept lines of attempts: one row for each attempt, replaced as it grows.

Opt-in, by task or by worker; an attempt that prints nothing has no row. Only the newest attempts of
a job keep their rows, which are deleted with the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

LOGS_KEPT = 5  # attempts of a job whose lines are kept


class LogLine(NamedTuple):
    """A line, and when the worker received it, in seconds since 1970 by its clock."""

    at: float
    text: str


class JobLog(msgspec.Struct, frozen=True):
    """The last lines of a running attempt. ``dropped``: how many lines came before them."""

    job_id: int
    token: int
    number: int
    lines: list[LogLine]
    dropped: int = 0

    @property
    def printed(self) -> int:
        """How many lines the attempt has printed so far."""
        return self.dropped + len(self.lines)


class LogRow(msgspec.Struct, frozen=True, kw_only=True):
    """The kept lines of one attempt, as they are read. ``number``: the attempt's, from 1."""

    token: int
    number: int
    dropped: int
    lines: list[LogLine]


_decode = msgspec.json.Decoder(list[LogLine]).decode


def lines_text(lines: Sequence[LogLine]) -> str:
    """Return lines as they are stored: JSON."""
    return msgspec.json.encode(lines).decode()


def lines_of(text: str) -> list[LogLine]:
    """Return stored lines; text of another program counts as one line."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return [LogLine(0.0, text)]


def log_of(token: int, number: int, printed: int, text: str) -> LogRow:
    """Return the kept lines of one attempt, from its columns."""
    lines = lines_of(text)
    return LogRow(token=token, number=number, dropped=max(0, printed - len(lines)), lines=lines)
