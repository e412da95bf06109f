"""Make what people and programs see: phases, and the JSON documents of the command line.

The names in the documents are a contract: they may be added to, never renamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from outlast.insight.availability import health
from outlast.insight.row import moment, plain
from outlast.model.crash import Charge, Progress
from outlast.model.job import State
from outlast.model.pause import NO_PAUSES, Pauses
from outlast.store.logs import LogRow
from outlast.store.rows import AttemptRow, EndedAttempt, RefusalRow, Served, StoredJob, WorkerRow

SCHEMA = 1

Document = dict[str, Any]


def phase_of(
    row: StoredJob,
    served: Served | None = None,
    astray: Mapping[int, str] | None = None,
    pauses: Pauses = NO_PAUSES,
) -> str:
    """Return a job's phase, in words for people.

    It is the state itself, except for running jobs that ``astray`` names (``availability.astray``:
    ``orphaned``, ``silent``) and for queued jobs: ``retrying`` waits after a failure or loss,
    ``scheduled`` waits for its time, ``waiting`` for an event, ``unservable`` is due but no active
    worker knows its task, has the tags that it requires and serves its queue (only if ``served`` is
    given), ``suspect`` waits to be run alone, ``paused`` is due and under one of the ``pauses``,
    ``limited`` and ``throttled`` are due and wait for a limit: that something ends, or for its rate
    or a hold.
    """
    if row.state is not State.QUEUED:
        return (astray or {}).get(row.id, row.state.value)
    if not row.waiting and pauses.find(row.queue, row.task, row.tenant) is not None:
        return "paused"
    unserved = served is not None and not served.has(row.task, row.queue)
    if row.solo and (row.waiting or not unserved):
        return "suspect"
    if row.waiting:
        if row.event is not None:
            return "waiting"
        return "retrying" if row.failures or row.losses else "scheduled"
    if unserved:
        return "unservable"
    return row.held_back or row.state.value


def job_document(
    row: StoredJob,
    attempts: Iterable[AttemptRow],
    phase: str | None = None,
    refusals: Iterable[RefusalRow] = (),
) -> Document:
    """Return everything about one job: its kept attempts in the order of their tokens
    (``attempts_dropped`` counts the others), and the refused writes of attempts that had lost it,
    newest first."""
    closed = list(attempts)
    shown = [_attempt(one) for one in closed]
    if (last := find_open_attempt(row, closed)) is not None:
        shown.append({**_attempt(last), **_times(row, "started_at", "ended_at")})
    return {
        "schema": SCHEMA,
        **listed_document(row, phase),
        "stack": stack_document(row),
        "error": error_of(row, closed[-1] if closed else None),
        "attempts": shown,
        "attempts_dropped": closed[-1].dropped if closed else 0,
        "refusals": [_refusal(one) for one in refusals],
    }


def dead_document(row: StoredJob, last: AttemptRow | None) -> Document:
    """Return one dead job of a list, with only its last attempt, which ended it."""
    document = job_document(row, [] if last is None else [last])
    del document["attempts"], document["schema"]
    return document


def error_of(row: StoredJob, last: AttemptRow | EndedAttempt | None) -> str | None:
    """Return the last error, in one line, by the last closed attempt; None for a completed job, and
    if there was no error."""
    if row.state is State.COMPLETED or last is None:
        return None
    if isinstance(last, AttemptRow) and last.crash is None and last.charge == Charge.NONE:
        return last.message or None
    if last.message and last.outcome == row.state:  # the state is shown beside it
        return last.message
    return f"{last.outcome}: {last.message}" if last.message else last.outcome


def logs_document(job_id: int, kept: Iterable[LogRow]) -> Document:
    """Return the kept lines of a job's attempts."""
    attempts = [
        {
            "token": log.token,
            "number": log.number,
            "dropped": log.dropped,
            "lines": [{"at": line.at, "text": line.text} for line in log.lines],
        }
        for log in kept
    ]
    return {"schema": SCHEMA, "id": job_id, "attempts": attempts}


def stack_document(row: StoredJob) -> Document | None:
    """Return the job's stack from the last answer of its worker. ``asked``: the number of the
    answered request; ``line``: the job's own innermost line, if known."""
    stack = row.stack
    if stack is None:
        return None
    at = iso(row.stack_at)
    return {**_same(stack, "token", "asked"), "at": at, **_same(stack, "line", "text")}


def workers_document(
    rows: Iterable[WorkerRow], now: float, refused: Mapping[str, int] | None = None
) -> Document:
    """Return a list of workers. ``refused``: how many writes of each were refused, by its name."""
    counts = refused or {}
    shown = [
        _worker(row) | {"health": health(row, now), "refusals": counts.get(row.name, 0)}
        for row in rows
    ]
    return {"schema": SCHEMA, "workers": shown}


def refusals_document(rows: Iterable[RefusalRow]) -> Document:
    """Return refused writes, each with the job that it was for."""
    shown = [{"id": row.id, "job": row.job_id, **_refusal(row)} for row in rows]
    return {"schema": SCHEMA, "refusals": shown}


def iso(seconds: float | None) -> str | None:
    """Return seconds since 1970 as ISO 8601 in UTC, to the microsecond."""
    at = moment(seconds)
    return None if at is None else at.isoformat(timespec="microseconds")


def listed_document(row: StoredJob, phase: str | None = None) -> Document:
    """Return one job of a list, without its attempts. ``phase``: by default, what the row alone
    shows."""
    return {
        **_same(row, "id", "task", "queue"),
        "state": row.state.value,
        "phase": phase or phase_of(row),
        **_same(row, "priority", "attempt_count", "failures", "losses", "solo", "token", "worker"),
        **_same(row, "key", "tenant"),
        **_times(row, "run_at", "enqueued_at", "requeued_at", "expires_at"),
        **_times(row, "started_at", "ended_at"),
        **_same(row, "cancel_requested", "reason", "event"),
        "progress": _progress(row.progress),
        "checkpoint": plain(row.checkpoint),
        **_times(row, "checkpoint_at"),
        "keep": row.policy.keep,
        "meta": plain(row.policy.meta),
        "labels": list(row.policy.labels),
        "args": plain(row.args),
        "result": plain(row.result),
        "malformed": row.malformed,
    }


def _same(row: msgspec.Struct, *names: str) -> Document:
    """Return fields of a row as they are."""
    return {name: getattr(row, name) for name in names}


def _times(row: msgspec.Struct, *names: str) -> Document:
    """Return times of a row as texts."""
    return {name: iso(getattr(row, name)) for name in names}


def _attempt(row: AttemptRow) -> Document:
    return {
        **_same(row, "token", "number", "worker", "host", "pid", "outcome"),
        "charged": None if row.charge == Charge.NONE else row.charge,
        **_times(row, "started_at", "ended_at"),
        "message": row.message,
        "progress": _progress(row.progress),
        "checkpoint_age": row.checkpoint_age,
        "crash": msgspec.to_builtins(row.crash),
        "malformed": row.malformed,
    }


def _refusal(row: RefusalRow) -> Document:
    names = ("token", "worker", "verb")
    return {**_same(row, *names), **_times(row, "at"), "late_by": row.late_by}


def find_open_attempt(
    row: StoredJob, closed: Sequence[AttemptRow], now: float = 0.0
) -> AttemptRow | None:
    """Return the attempt that runs or completed the job, if it is not among the ``closed`` ones.
    Its facts are on the job's own row; times that it does not have are ``now``."""
    is_open = row.state in {State.RUNNING, State.COMPLETED}
    if not is_open or row.token is None or any(one.token == row.token for one in closed):
        return None
    return AttemptRow(
        job_id=row.id,
        token=row.token,
        number=row.attempt_count,
        outcome=row.state.value,
        charge=Charge.NONE,
        started_at=now if row.started_at is None else row.started_at,
        ended_at=now if row.ended_at is None else row.ended_at,
        worker=row.worker,
        host=row.host,
        progress=row.progress,
    )


def _worker(row: WorkerRow) -> Document:
    return {
        **_same(row, "id", "name", "host", "pid"),
        "status": row.status.value,
        **_same(row, "drain_requested", "instance", "queues", "tags", "tasks", "lacks", "running"),
        **_times(row, "heartbeat_at", "lease_expires_at", "started_at", "stopped_at"),
        "cause": row.cause,
        "presence": proof_of_life(row),
        **_same(row, "presence_off", "wakeup"),
        "failing": _failing(row),
        **_same(row, "release", "malformed"),
    }


def _failing(row: WorkerRow) -> Document | None:
    if row.failing is None:
        return None
    duty, _, error = row.failing.partition(": ")
    return {"duty": duty, "error": error, "since": iso(row.failing_since)}


def proof_of_life(row: WorkerRow) -> str | None:
    """Return what would prove this worker's death before its lease ends, if anything."""
    if row.presence is not None:
        return "advisory_lock"
    return "lock_file" if row.lock_path else None


def _progress(progress: Progress | None) -> Document | None:
    return None if progress is None else msgspec.structs.asdict(progress)
