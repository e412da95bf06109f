"""Make parts of the sentences of ``outlast why``: workers, ends, times and names. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.base.text import ago, count_of, line, since, span, stamp
from outlast.insight.availability import dead, drains, takes_nothing
from outlast.model.crash import Charge, find_line_of_death
from outlast.model.job import State
from outlast.store.rows import AttemptRow, Held, StoredJob, WorkerRow
from outlast.store.statistics import PLACE_MAX

NAMES_SHOWN = 5
NAME_MAX = 60
SAID_MAX = 200


def list_some(names: Sequence[str], most: int = NAMES_SHOWN) -> str:
    """Return the first of these foreign names, and how many more there are."""
    shown = ", ".join(line(name, NAME_MAX) for name in names[:most])
    return f"{shown} and {len(names) - most} more" if names[most:] else shown


def join_names(workers: Sequence[WorkerRow]) -> str:
    """Return the names of some workers, bounded."""
    names = list_some([one.name for one in workers])
    return f"worker{'' if len(workers) == 1 else 's'} {names}"


def quote(text: str) -> str:
    """Return a foreign name in quotes, as one safe line."""
    return f"'{line(text, NAME_MAX)}'"


def timeout(row: StoredJob) -> str:
    """Return a job's timeout."""
    return "the job" if row.policy.timeout is None else span(row.policy.timeout)


def tries(row: StoredJob) -> str:
    """Return after how many attempts something happened."""
    return (
        f"after {count_of(row.attempt_count, 'attempt')}"
        if row.attempt_count
        else "without an attempt"
    )


def by_worker(worker: str | None, host: str | None) -> str:
    """Return on which worker and host something happened, as the end of a clause."""
    if not worker:
        return ""
    return f" on worker {line(worker, NAME_MAX)}" + (f" ({line(host, NAME_MAX)})" if host else "")


def took(row: StoredJob) -> str:
    """Return how long the attempt of a completed job took: from its claim, so including the wait
    for a process."""
    if row.started_at is None or row.ended_at is None:
        return ""
    return f", {span(row.ended_at - row.started_at)} after its claim, attempt {row.attempt_count}"


def at_time(at: float | None, now: float) -> str:
    """Return a time both as a date and as how long ago it was."""
    return "at an unknown time" if at is None else f"{ago_of(at, now)} ({stamp(at)})"


def ago_of(at: float, now: float) -> str:
    """Return how long ago something happened."""
    return ago(at, now).replace("now", "just now")


def capitalize(text: str) -> str:
    """Begin a sentence, without touching the names in it."""
    return text[:1].upper() + text[1:]


def beats(mine: WorkerRow, now: float) -> str:
    """Return when a worker last sent a beat, and how long its lease lasts."""
    left = mine.lease - mine.unheard
    lasts = f"its lease lasts {span(left)} more" if left > 0 else "its lease is due for renewal"
    status = "is draining, and " if drains(mine) else ""
    heard = ago_of(now - mine.unheard, now)
    return f"Its worker {status}sent its last heartbeat {heard}; {lasts}."


def describe_gone(mine: WorkerRow | None, now: float) -> str:
    """Return how a worker that is gone ended; ``mine`` is None if its row is gone, too."""
    if mine is None:
        return "its worker is no longer known to the store"
    if dead(mine):
        return "that worker is dead (its lock file on this machine is free)"
    cause = f" ({line(mine.cause, SAID_MAX)})" if mine.cause else ""
    ended = "" if mine.stopped_at is None else f" {ago_of(mine.stopped_at, now)}"
    return f"that worker is {mine.status.value}{ended and f', as of{ended}'}{cause}"


def fails(one: WorkerRow, now: float) -> str:
    """Return the duty at which a live worker fails, since when and why."""
    error = (one.failing or "").partition(": ")[2].rstrip(".")
    what = "neither report ends nor claim jobs" if takes_nothing(one) else "not do all its duties"
    name = line(one.name, NAME_MAX)
    return f"Worker {name} could {what} {since(one.failing_since, now)}: {line(error, SAID_MAX)}."


HOLD_NO_SLOTS = (
    "Change the task so that it waits without a slot: `attempt.spawn` and `attempt.wait_for`, or"
    " enqueue the next step and return. Until then, start more workers, or workers for these jobs"
    " alone (a queue of their own, `outlast worker --queues`); that does not help jobs that wait"
    " for a full limit."
)


def describe_waits(held: Sequence[Held]) -> str:
    """Return which jobs wait for which."""
    return list_some([f"job {one.job_id} for job {one.waits_for}" for one in held])


def count_text(number: int, noun: str) -> str:
    """Return a bounded number in words: ``3 jobs``, ``800 or more jobs``."""
    return f"{number} or more {noun}s" if number >= PLACE_MAX else count_of(number, noun)


def describe_last_end(attempts: Sequence[AttemptRow]) -> list[str]:
    """Say how the last charged attempt ended, or the last attempt if none was charged."""
    charged = [one for one in attempts if one.charge != Charge.NONE]
    ends = (charged or list(attempts))[-1:]
    return [f"Attempt {one.number} {_ending(one)}." for one in ends]


def _ending(one: AttemptRow) -> str:
    message = line(one.message, SAID_MAX).rstrip(".")
    how = "was the last" if one.outcome == State.DEAD else f"ended as {line(one.outcome, NAME_MAX)}"
    place = find_line_of_death(one.crash)
    where = f", at {line(place, SAID_MAX)}" if place else ""
    return f"{how}: {message}{where}" if message else f"{how}{where}"
