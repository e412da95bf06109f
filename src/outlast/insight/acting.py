"""Act on jobs, workers and schedules that a person names, for the page, the API and the commands.

Each act is recorded in the transaction in which it is done (``store.actions``). An act that cannot
be done raises an error that suggests what to do instead; then nothing was done or recorded.
``insight.bulk`` acts on all jobs that match a filter.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from outlast.base.text import count_of, shell_word
from outlast.errors import JobNotFound, OutlastError, UsageError
from outlast.events import emit
from outlast.insight.availability import ASLEEP, holds
from outlast.insight.queries import no_limit, no_schedule, read_schedule
from outlast.insight.sentences import list_some
from outlast.model.job import State
from outlast.store.actions import Note, Record, Tokens
from outlast.store.limits import Hold, SetLimit
from outlast.store.rows import StoredJob, WorkerRow, WorkerStatus
from outlast.store.schedules import Deleted
from outlast.store.values import Cancelled, Enqueued, NewEvent, Requeued

if TYPE_CHECKING:
    from outlast.store.protocol import Store

BATCH = 500  # jobs in one transaction
NAMED_MAX = 20  # jobs and workers that a record names individually
TOKEN_STEP = 1_000_000
LOOK_SECONDS = 0.5  # between two reads of the workers that leave


class Verb(StrEnum):
    """An act on jobs."""

    CANCEL = "cancel"
    REQUEUE = "requeue"
    DISCARD = "discard"


SKIP = "skip"
"""An act on one job of a flow, never on all that match."""


class ActOnJob(NamedTuple):
    """An act on one job; a ``Verb`` also acts on all jobs that match, in the first of its
    ``states`` unless another is asked for. ``question``, ``warning``: of the page that asks before
    it is done. ``effects``: each with the sentence about it."""

    summary: str
    right: str
    states: tuple[State, ...]
    question: str
    warning: str
    effects: Mapping[str, str]
    warning_running: str = ""


ACTS: Mapping[str, ActOnJob] = {
    Verb.CANCEL: ActOnJob(
        "Cancel a queued job at once, ask a running one to stop.",
        "cancel",
        (State.QUEUED, State.BLOCKED, State.RUNNING),
        "Cancel job {}",
        "It is cancelled at once, and does not run. It can be requeued later.",
        {"cancelled": "It is cancelled.", "requested": "It was asked to stop."},
        "It is asked to stop: it ends when it stops, or its runner is killed after a grace period."
        " It can be requeued later.",
    ),
    Verb.REQUEUE: ActOnJob(
        "Revive a dead or cancelled job, with fresh budgets.",
        "requeue",
        (State.DEAD, State.CANCELLED),
        "Requeue job {} from the start",
        "It runs again from the beginning. Its last checkpoint is deleted; that cannot be undone.",
        {"requeued": "It is queued again, with fresh budgets."},
    ),
    Verb.DISCARD: ActOnJob(
        "Delete a dead job, with its attempts.",
        "discard",
        (State.DEAD,),
        "Discard job {}",
        "The job is deleted, with its attempts, crash reports and payloads. That cannot be undone.",
        {"discarded": ""},
    ),
    SKIP: ActOnJob(
        "Complete a dead or blocked job without a result, so that its dependents continue.",
        "requeue",
        (State.DEAD, State.BLOCKED),
        "Skip job {}",
        "It counts as completed, without a result: the jobs that wait for it continue, with None in"
        " place of its result. That cannot be undone.",
        {"skipped": "It counts as completed, and the jobs that wait for it continue."},
    ),
}
TOLD = {"requested": "asked to stop"}
"""Effect -> its name for people, if it has another."""


class By(msgspec.Struct, frozen=True):
    """Who acts, and why."""

    actor: str
    reason: str | None = None


class Refused(OutlastError):
    """The job, worker or schedule exists, but its state does not allow the act."""


class NewerAttempt(Refused):
    """Another attempt of the job has begun since the caller read it."""


class DrainRequest(msgspec.Struct, frozen=True):
    """The chosen workers, and the ids of the workers that were asked; the others have left."""

    chosen: list[WorkerRow]
    asked: set[int]


def note_on(verb: str, by: By, ids: Sequence[int]) -> Note:
    """Return the record of an act on these jobs."""
    return Note(
        actor=by.actor,
        verb=verb,
        target=name_jobs(ids),
        job_id=ids[0] if len(ids) == 1 else None,
        reason=by.reason,
    )


def note_of(verb: str, by: By | None, target: str) -> Note | None:
    """Return the record of an act on anything but a job."""
    if by is None:
        return None
    return Note(actor=by.actor, verb=verb, target=target, reason=by.reason)


def name_jobs(ids: Sequence[int]) -> str:
    """Return ``job 17``, or ``jobs 17, 18``."""
    return f"job{'' if len(ids) == 1 else 's'} {list_some(list(map(str, ids)), NAMED_MAX)}"


def name_workers(rows: Sequence[WorkerRow]) -> str:
    """Return ``worker w1 (3)``, or several."""
    told = ", ".join(f"{row.name} ({row.id})" for row in rows[:NAMED_MAX])
    more = f" and {len(rows) - NAMED_MAX} more" if len(rows) > NAMED_MAX else ""
    return f"worker{'' if len(rows) == 1 else 's'} {told}{more}"


async def act_on_job(
    store: Store,
    verb: str,
    row: StoredJob,
    by: By,
    *,
    token: int | None = None,
    from_scratch: bool = False,
) -> str:
    """Act on this job, as the caller has read it, by a ``Verb`` or ``SKIP``; return the effect:
    ``cancelled``, ``requested`` (a running job was asked to stop), ``requeued``, ``discarded`` or
    ``skipped``.

    ``token``: the token of the attempt that the caller has seen; 0: the job had none. Raises
    NewerAttempt if another has begun since, Refused if the job's state does not allow the act,
    JobNotFound.
    """
    tokens = None if token is None else {row.id: token}
    record = note_on(verb, by, [row.id])
    done = await act_on(store, verb, [row.id], record, tokens, from_scratch=from_scratch)
    answer = done.get(row.id)
    if answer is not None and answer in ACTS[verb].effects:
        return answer
    raise await _why_not(store, verb, row.id, token, answer)


async def act_on(
    store: Store,
    verb: str,
    ids: Sequence[int],
    record: Record,
    tokens: Tokens | None = None,
    *,
    from_scratch: bool = False,
) -> Mapping[int, str]:
    """Act on jobs in one transaction; return the effects, or why the store has left a job as it
    was."""
    if verb == Verb.CANCEL:
        return await store.cancel(ids, tokens=tokens, record=record)
    if verb == Verb.REQUEUE:
        return await store.requeue(ids, from_scratch=from_scratch, tokens=tokens, record=record)
    if verb == SKIP:
        return dict.fromkeys(await store.skip(ids, tokens=tokens, record=record), "skipped")
    return dict.fromkeys(await store.discard(ids, tokens=tokens, record=record), "discarded")


async def _why_not(
    store: Store, verb: str, job_id: int, token: int | None, answer: str | None
) -> OutlastError:
    row = await store.inspector.job(job_id)
    if row is None:
        return JobNotFound(f"there is no job {job_id}: the id is wrong, or the job was deleted")
    if answer is None and token is not None and (row.token or 0) != token:
        return NewerAttempt(
            f"job {job_id}: a newer attempt (token {row.token}) has begun since token {token}:"
            " check it again before you act"
        )
    return Refused(f"job {job_id} {UNCHANGED.get(answer or '', _not_dead(verb, row))}")


UNCHANGED = {
    Cancelled.ENDED.value: "has already ended",
    Requeued.NOT_ENDED.value: "has not ended: cancel it first, or wait until it ends",
    Requeued.COMPLETED.value: "is completed: enqueue it again instead",
    Requeued.KEY_TAKEN.value: "cannot be requeued: an unfinished job has its key",
}
"""Answer of the store -> why it has left the job as it was."""


def _not_dead(verb: str, row: StoredJob) -> str:
    if verb == SKIP:
        return f"is {row.state}: only dead and blocked jobs can be skipped"
    other = f", not dead: only dead jobs can be {verb}ed"
    return f"is {row.state}{'' if row.state is State.DEAD else other}; check it again"


async def act_on_jobs(
    store: Store, verb: Verb, ids: Sequence[int], by: By, *, from_scratch: bool = False
) -> AsyncIterator[dict[int, str | None]]:
    """Act on jobs, batch by batch. Yield each batch once it is done: the effect on each job, as
    ``act_on`` does; None: there is no such job, or it is not dead and cannot be discarded."""
    for batch in _batches(ids):
        record = note_on(verb, by, batch)
        answers = await act_on(store, verb, batch, record, from_scratch=from_scratch)
        yield {one: answers.get(one) for one in batch}


def _batches(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[at : at + BATCH] for at in range(0, len(ids), BATCH))


async def ask_to_drain(
    store: Store, names: Iterable[str] | None, *, by: By | None = None
) -> DrainRequest:
    """Ask workers, by name or id, to take no more work and leave; None: all present workers.

    Raises Refused, and asks no worker, unless each name stands for one present worker.
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
        raise Refused(f"{len(here)} workers are called {name}: write one of the ids {ids} instead")
    if found and found[-1].cause == ASLEEP:
        raise Refused(
            f"worker {name} is asleep (--idle-after) or has ended: end its process to stop it for"
            " good"
        )
    if found:
        raise Refused(f"worker {name} has already ended: it is {found[-1].status.value}")
    raise Refused(f"there is no worker {name}: `outlast workers` lists them")


async def follow_drain(store: Store, worker_ids: Collection[int]) -> AsyncIterator[WorkerRow]:
    """Yield each worker when it is first read, and whenever its status or its number of jobs has
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


async def raise_tokens(store: Store, now: float) -> int:
    """Raise the tokens above any that was issued after the backup was made; return above which.

    A fixed step is too small for a busy store with a backup of yesterday. Microseconds since 1970
    are above all tokens that a store can have drawn since then, and above the last such raise. No
    row is consulted: a row with a token that was never issued must not raise the others to the
    maximum.
    """
    above = max(await store.inspector.last_token() + TOKEN_STEP, int(now * 1_000_000))
    await store.raise_tokens(above)
    return above


async def pause_schedule(store: Store, name: str, by: By, *, paused: bool) -> None:
    """Pause a schedule or resume it; ScheduleNotFound."""
    record = note_of(f"{'pause' if paused else 'resume'} schedule", by, f"schedule {name}")
    if not await store.pause_schedule(name, paused=paused, record=record):
        raise no_schedule(name)


async def trigger_schedule(store: Store, name: str, now: float, by: By) -> Enqueued:
    """Enqueue a schedule's call now, or name the unfinished job of an earlier tick.
    ScheduleNotFound."""
    from outlast.insight.schedules import job_now

    row = await read_schedule(store, name)
    record = note_of("trigger schedule", by, f"schedule {name}")
    return await store.trigger(job_now(row, now), record=record)


async def note_backfill(store: Store, name: str, jobs: int, by: By) -> None:
    """Record that this many jobs are enqueued for ticks of a schedule; they follow in batches."""
    target = f"schedule {name}: {count_of(jobs, 'job')}"
    note = Note(actor=by.actor, verb="backfill schedule", target=target, reason=by.reason)
    await store.note(note)


async def delete_schedule(store: Store, name: str, *, by: By | None = None) -> None:
    """Delete a schedule; ScheduleNotFound if there is none, UsageError if code declares it."""
    record = note_of("delete schedule", by, f"schedule {name}")
    check_deleted(name, await store.delete_schedule(name, record=record))


def check_deleted(name: str, answer: Deleted) -> None:
    """Raise ScheduleNotFound for an unknown schedule, UsageError for one that code declares."""
    if answer is Deleted.UNKNOWN:
        raise no_schedule(name)
    if answer is Deleted.DECLARED:
        raise declared_by_code(name, "delete")


def declared_by_code(name: str, what: str) -> UsageError:
    """Return the error for a schedule that can be changed and deleted only in code."""
    return UsageError(
        f"schedule {name!r} is declared by the code of an application: {what} it in that code"
        f" (`outlast schedules pause {shell_word(name)}` stops it until then)"
    )


async def set_limit(store: Store, new: SetLimit, by: By | None) -> None:
    """Set a limit or a key of it, or reset it, and emit an event; LimitNotFound."""
    target = new.name if new.key is None else f"{new.name} of {new.key}"
    record = note_of("reset limit" if new.reset else "set limit", by, target)
    if not await store.set_limit(new, record=record):
        raise no_limit(new.name)
    actor = None if by is None else by.actor
    if new.reset:
        emit("limit_reset", limit=new.name, key=new.key, by=actor)
        return
    emit(
        "limit_set",
        limit=new.name,
        key=new.key,
        running=new.running,
        spacing=new.spacing,
        burst=new.burst,
        by=actor,
    )


async def hold_limit(store: Store, hold: Hold, by: By | None) -> None:
    """Let nothing start under a limit for a while, or let it go; emit an event; LimitNotFound."""
    target = f"{hold.name} of {hold.key}" if hold.key else hold.name
    verb = f"hold limit for {hold.seconds:g} s" if hold.seconds else "let limit go"
    if not await store.hold_limit(hold, record=note_of(verb, by, target)):
        raise no_limit(hold.name)
    actor = None if by is None else by.actor
    emit("limit_held", limit=hold.name, key=hold.key or None, seconds=hold.seconds, by=actor)


async def send_event(store: Store, event: NewEvent, by: By | None) -> bool:
    """Send an event, and emit one of the log; False: one of that name was sent before."""
    record = note_of("send event", by, event.name)
    kept = await store.send_event(event, record=record)
    if kept:
        emit("event_sent", sent=event.name, by=None if by is None else by.actor)
    return kept
