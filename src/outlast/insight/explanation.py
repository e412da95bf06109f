"""Hold the facts about one job, and the answer of ``outlast why``. Values only."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from outlast.model.pause import Pause
from outlast.store.limits import StreamPlace
from outlast.store.rows import AttemptRow, Held, StoredJob, WorkerRow
from outlast.store.statistics import Place


class WhyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one job. ``attempts`` are its closed attempts by token; ``now`` is in seconds
    since 1970. ``held``: running jobs, as many as were read. ``stream``: where it waits for limits
    or its turn, if it does. ``may_tell_others``: whether the answer may count and name other jobs;
    they may belong to other tenants."""

    row: StoredJob
    attempts: Sequence[AttemptRow]
    workers: Sequence[WorkerRow]
    place: Place
    now: float
    held: Sequence[Held] = ()
    pauses: Sequence[Pause] = ()
    stream: StreamPlace | None = None
    may_tell_others: bool = True


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is where it is, and what comes next. ``others``: how many jobs are in the same
    position (PLACE_MAX: that many or more)."""

    position: str
    sentences: list[str]
    moves: list[str]
    others: int = 0
