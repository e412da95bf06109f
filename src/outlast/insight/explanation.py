"""What is known of one job, and the answer of ``outlast why``. Values alone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from outlast.model.pause import Pause
from outlast.store.rows import AttemptRow, Held, StoredJob, WorkerRow
from outlast.store.statistics import Place


class WhyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known. ``attempts`` are closed ones by token; ``now`` is seconds since 1970.
    ``held``: jobs that run, as many as were looked at. ``may_tell_others``: whether the answer may
    count other jobs, and name those that it is not about; they may be of other tenants."""

    row: StoredJob
    attempts: Sequence[AttemptRow]
    workers: Sequence[WorkerRow]
    place: Place
    now: float
    held: Sequence[Held] = ()
    pauses: Sequence[Pause] = ()
    may_tell_others: bool = True


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why, and what next. ``others`` are in the same position (PLACE_MAX: that many or more)."""

    position: str
    sentences: list[str]
    moves: list[str]
    others: int = 0
