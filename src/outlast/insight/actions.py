"""What people do to many jobs or workers at once: in bounded batches, with the result of each.

The command line, a page and a test call the same functions. Each of them reports as it goes, so
that what was done is known where a later batch breaks off.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence

import msgspec

from outlast.errors import OutlastError, UsageError
from outlast.insight.acting import By, name_workers, note_of, note_on
from outlast.insight.availability import holds
from outlast.insight.queries import find_jobs, no_schedule
from outlast.model.job import State
from outlast.store.protocol import Store
from outlast.store.rows import AttemptRow, JobFilter, JobIds, StoredJob, WorkerRow, WorkerStatus
from outlast.store.schedules import Deleted
from outlast.store.values import Cancelled, Requeued

BATCH = 500  # jobs in one transaction
PAGE_DEAD = 20  # jobs read at once with their crash reports
TOKEN_STEP = 1_000_000
LOOK_SECONDS = 0.5  # between two looks at workers that leave


class DeadJobs(msgspec.Struct, frozen=True):
    """Which dead jobs are meant: those with these ids or, if ``ids`` is None, all that pass the
    filters. ``group``: those of a group (``deaths.read_dead_groups``)."""

    ids: list[int] | None = None
    task: str | None = None
    queue: str | None = None
    tenant: str | None = None
    group: str | None = None

    def filter(self, limit: int, before_id: int | None = None) -> JobFilter:
        """Return the filter for one page of them."""
        return JobFilter(
            state=State.DEAD,
            queue=self.queue,
            task=self.task,
            tenant=self.tenant,
            fingerprint=self.group,
            limit=limit,
            before_id=before_id,
        )


class Batch(msgspec.Struct, frozen=True):
    """Chosen jobs. ``others``, where dead ones are meant: those that are not: id -> state, or None:
    no such job."""

    ids: list[int]
    others: dict[int, State | None] = {}


class CancelledBatch(msgspec.Struct, frozen=True):
    """What came of a batch. A job that is not in ``answers`` does not exist."""

    batch: Batch
    answers: dict[int, Cancelled]


class RequeuedBatch(msgspec.Struct, frozen=True):
    """What came of a batch. A job that is not in ``answers`` does not exist, or no longer."""

    batch: Batch
    answers: dict[int, Requeued]


class DiscardedBatch(msgspec.Struct, frozen=True):
    """What came of a batch: how many jobs were deleted."""

    batch: Batch
    count: int


class DrainRequest(msgspec.Struct, frozen=True):
    """The workers that were chosen, and the ids of those that are asked; the others have left."""

    chosen: list[WorkerRow]
    asked: set[int]


class CannotDrain(OutlastError):
    """A name stands for no worker that is there, or for several; nothing was asked."""


class RaisedTokens(msgspec.Struct, frozen=True):
    """Later tokens are larger than ``above``; ``issued`` is the last one before."""

    above: int
    issued: int


async def find_dead(store: Store, which: DeadJobs, limit: int, before: int | None = None) -> JobIds:
    """Return the ids of the newest dead jobs that pass the filters, as ``find_jobs`` finds them."""
    return await find_jobs(store, which.filter(limit, before))


async def read_dead(
    store: Store, ids: Sequence[int], text_max: int | None = None
) -> AsyncIterator[tuple[StoredJob, AttemptRow | None]]:
    """Yield dead jobs, each with its last attempt, of which a few at a time are in memory."""
    for at in range(0, len(ids), PAGE_DEAD):
        for found in await store.inspector.last_attempts(ids[at : at + PAGE_DEAD], text_max):
            yield found


async def cancel_jobs(
    store: Store, ids: Sequence[int], *, by: By | None = None
) -> AsyncIterator[CancelledBatch]:
    """Cancel queued jobs at once, ask running ones to stop. ``by``, here and below: who does it,
    which is recorded; None: a program for itself."""
    for batch in _cut(ids):
        record = note_on("cancel", by, batch.ids)
        yield CancelledBatch(batch, await store.cancel(batch.ids, record=record))


async def requeue_jobs(
    store: Store, ids: Sequence[int], *, from_scratch: bool = False, by: By | None = None
) -> AsyncIterator[RequeuedBatch]:
    """Revive dead or cancelled jobs; ``from_scratch`` as of ``requeue_dead``."""
    for batch in _cut(ids):
        record = note_on("requeue", by, batch.ids)
        answers = await store.requeue(batch.ids, from_scratch=from_scratch, record=record)
        yield RequeuedBatch(batch, answers)


def _cut(ids: Sequence[int]) -> Iterator[Batch]:
    return (Batch(list(ids[at : at + BATCH])) for at in range(0, len(ids), BATCH))


async def requeue_dead(
    store: Store, which: DeadJobs, *, from_scratch: bool = False, by: By | None = None
) -> AsyncIterator[RequeuedBatch]:
    """Revive dead jobs, with fresh budgets; ``from_scratch``: without their checkpoints."""
    async for batch in _batches(store, which):
        record = note_on("requeue", by, batch.ids, _text_of(which))
        answers = await store.requeue(batch.ids, from_scratch=from_scratch, record=record)
        yield RequeuedBatch(batch, answers)


async def discard_dead(
    store: Store, which: DeadJobs, *, by: By | None = None
) -> AsyncIterator[DiscardedBatch]:
    """Delete dead jobs for good, with their attempts and crash reports."""
    async for batch in _batches(store, which):
        record = note_on("discard", by, batch.ids, _text_of(which))
        yield DiscardedBatch(batch, await store.discard(batch.ids, record=record))


def _text_of(which: DeadJobs) -> str | None:
    """Return the filter as it is recorded; None where jobs were named one by one."""
    if which.ids is not None:
        return None
    told = {name: one for name, one in msgspec.structs.asdict(which).items() if one is not None}
    return msgspec.json.encode(told).decode()


async def _batches(store: Store, which: DeadJobs) -> AsyncIterator[Batch]:
    if which.ids is not None:
        for batch in _cut(which.ids):
            yield await _batch_of(store, batch.ids)
        return
    before: int | None = None
    while True:
        seen = await store.inspector.job_ids(which.filter(BATCH, before))
        if seen.ids:
            yield Batch(seen.ids)
        if seen.before is None:
            return
        before = seen.before


async def _batch_of(store: Store, ids: Sequence[int]) -> Batch:
    rows = {one: await store.inspector.job(one) for one in ids}
    states = {one: None if row is None else row.state for one, row in rows.items()}
    dead = [one for one in ids if states[one] is State.DEAD]
    return Batch(dead, {one: state for one, state in states.items() if state is not State.DEAD})


async def ask_to_drain(
    store: Store, names: Iterable[str] | None, *, by: By | None = None
) -> DrainRequest:
    """Ask workers, by name or id, to take no more work and leave; None: all that are there.

    Raises CannotDrain, and asks none of them, where a name does not stand for one that is there.
    """
    rows = await store.inspector.workers()
    here = [row for row in rows if holds(row)]
    chosen = here if names is None else [_find_by_name(name, rows) for name in dict.fromkeys(names)]
    record = note_of("drain", by, name_workers(chosen))
    return DrainRequest(
        chosen, await store.request_drain([row.id for row in chosen], record=record)
    )


def _find_by_name(name: str, rows: Sequence[WorkerRow]) -> WorkerRow:
    """Return the live worker of that name or, if none has it, of that id."""
    found = [row for row in rows if row.name == name] or [r for r in rows if str(r.id) == name]
    here = [row for row in found if holds(row)]
    if len(here) == 1:
        return here[0]
    if here:
        ids = ", ".join(f"{row.id} (host {row.host}, pid {row.pid})" for row in here)
        raise CannotDrain(f"{len(here)} workers are called {name}: give one of the ids {ids}")
    if found:
        raise CannotDrain(f"worker {name} is gone already: it is {found[-1].status.value}")
    raise CannotDrain(f"there is no worker {name}: see `outlast workers`")


async def follow_drain(store: Store, worker_ids: Collection[int]) -> AsyncIterator[WorkerRow]:
    """Yield each worker when it is first seen, and when its status or its number of jobs has
    changed, until all have left or were lost."""
    told: dict[int, tuple[WorkerStatus, int]] = {}
    left = set(worker_ids)
    while left:
        rows = [row for row in await store.inspector.workers() if row.id in left]
        for row in rows:
            if told.get(row.id) != (standing := (row.status, row.running)):
                told[row.id] = standing
                yield row
        left = {row.id for row in rows if holds(row)}
        await asyncio.sleep(LOOK_SECONDS if left else 0)


async def raise_tokens(store: Store, now: float) -> RaisedTokens:
    """Lift the tokens above any that was issued after the backup was made.

    A fixed step is too small for a busy store with a backup of yesterday. Microseconds since
    1970 are above all that a store can have drawn since then, and above the last such lift. No row
    is asked: one with a token that was never issued must not lift the others to the end.
    """
    issued = await store.inspector.last_token()
    above = max(issued + TOKEN_STEP, int(now * 1_000_000))
    await store.raise_tokens(above)
    return RaisedTokens(above, issued)


async def delete_schedule(store: Store, name: str, *, by: By | None = None) -> None:
    """Delete a schedule; ScheduleNotFound if there is none, UsageError if code declares it."""
    answer = await store.delete_schedule(name)
    if answer is Deleted.UNKNOWN:
        raise no_schedule(name)
    if answer is Deleted.DECLARED:
        raise declared_by_code(name, "delete")
    if (record := note_of("delete schedule", by, f"schedule {name}")) is not None:
        await store.note(record)


def declared_by_code(name: str, what: str) -> UsageError:
    """Return the error for a schedule that can be changed and deleted only in code."""
    return UsageError(
        f"schedule {name!r} is declared by the code of an application: {what} it there"
        f" (`outlast schedules pause {name}` stops it meanwhile)"
    )
