"""Deletes what ended long ago, a bounded batch at a time."""

from __future__ import annotations

from outlast.events import emit
from outlast.store.base import PRUNE_MAX, Store

PRUNE_SECONDS = 60.0


class Pruner:
    """The duty that keeps the tables small. Dead jobs are kept: an operator decides."""

    name = "pruner"

    def __init__(self, store: Store, *, keep_jobs: float, keep_workers: float) -> None:
        self._store = store
        self._keep_jobs = keep_jobs
        self._keep_workers = keep_workers

    async def run_once(self) -> float:
        """Delete one batch; come back at once while there is more."""
        gone = await self._store.prune(
            jobs_older_than=self._keep_jobs, workers_older_than=self._keep_workers
        )
        if gone:
            emit("jobs_pruned", rows=gone)
        return 0.1 if gone >= PRUNE_MAX else PRUNE_SECONDS
