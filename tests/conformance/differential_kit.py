"""A store of the differential test, and how it calls what is in the history."""

from __future__ import annotations

from dataclasses import dataclass, field

from outlast.store.protocol import Store
from outlast.store.rows import JobFilter
from outlast.store.values import WorkerRef


@dataclass
class Side:
    """One store, and how it calls the jobs, attempts and workers of the history."""

    store: Store
    jobs: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    workers: list[WorkerRef] = field(default_factory=list)

    async def shown(self) -> dict[int, tuple[object, ...]]:
        """Return what the inspector shows, in the names of the history."""
        rows = await self.store.inspector.jobs(JobFilter(limit=1_000))
        return {
            self.jobs.index(row.id): (
                row.state,
                row.waiting,
                row.attempt_count,
                row.failures,
                row.losses,
                row.cancel_requested,
                row.checkpoint,
                self.named(row.token),
                (row.solo, self.named(row.incident), self.named(row.cohort)),
            )
            for row in rows
        }

    def named(self, token: int | None) -> int | None:
        """A token in the name of the history."""
        return None if token is None else self.tokens.index(token)

    def token(self, name: int | None) -> int | None:
        """Return this store's token of an attempt."""
        return None if name is None else self.tokens[name]

    async def closed(self) -> list[tuple[int, str]]:
        """All closed attempts and their outcomes, in the names of the history."""
        looks = [await self.store.inspector.attempts(job_id) for job_id in self.jobs]
        return sorted((self.tokens.index(row.token), row.outcome) for look in looks for row in look)
