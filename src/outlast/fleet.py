"""Which workers can take what: the same rules for ``why``, ``stats`` and ``doctor``. Pure.

A worker counts as alive when its row says so and it was heard of within its own lease. Both times
are for people: no decision about a job is made here.
"""

from __future__ import annotations

from collections.abc import Iterable

from outlast.store.reads import WorkerRow, WorkerStatus


def holds(one: WorkerRow) -> bool:
    """Whether its row says that it is alive."""
    return one.status in {WorkerStatus.ACTIVE, WorkerStatus.DRAINING}


def silent(one: WorkerRow, now: float) -> bool:
    """Whether nothing was heard of it for its whole lease."""
    return now - one.heartbeat_at > one.lease


def alive(workers: Iterable[WorkerRow], now: float) -> list[WorkerRow]:
    """Return those that are alive."""
    return [one for one in workers if holds(one) and not silent(one, now)]


def knows(one: WorkerRow, task: str) -> bool:
    """Whether it may run this task."""
    return task in one.tasks and task not in one.lacks


def serves(one: WorkerRow, queue: str) -> bool:
    """Whether it takes jobs of this queue."""
    return not one.queues or queue in one.queues


def drains(one: WorkerRow) -> bool:
    """Whether it takes nothing more."""
    return one.status is WorkerStatus.DRAINING or one.drain_requested


def takes_nothing(one: WorkerRow) -> bool:
    """Whether it has said that it fails at taking jobs, and at handing in what has ended."""
    return duty_of(one) == "exchange"


def duty_of(one: WorkerRow) -> str | None:
    """Return the duty that it fails at, if any."""
    return None if one.failing is None else one.failing.partition(": ")[0]


def hindrance(live: Iterable[WorkerRow], queue: str, task: str) -> str | None:
    """Return why none of these live workers takes jobs of this task from this queue; None if one
    does. The names are positions of ``outlast why``."""
    left = list(live)
    if not left:
        return "no_workers"
    knowing = [one for one in left if knows(one, task)]
    if not knowing:
        return "lacks_tags" if any(task in one.lacks for one in left) else "unservable"
    serving = [one for one in knowing if serves(one, queue)]
    if not serving:
        return "queue_not_served"
    staying = [one for one in serving if not drains(one)]
    if not staying:
        return "draining"
    return "failing" if all(takes_nothing(one) for one in staying) else None
