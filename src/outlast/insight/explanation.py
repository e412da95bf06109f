"""Hold the facts about one job, and the answer of ``outlast why``. Values only."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from outlast.insight.availability import Served, astray, phase_of
from outlast.model.crash import Progress
from outlast.model.job import State
from outlast.model.pause import Pause, Pauses
from outlast.store.limits import LockHolder, StreamPlace
from outlast.store.rows import (
    AttemptRow,
    DependencyRow,
    Held,
    RefusalRow,
    StepRow,
    StoredJob,
    WorkerRow,
)
from outlast.store.statistics import Place


class JobDetails(msgspec.Struct, frozen=True, kw_only=True):
    """All facts about one job. ``attempts`` are its closed attempts by token; ``now`` is in seconds
    since 1970. ``held``: running jobs, as many as were read. ``stream``: its place in the stream
    where it waits for limits or its turn, if any. ``locked_by``: sessions that block its limits.
    ``is_sent``: whether the event that it waits for was sent; None: this role may not know.
    ``upstream``: the first jobs that it waits or waited for. ``steps``: its kept steps.
    ``may_tell_others``: whether an answer may count and name other jobs, which may belong to other
    tenants."""

    row: StoredJob
    attempts: Sequence[AttemptRow]
    workers: Sequence[WorkerRow]
    now: float
    refusals: Sequence[RefusalRow] = ()
    place: Place = Place()
    held: Sequence[Held] = ()
    pauses: Sequence[Pause] = ()
    stream: StreamPlace | None = None
    locked_by: Sequence[LockHolder] = ()
    is_sent: bool | None = False
    upstream: Sequence[DependencyRow] = ()
    steps: Sequence[StepRow] = ()
    may_tell_others: bool = True

    @property
    def progress(self) -> tuple[Progress | None, int | None]:
        """The last report, and, if an earlier attempt made it, the number of that attempt."""
        told = [one for one in self.attempts if one.progress is not None]
        if self.row.progress is not None or self.row.state is not State.RUNNING or not told:
            return self.row.progress, None
        return told[-1].progress, told[-1].number

    @property
    def phase(self) -> str:
        """The job's phase, in words for people."""
        strays = astray([self.row], self.workers) if self.workers else {}
        return phase_of(self.row, Served(self.workers), strays, Pauses(self.pauses))


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is where it is, and what comes next."""

    position: str
    sentences: list[str]
    moves: list[str]
