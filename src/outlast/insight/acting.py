"""What a person does to one job, worker or schedule, and who that is: for page, API, command line.

Each act is recorded in the transaction in which it is done (``store.actions``). An act that cannot
be done raises, and says what to do instead; then nothing was done or recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from outlast.errors import JobNotFound, OutlastError
from outlast.insight.queries import no_schedule, read_schedule
from outlast.insight.schedules import job_now
from outlast.model.job import State
from outlast.store.actions import Note
from outlast.store.protocol import Store
from outlast.store.rows import StoredJob, WorkerRow
from outlast.store.values import Cancelled, Enqueued, Requeued
from outlast.text import count_of

NAMED_MAX = 20  # jobs and workers that a record names one by one


class Verb(StrEnum):
    """What is done to jobs."""

    CANCEL = "cancel"
    REQUEUE = "requeue"
    DISCARD = "discard"


class By(msgspec.Struct, frozen=True):
    """Who acts, and why."""

    actor: str
    reason: str | None = None


class Refused(OutlastError):
    """The job, worker or schedule is there, and does not allow it in the state that it is in."""


class NewerAttempt(Refused):
    """Another attempt of the job has begun since the caller has looked."""


def note_on(verb: str, by: By | None, ids: Sequence[int], filter: str | None = None) -> Note | None:  # noqa: A002
    """Return the record of an act on these jobs; None: it is a program's own, not recorded."""
    if by is None:
        return None
    return Note(
        actor=by.actor,
        verb=verb,
        target=name_jobs(ids),
        job_id=ids[0] if len(ids) == 1 else None,
        filter=filter,
        reason=by.reason,
    )


def note_of(verb: str, by: By | None, target: str) -> Note | None:
    """Return the record of an act on something that is no job."""
    if by is None:
        return None
    return Note(actor=by.actor, verb=verb, target=target, reason=by.reason)


def name_jobs(ids: Sequence[int]) -> str:
    """Return ``job 17``, or ``jobs 17, 18``."""
    if len(ids) == 1:
        return f"job {ids[0]}"
    more = f" and {len(ids) - NAMED_MAX} more" if len(ids) > NAMED_MAX else ""
    return f"jobs {', '.join(map(str, ids[:NAMED_MAX]))}{more}"


def name_workers(rows: Sequence[WorkerRow]) -> str:
    """Return ``worker w1 (3)``, or several."""
    told = ", ".join(f"{row.name} ({row.id})" for row in rows[:NAMED_MAX])
    more = f" and {len(rows) - NAMED_MAX} more" if len(rows) > NAMED_MAX else ""
    return f"{'worker' if len(rows) == 1 else 'workers'} {told}{more}"


async def act_on_job(
    store: Store,
    verb: Verb,
    row: StoredJob,
    by: By,
    *,
    token: int | None = None,
    from_scratch: bool = False,
) -> str:
    """Do it to this job, as the caller has read it; return what became of it: ``cancelled``,
    ``requested`` (a running one was asked to stop), ``requeued`` or ``discarded``.

    ``token``: of the attempt that the caller has seen; 0: the job had none. Raises NewerAttempt
    where another has begun since, Refused where the job's state does not allow it, JobNotFound.
    """
    tokens = None if token is None else {row.id: token}
    record = note_on(verb, by, [row.id])
    if verb is Verb.DISCARD:
        done = await store.discard([row.id], tokens=tokens, record=record)
        answer = "discarded" if done else None
    elif verb is Verb.REQUEUE:
        ids = [row.id]
        revived = await store.requeue(ids, from_scratch=from_scratch, tokens=tokens, record=record)
        answer = _word(revived.get(row.id))
    else:
        asked = await store.cancel([row.id], tokens=tokens, record=record)
        answer = _word(asked.get(row.id))
    if answer in _DONE:
        return answer
    raise await _why_not(store, verb, row.id, token, answer)


_DONE = {"cancelled", "requested", "requeued", "discarded"}


def _word(answer: Cancelled | Requeued | None) -> str | None:
    return None if answer is None else answer.value


async def _why_not(
    store: Store, verb: Verb, job_id: int, token: int | None, answer: str | None
) -> OutlastError:
    row = await store.inspector.job(job_id)
    if row is None:
        return JobNotFound(f"there is no job {job_id}, or no longer")
    if answer is None and token is not None and (row.token or 0) != token:
        return NewerAttempt(
            f"job {job_id}: a newer attempt (token {row.token}) has begun since token {token}:"
            " look at it again before you act"
        )
    return Refused(f"job {job_id} {_REFUSED.get(answer or '', _not_dead(verb, row))}")


_REFUSED = {
    Cancelled.ENDED.value: "has ended already",
    Requeued.NOT_ENDED.value: "has not ended: cancel it first, or let it end",
    Requeued.COMPLETED.value: "is completed: enqueue it again instead",
    Requeued.KEY_TAKEN.value: "cannot come back: an unfinished job has its key",
}


def _not_dead(verb: Verb, row: StoredJob) -> str:
    other = f", not dead: only dead jobs can be {verb}ed"
    return f"is {row.state}{'' if row.state is State.DEAD else other}; look at it again"


async def pause_schedule(store: Store, name: str, by: By, *, paused: bool) -> None:
    """Pause a schedule or resume it; ScheduleNotFound."""
    record = note_of(f"{'pause' if paused else 'resume'} schedule", by, f"schedule {name}")
    if not await store.pause_schedule(name, paused=paused, record=record):
        raise no_schedule(name)


async def trigger_schedule(store: Store, name: str, now: float, by: By) -> Enqueued:
    """Enqueue a schedule's call now, or name the unfinished job of an earlier tick.
    ScheduleNotFound."""
    row = await read_schedule(store, name)
    record = note_of("trigger schedule", by, f"schedule {name}")
    return await store.trigger(job_now(row, now), record=record)


async def note_backfill(store: Store, name: str, jobs: int, by: By) -> None:
    """Record that this many jobs are enqueued for ticks of a schedule; they follow in batches."""
    target = f"schedule {name}: {count_of(jobs, 'job')}"
    note = Note(actor=by.actor, verb="backfill schedule", target=target, reason=by.reason)
    await store.note(note)
