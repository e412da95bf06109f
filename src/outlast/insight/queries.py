"""What people ask of a store: what is read, and put together, for one answer. Never writes.

The command line, a page and a test call the same functions; how an answer looks is theirs.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from outlast.insight.availability import astray
from outlast.insight.documents import phase_of
from outlast.insight.liveness import with_proof
from outlast.insight.situation import Situation
from outlast.model.job import State
from outlast.store.protocol import REFUSALS_KEPT, Store
from outlast.store.rows import AttemptRow, JobFilter, RefusalRow, StoredJob, WorkerRow
from outlast.store.statistics import Place

PAGE = 1_000  # jobs read at once in search of a phase
LOOKED_AT_MAX = 20_000  # rows of the state, the newest, in search of a phase
PHASES = {
    "scheduled": State.QUEUED,
    "retrying": State.QUEUED,
    "suspect": State.QUEUED,
    "unservable": State.QUEUED,
    "orphaned": State.RUNNING,
    "silent": State.RUNNING,
}
"""Phase -> the state that its jobs have."""


class Dossier(msgspec.Struct, frozen=True):
    """What is known of one job. ``now`` is in seconds since 1970."""

    row: StoredJob
    attempts: list[AttemptRow]
    refusals: list[RefusalRow]
    known: set[str]
    now: float
    workers: list[WorkerRow] = []

    @property
    def astray(self) -> dict[int, str]:
        """Whether nothing runs it any more, though its state is running (see ``availability``)."""
        return astray([self.row], self.workers, self.now) if self.workers else {}

    @property
    def phase(self) -> str:
        """Where the job is, in the words for people."""
        return phase_of(self.row, self.known, self.astray)


class JobList(NamedTuple):
    """What is listed. ``astray``: running jobs that nothing runs (see ``availability``).
    ``complete``: whether all jobs were looked at, as far as the limit asks for them."""

    rows: list[StoredJob]
    known: set[str]
    astray: dict[int, str]
    complete: bool = True


class WorkerList(NamedTuple):
    """All workers, and the newest refused writes."""

    rows: list[WorkerRow]
    refusals: list[RefusalRow]


async def read_workers(store: Store) -> list[WorkerRow]:
    """Return all workers, with what this machine knows of them."""
    return with_proof(await store.inspector.workers())


async def list_workers(store: Store) -> WorkerList:
    """Return all workers, and all refused writes that are kept."""
    return WorkerList(
        await read_workers(store), await store.inspector.refusals(limit=REFUSALS_KEPT)
    )


async def read_situation(store: Store, job_id: int, now: float) -> Situation | None:
    """Return what ``why`` has to know of a job; None: there is no such job."""
    inspector = store.inspector
    row = await inspector.job(job_id)
    if row is None:
        return None
    return Situation(
        row=row,
        attempts=await inspector.attempts(job_id),
        workers=await read_workers(store),
        place=await inspector.place(job_id) or Place(),
        now=now,
        held=await inspector.held() if row.state is State.QUEUED else [],
    )


async def read_dossier(store: Store, job_id: int, now: float) -> Dossier | None:
    """Return all that is known of a job; None: there is no such job."""
    inspector = store.inspector
    row = await inspector.job(job_id)
    if row is None:
        return None
    return Dossier(
        row=row,
        attempts=await inspector.attempts(job_id),
        refusals=await inspector.refusals(job_id),
        known=await inspector.known_tasks(),
        now=now,
        workers=await read_workers(store),
    )


async def list_jobs(store: Store, which: JobFilter, phase: str | None, now: float) -> JobList:
    """Return the newest jobs of this filter and, if one of ``PHASES`` is given, of this phase."""
    workers, known = await read_workers(store), await store.inspector.known_tasks()
    if phase not in PHASES:
        rows = await store.inspector.jobs(which)
        return JobList(rows, known, astray(rows, workers, now))
    found: list[StoredJob] = []
    strays: dict[int, str] = {}
    before = which.before_id
    for _ in range(LOOKED_AT_MAX // PAGE):
        page = msgspec.structs.replace(which, limit=PAGE, before_id=before)
        rows = await store.inspector.jobs(page)
        strays |= astray(rows, workers, now)
        found += [row for row in rows if phase_of(row, known, strays) == phase]
        if len(rows) < PAGE or len(found) >= which.limit:
            return JobList(found[: which.limit], known, _of(found[: which.limit], strays))
        before = rows[-1].id
    return JobList(found, known, _of(found, strays), complete=False)


def _of(rows: list[StoredJob], strays: dict[int, str]) -> dict[int, str]:
    return {row.id: strays[row.id] for row in rows if row.id in strays}
