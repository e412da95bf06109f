"""Decide which workers can take which jobs, by one set of rules for why, stats and doctor.

A worker counts as alive if its row marks it alive, its lock file does not prove the contrary, and
its last beat is within its own lease by the store's clock. That is for people: no decision about a
job is made here. Only ``with_proof`` reads anything: lock files, as a reaper does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from outlast.model.job import State
from outlast.model.lease import DeathCause
from outlast.model.pause import NO_PAUSES, Pauses
from outlast.store.lockfile import Probe, probe
from outlast.store.rows import StoredJob, WorkerRow, WorkerStatus
from outlast.store.statistics import DueJobs

ASLEEP = "asleep"  # the cause of a row whose worker is to be back (``--idle-after``)


def holds(one: WorkerRow) -> bool:
    """Whether the worker's row marks it as alive."""
    return one.status in {WorkerStatus.ACTIVE, WorkerStatus.DRAINING}


def dead(one: WorkerRow) -> bool:
    """Whether the worker is proven dead, though no live worker has marked its row yet."""
    return holds(one) and one.lock_free


def sleeps(one: WorkerRow, now: float) -> bool:
    """Whether the worker has left for a while, and is to be back by now or later."""
    is_asleep = one.status is WorkerStatus.STOPPED and one.cause == ASLEEP
    return is_asleep and now <= one.lease_expires_at


def silent(one: WorkerRow) -> bool:
    """Whether the worker has sent no beat for its whole lease."""
    return one.unheard > one.lease


def health(one: WorkerRow) -> str:
    """Return a worker's condition: ``gone`` (its row has ended), ``dead`` (proven, though its row
    does not show it), ``silent`` (for its whole lease), ``failing`` (at a duty), ``well``."""
    if not holds(one):
        return "gone"
    if dead(one):
        return "dead"
    if silent(one):
        return "silent"
    return "well" if one.failing is None else "failing"


def astray(rows: Iterable[StoredJob], workers: Iterable[WorkerRow]) -> dict[int, str]:
    """Return the running jobs whose worker no longer runs them: ``orphaned`` if the worker is gone
    or dead, ``silent`` if it has sent no beat for its whole lease."""
    known = {one.id: one for one in workers}
    words = {"gone": "orphaned", "dead": "orphaned", "silent": "silent"}
    found = {}
    for row in rows:
        if row.state is State.RUNNING:
            mine = known.get(row.worker_id or 0)
            standing = "gone" if mine is None else health(mine)
            found[row.id] = words.get(standing)
    return {number: phase for number, phase in found.items() if phase is not None}


def list_alive(workers: Iterable[WorkerRow]) -> list[WorkerRow]:
    """Return the workers that are alive."""
    return [one for one in workers if holds(one) and not dead(one) and not silent(one)]


class Served:
    """The work that live workers take, by the rules of ``hindrance``: any job of their tasks from
    their queues (none: all)."""

    def __init__(self, workers: Iterable[WorkerRow]) -> None:
        taking = (one for one in list_alive(workers) if takes_jobs(one))
        self._workers = {
            (frozenset(one.queues), frozenset(one.tasks) - {*one.lacks}) for one in taking
        }

    def has(self, task: str, queue: str) -> bool:
        """Whether some worker takes this task from this queue."""
        serve = (queues for queues, tasks in self._workers if task in tasks)
        return any(not queues or queue in queues for queues in serve)


def knows(one: WorkerRow, task: str) -> bool:
    """Whether the worker may run this task."""
    return task in one.tasks and task not in one.lacks


def serves(one: WorkerRow, queue: str) -> bool:
    """Whether the worker takes jobs of this queue."""
    return not one.queues or queue in one.queues


def takes(one: WorkerRow, queue: str, task: str) -> bool:
    """Whether the live worker takes jobs of this task from this queue."""
    return knows(one, task) and serves(one, queue) and takes_jobs(one)


def find_sleepers(
    workers: Iterable[WorkerRow], queue: str, task: str, now: float
) -> list[WorkerRow]:
    """Return the workers that sleep, and can take jobs of this task from this queue."""
    return [one for one in workers if sleeps(one, now) and knows(one, task) and serves(one, queue)]


def drains(one: WorkerRow) -> bool:
    """Whether the worker drains, and so takes no more jobs."""
    return one.status is WorkerStatus.DRAINING or one.drain_requested


def takes_nothing(one: WorkerRow) -> bool:
    """Whether the worker has reported that it cannot claim jobs and hand in ended attempts."""
    return duty_of(one) == "exchange"


def takes_jobs(one: WorkerRow) -> bool:
    """Whether a live worker takes jobs."""
    return not drains(one) and not takes_nothing(one)


def duty_of(one: WorkerRow) -> str | None:
    """Return the duty at which the worker fails, if any."""
    return None if one.failing is None else one.failing.partition(": ")[0]


def hindrance(live: Iterable[WorkerRow], queue: str, task: str) -> str | None:
    """Return why none of these live workers takes jobs of this task from this queue, as a position
    of ``outlast why``; None if one does."""
    left = list(live)
    if any(takes(one, queue, task) for one in left):  # the usual case: the first one takes them
        return None
    if not left:
        return "no_workers"
    knowing = [one for one in left if knows(one, task)]
    if not knowing:
        return "lacks_tags" if any(task in one.lacks for one in left) else "unservable"
    serving = [one for one in knowing if serves(one, queue)]
    if not serving:
        return "queue_not_served"
    return "draining" if all(map(drains, serving)) else "failing"


def list_untaken(
    lanes: Iterable[DueJobs], live: Sequence[WorkerRow], pauses: Pauses
) -> Iterator[tuple[DueJobs, str]]:
    """Yield the lanes that no live worker takes, though nothing pauses them, and why."""
    for lane in lanes:
        if pauses.find(lane.queue, lane.task, None) is None:
            why = hindrance(live, lane.queue, lane.task)
            if why is not None:
                yield lane, why


def with_proof(rows: Iterable[WorkerRow]) -> list[WorkerRow]:
    """Return the rows, with ``lock_free`` set on rows of dead workers that are marked alive."""
    return [msgspec.structs.replace(row, lock_free=True) if _is_dead(row) else row for row in rows]


def _is_dead(row: WorkerRow) -> bool:
    if not holds(row) or row.lock_path is None:
        return False
    if row.cause == DeathCause.TETHER:
        return True
    return probe(row.lock_path, row.lock_device, row.lock_inode, row.boot_id) is Probe.FREE


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


def proof_of_life(row: WorkerRow) -> str | None:
    """Return what would prove this worker's death before its lease ends, if anything."""
    if row.presence is not None:
        return "advisory_lock"
    return "lock_file" if row.lock_path else None
