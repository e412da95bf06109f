"""Which jobs ``outlast jobs`` lists: by state, as the store has it, or by phase, judged here."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from outlast.cli.connect import workers_of
from outlast.errors import UsageError
from outlast.insight.availability import astray
from outlast.insight.documents import phase_of
from outlast.model.job import State
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter, StoredJob

PAGE = 1_000
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


class Listed(NamedTuple):
    """What is listed. ``astray``: running jobs that nothing runs (``availability.astray``).
    ``complete``: whether all jobs were looked at, as far as the limit asks for them."""

    rows: list[StoredJob]
    known: set[str]
    astray: dict[int, str]
    complete: bool = True


def state_of(word: str | None) -> State | None:
    """Return the state that jobs of this state or phase have; UsageError for any other word."""
    if word is None or word in PHASES:
        return None if word is None else PHASES[word]
    if word in set(State):
        return State(word)
    raise UsageError(f"--state: {word!r} is none of {', '.join((*State, *PHASES))}")


async def listed(store: Store, which: JobFilter, phase: str | None, now: float) -> Listed:
    """Return the newest jobs of this filter and, if one is given, of this phase."""
    workers, known = await workers_of(store), await store.inspector.known_tasks()
    if phase not in PHASES:
        rows = await store.inspector.jobs(which)
        return Listed(rows, known, astray(rows, workers, now))
    found: list[StoredJob] = []
    strays: dict[int, str] = {}
    before = which.before_id
    for _ in range(LOOKED_AT_MAX // PAGE):
        page = msgspec.structs.replace(which, limit=PAGE, before_id=before)
        rows = await store.inspector.jobs(page)
        strays |= astray(rows, workers, now)
        found += [row for row in rows if phase_of(row, known, strays) == phase]
        if len(rows) < PAGE or len(found) >= which.limit:
            return Listed(found[: which.limit], known, _of(found[: which.limit], strays))
        before = rows[-1].id
    return Listed(found, known, _of(found, strays), complete=False)


def _of(rows: list[StoredJob], strays: dict[int, str]) -> dict[int, str]:
    return {row.id: strays[row.id] for row in rows if row.id in strays}
