"""Defines bad ends for people: dead jobs by what they have in common, ended attempts, suspects.

Each look reads a bounded number of rows by an index, the newest first, and reports how far it came.
"""

from __future__ import annotations

import msgspec

DEAD_LOOKED_AT = 4_000  # dead jobs, in their index: each may still have to be looked up
ROWS_LOOKED_AT = 1_000  # dead jobs or attempts, if each row is read
GROUPS_MAX = 200
SUSPECTS_MAX = 500


class DeadGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead jobs with one fingerprint (``model.fingerprint``; None: written by another program).

    Attributes:
        number: how many of them are among those that were looked at.
        newest: the largest id.
        first_at, last_at: when the first and the last of them died, in seconds since 1970.
    """

    fingerprint: str | None
    number: int
    newest: int
    first_at: float
    last_at: float


class DeadGroups(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of dead jobs, the group with the latest death first, at most GROUPS_MAX.
    ``looked_at``: how many jobs were read; ``full``: there are more jobs, with smaller ids.
    ``more``: there are more groups."""

    groups: list[DeadGroup] = []
    looked_at: int = 0
    full: bool = False
    more: bool = False


class AttemptFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which ended attempts to list, newest first. ``outcomes``: only these; None: all.
    ``before``: only those with smaller tokens."""

    outcomes: tuple[str, ...] | None = None
    worker_id: int | None = None
    tenant: str | None = None
    before: int | None = None
    limit: int = 50


class EndedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that did not complete, without its crash report. ``task``, ``queue`` and
    ``tenant`` are those of its job, None if the job is gone."""

    token: int
    job_id: int
    number: int
    outcome: str
    charge: str
    started_at: float
    ended_at: float
    worker_id: int | None = None
    worker: str | None = None
    host: str | None = None
    message: str = ""
    repeats: int = 1
    task: str | None = None
    queue: str | None = None
    tenant: str | None = None


class EndedAttempts(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one look. ``before``: attempts with smaller tokens were not looked at; None:
    there are no others. ``back_to``: when the oldest attempt that was looked at ended."""

    rows: list[EndedAttempt] = []
    before: int | None = None
    back_to: float | None = None


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts that ended with one outcome, among those looked at; ``hour``: how many within the
    last hour; ``last_at``: when the last of them ended."""

    outcome: str
    number: int
    hour: int
    last_at: float


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """A job that shared a process which died. ``incident`` names that death by the lowest token in
    it, ``cohort`` the suspects that run together next. ``solo`` has the meaning it has on a job."""

    incident: int
    cohort: int | None
    job_id: int
    task: str
    queue: str
    state: str
    solo: int
    losses: int
    tenant: str | None = None
