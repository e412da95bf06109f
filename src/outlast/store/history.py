"""Defines the history of jobs and attempts that ``outlast verify`` checks, page by page.

One page is one snapshot: no attempt ends between the read of a job and that of its attempts.
"""

from __future__ import annotations

import msgspec

from outlast.model.job import Policy, State
from outlast.store.rows import WorkerStatus

HISTORY_PAGE = 1_000  # jobs


class AttemptPast(msgspec.Struct, frozen=True, kw_only=True):
    """A closed attempt. Times are seconds since 1970 on the store's clock. ``dropped`` counts the
    deleted rows of earlier attempts."""

    job_id: int
    token: int
    number: int
    outcome: str
    charge: str
    started_at: float
    ended_at: float
    has_crash: bool = False
    worker_id: int | None = None
    dropped: int = 0


class JobPast(msgspec.Struct, frozen=True, kw_only=True):
    """A job with all its closed attempts, in the order of their tokens. ``worker_status`` is on the
    row of the worker that runs it; None: there is no such row. ``ordered``: the stream in which it
    waits its turn, if an ordered limit is among its limits."""

    id: int
    state: State
    attempt_count: int
    failures: int
    losses: int
    policy: Policy
    solo: int = 0
    token: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    worker_id: int | None = None
    worker_status: WorkerStatus | None = None
    task: str = ""
    queue: str = ""
    tenant: str | None = None
    ordered: int | None = None
    attempts: list[AttemptPast] = []


class HistoryPage(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs by rising id. ``strays`` are attempts of jobs that do not exist; ``token_last`` is the
    highest token ever drawn; ``next_after`` is None on the last page."""

    jobs: list[JobPast]
    strays: list[AttemptPast]
    token_last: int
    next_after: int | None
