"""Enqueuing on PostgreSQL, on any connection: the store's own, or one in the caller's transaction.

Jobs without keys are one statement. Those with keys may need several, since a job that has a key
already may end while it is looked for. What most programs enqueue (one job, or many calls of one
task that are due at once) is told by its common columns and one text of all arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlast.errors import StoreUnavailable
from outlast.store.postgres_sql import job_columns, policy_text, sql
from outlast.store.values import Enqueued, NewJob

KEYED_TRIES = 10  # a key whose job ends between insert and look-up, this often in a row
BETWEEN = "\x1f"  # arguments: a character that JSON has nowhere


def keyed(jobs: Sequence[NewJob]) -> bool:
    """Whether some have keys."""
    if len(jobs) == 1:
        return jobs[0].key is not None
    return [job.key for job in jobs].count(None) < len(jobs)


async def enqueue(connection: Any, jobs: Sequence[NewJob], *, notify: bool) -> list[Enqueued]:
    """Store jobs in their order. More than one of which some have keys: in a transaction only."""
    if not jobs:
        return []
    if keyed(jobs):
        return await _enqueue_keyed(connection, jobs, notify=notify)
    alike = _alike(jobs)
    if alike is None:
        rows = await connection.fetch(sql("enqueue"), *job_columns(jobs), notify)
    else:
        verb = "enqueue_one" if len(jobs) == 1 else "enqueue_alike"
        rows = await connection.fetch(sql(verb), *alike, notify)
    return [Enqueued(row["id"], True) for row in rows]


async def create_with_key(connection: Any, job: NewJob, *, notify: bool) -> Enqueued | None:
    """Store one job that has a key; None where an unfinished one has it."""
    values = [column[0] for column in job_columns([job])]
    rows = await connection.fetch(sql("enqueue_key"), *values, notify, job.key)
    return Enqueued(rows[0]["id"], True) if rows else None


async def unfinished(connection: Any, key: str) -> Enqueued | None:
    """Return the unfinished job that has the key, not created now; None if there is none."""
    rows = await connection.fetch(sql("find_keys"), [key])
    return Enqueued(rows[0]["id"], False) if rows else None


def _alike(jobs: Sequence[NewJob]) -> tuple[Any, ...] | None:
    """Return the values of enqueue_one.sql and enqueue_alike.sql, or None for jobs that are not for
    them."""
    first = jobs[0]
    if first.delay > 0 or first.run_at is not None:
        return None
    if len(jobs) > 1 and not _share_the_rest(jobs):
        return None
    args = first.args
    if len(jobs) > 1:
        args = BETWEEN.join([job.args for job in jobs])
        if args.count(BETWEEN) != len(jobs) - 1:
            return None
    policy = first.policy
    return (
        first.task,
        first.queue,
        args,
        first.priority,
        first.tenant,
        policy_text(policy),
        policy.timeout,
    )


def _share_the_rest(jobs: Sequence[NewJob]) -> bool:
    """Whether they differ in arguments only. A policy is known by its identity: a task has one."""
    first = jobs[0]
    return all(
        job is first
        or (
            job.policy is first.policy
            and job.task == first.task
            and job.queue == first.queue
            and job.priority == first.priority
            and job.tenant == first.tenant
            and job.delay == first.delay
            and job.run_at == first.run_at
        )
        for job in jobs
    )


async def _enqueue_keyed(
    connection: Any, jobs: Sequence[NewJob], *, notify: bool
) -> list[Enqueued]:
    found: dict[int, Enqueued] = {}
    left = list(enumerate(jobs))
    for _ in range(KEYED_TRIES):
        batch = [job for _, job in left]
        keys = [job.key for job in batch]
        rows = await connection.fetch(sql("enqueue_keyed"), *job_columns(batch), notify, keys)
        for (index, _job), row in zip(left, rows, strict=True):
            if row["created"]:
                found[index] = Enqueued(row["id"], True)
        left = [(index, job) for index, job in left if index not in found]
        if not left:
            return [found[index] for index in range(len(jobs))]
        rows = await connection.fetch(sql("find_keys"), [job.key for _, job in left])
        held = {row["key"]: row["id"] for row in rows}
        found |= {index: Enqueued(held[job.key], False) for index, job in left if job.key in held}
        left = [(index, job) for index, job in left if index not in found]
        if not left:
            return [found[index] for index in range(len(jobs))]
    raise StoreUnavailable("jobs with these keys came and went too fast; enqueue again")
