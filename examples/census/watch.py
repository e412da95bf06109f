"""What the store shows of the demo's workers and its job, look by look.

Only the store is asked, and clocks are read here alone: a worker's silence is counted from the
moment in which its beat was last seen to move, as its peers do it.
"""

from __future__ import annotations

import msgspec

from outlast.base.clock import SYSTEM, Clock
from outlast.insight.documents import Document, job_document
from outlast.model.job import State
from outlast.store.inspector import Inspector
from outlast.store.rows import AttemptRow, StoredJob, WorkerRow


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One look at the store.

    Attributes:
        at: when, in boot seconds.
        goal: commits to be counted in all.
        job: the job, or None before it is enqueued.
        attempts: its closed attempts.
        starts: token -> the commit from which that attempt went on.
        workers: the registered workers of the demo by name.
        silence: worker -> seconds since its beat was last seen to move.
    """

    at: float
    goal: int
    job: StoredJob | None
    attempts: list[AttemptRow]
    starts: dict[int, int]
    workers: dict[str, WorkerRow]
    silence: dict[str, float]

    @property
    def state(self) -> State | None:
        """The job's state."""
        return self.job.state if self.job else None

    @property
    def holder(self) -> str | None:
        """The name of the worker that the job runs on, by the store's word."""
        return self.job.worker if self.job and self.job.state is State.RUNNING else None

    @property
    def saved(self) -> int:
        """Commits in the checkpoint."""
        return _saved(self.job)

    @property
    def done(self) -> int:
        """Commits counted, as far as the store knows: reports lag behind by half a second."""
        if self.state is State.COMPLETED:
            return self.goal
        progress = self.job.progress if self.job else None
        return max(self.saved, done_of(progress.fraction if progress else None, self.goal))

    @property
    def stage(self) -> str:
        """What the job says it is at."""
        progress = self.job.progress if self.job else None
        return (progress.stage if progress else None) or ""

    def timeline(self) -> list[Document]:
        """All attempts, the running or completed one last, as ``outlast job --json`` has them."""
        attempts: list[Document] = (
            job_document(self.job, self.attempts)["attempts"] if self.job else []
        )
        return attempts


class Watch:
    """Looks at the store for the demo's workers (name -> process id) and, once it is known,
    its job (``job_id``)."""

    def __init__(self, inspector: Inspector, goal: int, *, clock: Clock = SYSTEM) -> None:
        self._inspector = inspector
        self._goal = goal
        self._clock = clock
        self._beats: dict[str, tuple[int, float]] = {}
        self._starts: dict[int, int] = {}
        self._saved = 0
        self.pids: dict[str, int] = {}
        self.job_id: int | None = None

    async def look(self) -> Observation:
        """Look once. Raises the store's errors."""
        job = None if self.job_id is None else await self._inspector.job(self.job_id)
        attempts = [] if job is None else await self._inspector.attempts(job.id)
        workers = await self._workers()
        at = self._clock.boot()
        self._note_start(job)
        return Observation(
            at=at,
            goal=self._goal,
            job=job,
            attempts=attempts,
            starts=dict(self._starts),
            workers=workers,
            silence={name: self._silence(row, at) for name, row in workers.items()},
        )

    async def _workers(self) -> dict[str, WorkerRow]:
        rows = await self._inspector.workers()
        return {row.name: row for row in rows if self.pids.get(row.name) == row.pid}

    def _note_start(self, job: StoredJob | None) -> None:
        """A new token has begun from the checkpoint that was there just before."""
        if job is not None and job.token is not None:
            self._starts.setdefault(job.token, self._saved)
        self._saved = _saved(job)

    def _silence(self, row: WorkerRow, at: float) -> float:
        beat, since = self._beats.get(row.name, (None, at))
        if beat != row.beat:
            since = at
            self._beats[row.name] = (row.beat, at)
        return at - since


def done_of(fraction: float | None, goal: int) -> int:
    """Return how many commits of ``goal`` a reported fraction stands for."""
    return round((fraction or 0.0) * goal)


class _Checkpoint(msgspec.Struct):
    commit: int = 0


def _saved(job: StoredJob | None) -> int:
    if job is None or job.checkpoint is None:
        return 0
    return msgspec.json.decode(job.checkpoint, type=_Checkpoint).commit
