"""Defines a job's states, the limits copied to its row, and the facts that a decision needs."""

from __future__ import annotations

from enum import StrEnum

import msgspec

PRIORITY_MIN, PRIORITY_MAX = -100, 100
ALONE_IN_RUNNER, ALONE_IN_WORKER = 1, 2  # values of ``solo``; 0 shares
SHELL_TASK = "outlast.shell"  # runs a command, only in workers with --shell

# Keys that keep ticks of one schedule from overlapping; outlast_enqueue_v1 refuses them as well.
# Any other job with such a key would stop the schedule.
TICKS_KEY, BACKFILL_KEY = "outlast:schedule:", "outlast:backfill:"


class State(StrEnum):
    """Where a job is. ``scheduled`` and ``retrying`` are phases of ``queued``; a ``blocked``
    job waits for others, upstream of it."""

    QUEUED = "queued"
    BLOCKED = "blocked"
    RUNNING = "running"
    COMPLETED = "completed"
    DEAD = "dead"
    CANCELLED = "cancelled"


ENDED = frozenset({State.COMPLETED, State.DEAD, State.CANCELLED})


class Policy(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, cache_hash=True, gc=False
):
    """The limits of one job, copied to its row: a worker that reclaims it may not know the task.

    Attributes:
        retries: charged failures that are forgiven; one more and the job is dead.
        max_losses: lost attempts in a row, each at the checkpoint from which it went on, that are
            forgiven; one more and the job is dead.
        backoff_first, backoff_max: seconds before the first retry, and at most.
        timeout: seconds that one attempt may run, or None.
        stall_timeout: seconds that an attempt may go without report or save, or None.
        unresponsive_timeout: seconds that it may keep its runner from answering, or None.
        cancel_grace: seconds between the request to stop and the kill of its runner.
        keep_running_when_isolated: whether it goes on while its worker cannot renew its lease.
        keep: seconds for which its row is kept once it has completed or was cancelled (0: it is
            deleted in the same commit), or None: as long as workers keep others.
        logs: whether what its attempts print is kept in the store.
        schedule: the name of the schedule that the job comes from, or None.
        tick: the planned instant that it is for, in seconds since 1970, or None.
        backfill: whether a person asked for that tick, which may have had a job before.
        meta: what the caller has noted on this job, a JSON object as text, or None.
        labels: names by which people find this job.
        inputs: the parameters that get results of the jobs upstream, each with a flag: whether it
            gets a list of all results.
        yields_key: whether a later enqueue with its key may change its arguments, or take the key.
    """

    retries: int = 3
    max_losses: int = 10
    backoff_first: float = 2.0
    backoff_max: float = 600.0
    timeout: float | None = None
    stall_timeout: float | None = None
    unresponsive_timeout: float | None = None
    cancel_grace: float = 1.0
    keep_running_when_isolated: bool = False
    keep: float | None = None
    logs: bool = False
    schedule: str | None = None
    tick: float | None = None
    backfill: bool = False
    meta: str | None = None
    labels: tuple[str, ...] = ()
    inputs: tuple[tuple[str, bool], ...] = ()
    yields_key: bool = False


OF_ONE_JOB = frozenset({"schedule", "tick", "backfill", "meta", "labels", "inputs", "yields_key"})
"""The fields of a policy that are neither a limit nor an option of a task."""


class JobFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The facts about a running job that ``decide`` needs.

    Attributes:
        task: its name; "" where the task need not be part of the fingerprint.
        solo: 0 shares a runner with others, 1 runs alone in one, 2 runs alone in its whole
            worker.
        incident: the shared death that the job is suspected of, named by the lowest token in it.
    """

    job_id: int
    token: int
    failures: int = 0
    losses: int = 0
    policy: Policy = Policy()
    cancel_requested: bool = False
    solo: int = 0
    incident: int | None = None
    task: str = ""
