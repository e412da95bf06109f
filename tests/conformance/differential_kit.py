"""What the differential test keeps of a history: the model's jobs and attempts, and each store."""

from __future__ import annotations

from dataclasses import dataclass, field

from outlast.model.job import JobFacts, Policy, State
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter
from outlast.store.values import WorkerRef

POLICY = Policy(retries=1, max_losses=2, backoff_first=1_000.0, backoff_max=1_000.0)


@dataclass
class ModelJob:
    """A job as the model expects it. ``place`` orders the line; None: not in it."""

    priority: int
    key: str | None
    place: int | None
    state: State = State.QUEUED
    attempt: int | None = None
    worker: int | None = None
    count: int = 0
    failures: int = 0
    losses: int = 0
    cancel: bool = False
    checkpoint: str | None = None
    saved: int = 0
    solo: int = 0
    incident: int | None = None
    cohort: int | None = None
    due: bool = True

    def shown(self) -> tuple[object, ...]:
        """What an inspector shows of it."""
        waiting = self.state is State.QUEUED and not self.due
        counted = (self.count, self.failures, self.losses)
        suspected = (self.solo, self.incident, self.cohort)
        return (
            self.state,
            waiting,
            *counted,
            self.cancel,
            self.checkpoint,
            self.attempt,
            suspected,
        )

    def facts(self, name: int, token: int) -> JobFacts:
        """What a decision about its attempt needs."""
        return JobFacts(
            job_id=name,
            token=token,
            failures=self.failures,
            losses=self.losses,
            policy=POLICY,
            solo=self.solo,
            incident=self.incident,
            cohort=self.cohort,
        )


@dataclass
class ModelAttempt:
    """One claim: the facts its worker was told, and how it was closed."""

    job: int
    worker: int
    facts: JobFacts
    outcome: str | None = None


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
