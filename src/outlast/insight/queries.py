"""Read a store and put together what one answer needs. Never writes.

The command line, a page and a test call the same functions, and each formats the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from math import inf
from typing import Any

import msgspec

from outlast.errors import LimitNotFound, NotPermitted, ScheduleNotFound
from outlast.insight.availability import Served, astray, phase_of, with_proof
from outlast.insight.explanation import JobDetails
from outlast.insight.filters import PHASES
from outlast.model.job import State
from outlast.model.pause import Pauses
from outlast.store.inspector import Inspector, ReadableStore
from outlast.store.limits import LimitRow, PermitRow
from outlast.store.listing import LOOK_ROWS, find
from outlast.store.rows import (
    LOOK_BYTES,
    UPSTREAM,
    AttemptRow,
    JobFilter,
    JobIds,
    Part,
    RefusalRow,
    Searched,
    StepRow,
    StoredJob,
    Texts,
    WorkerRow,
)
from outlast.store.schedules import ScheduleRow
from outlast.store.statistics import Place

DAY = 86_400.0  # seconds
PAGE = 500  # jobs read at once for their states and phases
PAGE_WHOLE = 20  # jobs read at once with all their arguments, results, checkpoints or crashes
SCHEDULES_PAGE = 1_000
REFUSALS_MAX = 500  # rows of one read: each has its worker looked up
SHOWN_MAX = 4_000  # characters of arguments that are shown in a line
WALKED_MAX = 300_000  # jobs that a command walks by id: a third of a second of the database
LOOKS_MAX = WALKED_MAX // LOOK_ROWS
JUDGED_MAX = 10_000  # jobs that are read in search of a phase
SEARCHED_MAX = 20_000  # jobs that are read in search of a text
SEARCHED_BYTES = 4 * LOOK_BYTES  # of their arguments
PARTS = {
    "scheduled": Part.TIMED,
    "waiting": Part.TIMED,
    "retrying": Part.TIMED,
    "suspect": Part.SUSPECTS,
    "limited": Part.STREAMS,
    "throttled": Part.STREAMS,
}
"""Phase -> the part of the queue in which its jobs wait."""


class JobList(msgspec.Struct, frozen=True):
    """Jobs of a list: long arguments are cut, results and checkpoints are left out. ``astray``:
    running jobs that no worker runs (see ``availability``). ``before``: jobs with smaller ids were
    not examined, since the limit was reached or the search took long; None: there are none.
    ``back_to``: when the last examined job was enqueued, if the search took long."""

    rows: list[StoredJob]
    served: Served
    astray: dict[int, str]
    pauses: Pauses
    before: int | None = None
    back_to: float | None = None

    def phase_of(self, row: StoredJob) -> str:
        """Return the phase of one of the jobs, as this row shows it."""
        return phase_of(row, self.served, self.astray, self.pauses)


class WorkerList(msgspec.Struct, frozen=True):
    """All workers, and the newest refused writes."""

    rows: list[WorkerRow]
    refusals: list[RefusalRow]

    def refused(self, now: float) -> Counter[str]:
        """Return how many writes of each worker were refused in the last day, by its name."""
        late = (one for one in self.refusals if one.at > now - DAY)
        return Counter(one.worker for one in late if one.worker is not None)


async def read_workers(store: ReadableStore) -> list[WorkerRow]:
    """Return all workers, with proofs of death from this machine's lock files."""
    return with_proof(await store.inspector.workers())


async def list_workers(store: ReadableStore) -> WorkerList:
    """Return all workers, and the newest refused writes."""
    return WorkerList(await read_workers(store), await store.inspector.refusals(limit=REFUSALS_MAX))


async def read_details(
    store: ReadableStore, job_id: int, now: float, text_max: int | None = None
) -> JobDetails | None:
    """Return all facts about a job; None: there is no such job. ``text_max``: characters at which
    arguments, checkpoint and result are cut."""
    inspector = store.inspector
    row = await inspector.job(job_id, text_max)
    if row is None:
        return None
    has_upstream = row.state is State.BLOCKED or row.reason == UPSTREAM
    refusals: list[RefusalRow] = []
    steps: list[StepRow] = []
    is_sent: bool | None = None
    with suppress(NotPermitted):  # a role that only enqueues may read all else
        is_sent = row.event is not None and await inspector.is_sent(job_id)
        refusals = await inspector.refusals(job_id)
        steps = await inspector.steps(job_id) if row.attempt_count else []
    stream = await inspector.stream_place(job_id) if row.state is State.QUEUED else None
    workers = await read_workers(store)
    held = row.state is State.QUEUED and any(one.running for one in workers)
    return JobDetails(
        row=row,
        attempts=await inspector.attempts(job_id) if row.attempt_count else [],
        refusals=refusals,
        workers=workers,
        place=await inspector.place(job_id) or Place(),
        held=await inspector.held() if held else [],
        steps=steps,
        upstream=await inspector.dependencies(job_id) if has_upstream else [],
        stream=stream,
        locked_by=[] if stream is None else await inspector.lock_holders(of_counters=False),
        is_sent=is_sent,
        pauses=await inspector.pauses(),
        now=now,
    )


async def read_phase(store: ReadableStore, row: StoredJob) -> str:
    """Return the phase of a job that was just read; of a running one, its state."""
    workers = await read_workers(store) if row.state is State.QUEUED else []
    return phase_of(row, Served(workers), pauses=Pauses(await store.inspector.pauses()))


class SearchBounds(msgspec.Struct, frozen=True):
    """How far a search for a list goes: ``looks`` reads of ``rows`` rows (None: LOOK_ROWS) each;
    for a phase, ``judged`` jobs; ``text_max``: characters of arguments that are read."""

    looks: int = LOOKS_MAX
    rows: int | None = None
    judged: int = JUDGED_MAX
    text_max: int = SHOWN_MAX


DEFAULT_BOUNDS = SearchBounds()


async def list_jobs(
    store: ReadableStore,
    which: JobFilter,
    phase: str | None,
    bounds: SearchBounds = DEFAULT_BOUNDS,
    texts: Texts | None = None,
) -> JobList:
    """Return the newest jobs of this filter, of this phase (one of ``PHASES``) if given, and with
    these texts. A search for texts is one read of at most SEARCHED_MAX rows and SEARCHED_BYTES."""
    workers = await read_workers(store)
    served = Served(workers)
    pauses = Pauses(await store.inspector.pauses())
    wanted = phase if phase in PHASES else None

    async def judge(most: int) -> tuple[JobIds, list[StoredJob], int | None]:
        """Return the candidates, the matching ones among them, and where the search stopped."""
        seen = await _find_candidates(store, which, wanted, bounds, texts, most)
        found: list[StoredJob] = []
        left, stopped = SEARCHED_BYTES, None
        for at in range(0, len(seen.ids), PAGE):
            holding = await look_through(store, seen.ids[at : at + PAGE], texts, left)
            left, stopped = left - holding.size, holding.before
            rows = await store.inspector.jobs_of(holding.ids, bounds.text_max)
            strays.update(astray(rows, workers))
            judged = ((row, phase_of(row, served, strays, pauses)) for row in rows)
            found += [row for row, its_phase in judged if wanted in {its_phase, None}]
            if len(found) >= which.limit or stopped is not None:
                break
        return seen, found, stopped

    strays: dict[int, str] = {}
    seen, found, stopped = await judge(which.limit)
    if wanted is not None and texts is None and len(found) < which.limit <= len(seen.ids):
        seen, found, stopped = await judge(bounds.judged)  # most of the first did not match
    shown = found[: which.limit]
    of_these = {row.id: strays[row.id] for row in shown if row.id in strays}
    is_full = len(shown) == which.limit
    before = shown[-1].id if is_full else seen.before if stopped is None else stopped
    back_to = None if is_full else await _time_of(store, before)
    return JobList(shown, served, of_these, pauses, before, back_to)


async def _find_candidates(
    store: ReadableStore,
    which: JobFilter,
    phase: str | None,
    bounds: SearchBounds,
    texts: Texts | None,
    most: int,
) -> JobIds:
    """Return the ids of the jobs that may match; with a phase, at most ``most``."""
    changes: dict[str, Any] = {"look_rows": bounds.rows}
    looks = bounds.looks
    if phase is not None:
        changes |= {"part": PARTS.get(phase), "limit": min(most, bounds.judged)}
    if texts is not None:
        looks, most = 1, min(bounds.rows or SEARCHED_MAX, SEARCHED_MAX)
        changes |= {"limit": most, "look_rows": most}
    return await find_jobs(store, msgspec.structs.replace(which, **changes), looks)


async def look_through(
    store: ReadableStore, ids: Sequence[int], texts: Texts | None, size_max: float = inf
) -> Searched:
    """Return the jobs (the newest first) that hold the texts, by as many reads as it takes, or
    until ``size_max`` bytes of arguments were searched."""
    if texts is None:
        return Searched(ids=list(ids))
    found, left = Searched(), list(ids)
    while left and found.size < size_max:
        asked, left = left[:PAGE], left[PAGE:]
        size_left = int(min(LOOK_BYTES, size_max - found.size))
        seen = await store.inspector.search(asked, texts, size_left)
        if seen.before is not None:
            left = [one for one in asked if one < seen.before] + left
        before = asked[-1] if seen.before is None else seen.before
        size = found.size + seen.size
        found = Searched(ids=found.ids + seen.ids, before=before if left else None, size=size)
    return found


async def _time_of(store: ReadableStore, job_id: int | None) -> float | None:
    """Return when a job was enqueued; None if it is gone."""
    rows = [] if job_id is None else await store.inspector.jobs_of([job_id], 0)
    return rows[0].enqueued_at if rows else None


async def find_jobs(store: ReadableStore, which: JobFilter, looks: int = LOOKS_MAX) -> JobIds:
    """Return the ids of the newest jobs of this filter, in at most ``looks`` reads."""
    return await find(store.inspector.job_ids, which, looks)


async def read_whole(store: ReadableStore, ids: Sequence[int]) -> AsyncIterator[StoredJob]:
    """Yield these jobs with all their data, a few at a time in memory."""
    for at in range(0, len(ids), PAGE_WHOLE):
        for row in await store.inspector.jobs_of(ids[at : at + PAGE_WHOLE]):
            yield row


async def read_states(store: ReadableStore, ids: Sequence[int]) -> dict[int, State]:
    """Return the states of these jobs; a job that does not exist is left out."""
    states: dict[int, State] = {}
    for at in range(0, len(ids), PAGE):
        rows = await store.inspector.jobs_of(ids[at : at + PAGE], 0)
        states |= {row.id: row.state for row in rows}
    return states


async def read_dead(
    store: ReadableStore, ids: Sequence[int], text_max: int | None = None
) -> AsyncIterator[tuple[StoredJob, AttemptRow | None]]:
    """Yield dead jobs, each with its last attempt, a few at a time in memory."""
    for at in range(0, len(ids), PAGE_WHOLE):
        for found in await store.inspector.last_attempts(ids[at : at + PAGE_WHOLE], text_max):
            yield found


async def read_schedule(store: ReadableStore, name: str) -> ScheduleRow:
    """Return one schedule; ScheduleNotFound if there is none of that name."""
    row = await store.inspector.schedule(name)
    if row is None:
        raise no_schedule(name)
    return row


async def walk_schedules(inspector: Inspector) -> AsyncIterator[ScheduleRow]:
    """Yield all schedules by name."""
    after: str | None = ""
    while after is not None:
        rows = await inspector.schedules(SCHEDULES_PAGE, after)
        for row in rows:
            yield row
        after = rows[-1].name if len(rows) == SCHEDULES_PAGE else None


async def read_schedules(store: ReadableStore) -> list[ScheduleRow]:
    """Return all schedules by name."""
    return [row async for row in walk_schedules(store.inspector)]


def no_schedule(name: str) -> ScheduleNotFound:
    """Return the error for a schedule that does not exist."""
    return ScheduleNotFound(f"there is no schedule {name!r}: `outlast schedules` lists them")


async def read_one_limit(store: ReadableStore, name: str) -> tuple[LimitRow, list[PermitRow]]:
    """Return a limit and its busiest permits; LimitNotFound if there is none of that name."""
    row = await store.inspector.limit(name)
    if row is None:
        raise no_limit(name)
    return row, await store.inspector.permits(name)


def no_limit(name: str) -> LimitNotFound:
    """Return the error for an unknown limit."""
    return LimitNotFound(f"there is no limit {name!r}: `outlast limits` lists them")


ID_MAX = 2**63 - 1


class LookupTarget(msgspec.Struct, frozen=True):
    """The result of a lookup: ``jobs`` or ``workers``, and the id."""

    kind: str
    id: int


async def look_up(
    store: ReadableStore, text: str, tenant: str | None = None
) -> LookupTarget | None:
    """Return the job with this id, else with this token or (while unfinished) this key, else the
    newest worker of this name. ``tenant``: only jobs of this tenant, and no workers."""
    number = (
        int(text) if text.isascii() and text.isdigit() and len(text) < len(str(ID_MAX)) else None
    )
    ids = [] if number is None else [number]
    for one in (*ids, *await store.inspector.named(number, text)):
        found = await store.inspector.jobs_of([one], 0)
        if found and tenant in {None, found[0].tenant}:
            return LookupTarget("jobs", one)
    if tenant is not None:
        return None
    workers = [one.id for one in await read_workers(store) if one.name == text]
    return LookupTarget("workers", max(workers)) if workers else None
