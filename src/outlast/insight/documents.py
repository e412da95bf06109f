"""Make what programs see of jobs and workers: phases, and the JSON documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from outlast.insight.availability import health, phase_of, proof_of_life
from outlast.insight.explanation import Explanation
from outlast.insight.resource import SCHEMA, Document, Resource, iso
from outlast.insight.row import moment
from outlast.model.crash import Charge
from outlast.model.job import State
from outlast.model.kinds import Time
from outlast.store.logs import LogRow
from outlast.store.rows import AttemptRow, EndedAttempt, RefusalRow, StoredJob, WorkerRow
from outlast.store.stacks import Stack

REFUSAL = Resource("RefusedWrite", RefusalRow, "token worker verb at late_by")
ATTEMPT = Resource(
    "Attempt",
    AttemptRow,
    "token number worker host pid outcome charged started_at ended_at message progress"
    " checkpoint_age crash malformed",
    charged=(str | None, lambda row: None if row.charge == Charge.NONE else row.charge),
    started_at=Time | None,
    ended_at=Time | None,
)
STACK = Resource("Stack", Stack, "token asked at line text", at=Time | None)
_LISTED = (
    "id task queue state phase priority attempt_count failures losses solo token worker key tenant"
    " run_at enqueued_at requeued_at expires_at started_at ended_at cancel_requested reason event"
    " progress checkpoint checkpoint_at keep meta labels args result malformed"
)
JOB = Resource("ListedJob", StoredJob, _LISTED, phase=(str, phase_of))
"""One job of a list. Its phase is by default what the row alone shows."""


def stack_document(row: StoredJob) -> Document | None:
    """Return the job's stack from the last answer of its worker. ``asked``: the number of the
    answered request; ``line``: the job's own innermost line, if known."""
    return None if row.stack is None else STACK.document(row.stack, at=iso(row.stack_at))


WHOLE_JOB = Resource(
    "Job",
    StoredJob,
    f"{_LISTED} stack error attempts attempts_dropped refusals",
    phase=(str, phase_of),
    stack=(STACK.kind | None, stack_document),
    error=str | None,
    attempts=[ATTEMPT],
    attempts_dropped=int,
    refusals=[REFUSAL],
)


def job_document(
    row: StoredJob,
    attempts: Iterable[AttemptRow],
    refusals: Iterable[RefusalRow] = (),
    **given: Any,
) -> Document:
    """Return everything about one job: its kept attempts in the order of their tokens
    (``attempts_dropped`` counts the others), and the refused writes of attempts that had lost it,
    newest first. ``given``: its phase, if more than the row tells it."""
    closed = list(attempts)
    shown = [ATTEMPT.document(one) for one in closed]
    if (last := find_open_attempt(row, closed)) is not None:
        times = {"started_at": iso(row.started_at), "ended_at": iso(row.ended_at)}
        shown.append(ATTEMPT.document(last, **times))
    told = WHOLE_JOB.document(
        row,
        **given,
        error=error_of(row, closed[-1] if closed else None),
        attempts=shown,
        attempts_dropped=closed[-1].dropped if closed else 0,
        refusals=[REFUSAL.document(one) for one in refusals],
    )
    return {"schema": SCHEMA, **told}


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


WHY = Resource(
    "Why",
    StoredJob,
    "id task queue state position sentences moves schedule tick",
    position=str,
    sentences=list[str],
    moves=list[str],
    schedule=(str | None, lambda row: row.policy.schedule),
    tick=(Time | None, lambda row: msgspec.to_builtins(moment(row.policy.tick))),
)


def why_document(row: StoredJob, answer: Explanation) -> Document:
    """Return why a job is where it is."""
    given = {"position": answer.position, "sentences": answer.sentences, "moves": answer.moves}
    return {"schema": SCHEMA, **WHY.document(row, **given)}


LOG = Resource(
    "Output",
    LogRow,
    "token number dropped lines",
    lines=(list[Any], lambda log: [{"at": line.at, "text": line.text} for line in log.lines]),
)


def logs_document(job_id: int, kept: Iterable[LogRow]) -> Document:
    """Return the kept lines of a job's attempts."""
    return {"schema": SCHEMA, "id": job_id, "attempts": [LOG.document(log) for log in kept]}


class FailingDuty(msgspec.Struct, frozen=True):
    """The duty at which a worker fails, with the error."""

    duty: str
    error: str
    since: str | None


def _failing(row: WorkerRow) -> Document | None:
    if row.failing is None:
        return None
    duty, _, error = row.failing.partition(": ")
    return msgspec.structs.asdict(FailingDuty(duty, error, iso(row.failing_since)))


WORKER = Resource(
    "Worker",
    WorkerRow,
    "id name host pid status drain_requested instance queues tags tasks lacks running heartbeat_at"
    " lease_expires_at started_at stopped_at cause presence presence_off wakeup failing release"
    " malformed health refusals",
    presence=(str | None, proof_of_life),
    failing=(FailingDuty | None, _failing),
    health=str,
    refusals=int,
)


def workers_document(
    rows: Iterable[WorkerRow], refused: Mapping[str, int] | None = None
) -> Document:
    """Return a list of workers. ``refused``: how many writes of each were refused, by its name."""
    counts = refused or {}
    shown = [
        WORKER.document(row, health=health(row), refusals=counts.get(row.name, 0)) for row in rows
    ]
    return {"schema": SCHEMA, "workers": shown}


LISTED_REFUSAL = Resource(
    "ListedRefusedWrite",
    RefusalRow,
    "id job token worker verb at late_by",
    job=(int, lambda row: row.job_id),
)


def refusals_document(rows: Iterable[RefusalRow]) -> Document:
    """Return refused writes, each with the job that it was for."""
    return {"schema": SCHEMA, "refusals": [LISTED_REFUSAL.document(row) for row in rows]}
