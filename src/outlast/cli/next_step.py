"""What will happen to a job next, as ``outlast job`` says it in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outlast.base.text import line, span
from outlast.insight.availability import list_alive
from outlast.insight.pauses import name_of, pause_of
from outlast.model.job import ALONE_IN_RUNNER, ALONE_IN_WORKER, State
from outlast.store.rows import StoredJob

if TYPE_CHECKING:
    from outlast.insight.queries import Dossier


def what_next(dossier: Dossier) -> str:
    """Return what will happen to the job, and what a person can do about it."""
    row, now = dossier.row, dossier.now
    if row.state is State.RUNNING:
        return _while_astray(dossier) if dossier.astray else _while_running(row, now)
    if row.state is State.QUEUED:
        return _while_queued(dossier)
    if row.state is State.DEAD:
        return f"nothing; `outlast requeue {row.id}` runs it again with fresh budgets"
    if row.state is State.CANCELLED:
        return f"nothing; `outlast requeue {row.id}` revives it"
    return "nothing: it is done"


def _while_astray(dossier: Dossier) -> str:
    gone = "is gone" if dossier.phase == "orphaned" else "has been silent for its whole lease"
    others = list_alive(dossier.workers, dossier.now)
    then = "another worker gives the job back to the queue"
    left = then if others else "no worker is alive to give the job back to the queue: start one"
    return f"its worker {gone}; {left}"


def _while_running(row: StoredJob, now: float) -> str:
    if row.cancel_requested:
        return "it was asked to stop, and is cancelled once it does"
    if row.hard_deadline is None:
        return "it runs to its end; no timeout is set"
    left = row.hard_deadline - now
    return f"it is ended in {span(left)} at the latest" if left > 0 else "it is past its limit"


def _while_queued(dossier: Dossier) -> str:
    row, now = dossier.row, dossier.now
    if row.waiting:
        again = f"attempt {row.attempt_count + 1} " if row.attempt_count else ""
        return f"{again}due in {span(row.run_at - now)}{_alone(row, ', then runs ')}"
    pause = pause_of(row, dossier.pauses)
    if pause is not None:
        return f"it waits: {name_of(pause.kind, pause.name)} is paused; `outlast why {row.id}`"
    if dossier.phase == "unservable":
        return f"it waits: no active worker knows the task {line(row.task, 50)!r} in its queue"
    return f"it runs as soon as a worker has a free slot{_alone(row, ', ')}"


def _alone(row: StoredJob, lead: str) -> str:
    if row.solo == ALONE_IN_WORKER:
        return f"{lead}alone in its worker: two that ran it were lost"
    if row.solo == ALONE_IN_RUNNER:
        return f"{lead}alone or with fewer others: the runner that it shared has died"
    return ""
