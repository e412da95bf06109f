"""Answers an enqueue whose key an unfinished job already has. Pure.

A key is unique among all tasks of a store. A job of the same task is returned even if its arguments
differ; a job of another task is an error, since the requested call would never run.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from outlast.errors import KeyInUse
from outlast.store.values import Enqueued, NewJob

NOTHING = "nothing was enqueued"


def match_holder(job: NewJob, job_id: int, task: str, *, same_args: bool) -> Enqueued:
    """Return the unfinished job that has the key; KeyInUse if its task is another one, whose name
    is not an alias either."""
    key = job.key or ""
    if task != job.task and task not in job.aliases:
        raise KeyInUse(
            f"the key {key!r} belongs to job {job_id} of the task {task!r}, which is unfinished:"
            f" {NOTHING}; all tasks share their keys: use {job.task + ':' + key!r}",
            key=key,
            task=task,
            job_id=job_id,
        )
    return Enqueued(job_id, created=False, same_args=same_args)


def make_replaceable(job: NewJob) -> NewJob:
    """Return a job as it is stored if later enqueues may replace it or take its key."""
    policy = msgspec.structs.replace(job.policy, yields_key=True)
    return msgspec.structs.replace(job, policy=policy, on_key=None)


def check_batch(jobs: Sequence[NewJob]) -> None:
    """Raise KeyInUse if jobs of different tasks in one call have the same key."""
    first: dict[str, NewJob] = {}
    for job in jobs:
        if job.key is None:
            continue
        other = first.setdefault(job.key, job)
        if other.task not in {job.task, *job.aliases}:
            raise KeyInUse(
                f"one call gives the key {job.key!r} to jobs of two tasks, {other.task!r} and"
                f" {job.task!r}: {NOTHING}; give each task keys of its own",
                key=job.key,
                task=other.task,
            )
