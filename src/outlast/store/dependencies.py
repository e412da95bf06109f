"""Says what new jobs wait for, in terms that both stores share. Pure.

A job that waits for others, upstream of it, is blocked (``model.job``). When an awaited job ends,
the same commit leaves a notice, which the next exchange resolves: it queues blocked jobs whose
upstream jobs have all ended as required, and cancels blocked jobs for which this has become
impossible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from outlast.errors import JobNotFound, LostLease, UsageError
from outlast.model.lifecycle import Outcome, OutcomeKind, Transition, decide
from outlast.store.values import Claimed, Enqueued, NewJob, Spawn, Upstream, Wants

RESOLVE_MAX = 500  # notices that one exchange resolves in a round
UNWATCHED, WATCHED, MET, FAILED, QUIET = range(5)  # states of a dependency; QUIET on PostgreSQL
RESULTS_BYTES = 16 * 1024**2  # of results that one attempt gets as arguments


class Dependency(NamedTuple):
    """A job that a stored job waits for, and its ``place`` among all of these. ``is_new``: the same
    call has stored the upstream job."""

    job_id: int
    upstream_id: int
    wants: Wants
    is_new: bool
    place: int


def check_dependent(jobs: Sequence[NewJob]) -> None:
    """Raise UsageError if jobs that may replace others are enqueued with jobs that wait."""
    if any(job.on_key is not None for job in jobs):
        raise UsageError(
            "once_per, debounce, until and on_conflict cannot be combined with jobs that wait for"
            " others"
        )
    waits: dict[str, Sequence[Upstream]] = {}
    for job in jobs:
        first = job.after if job.key is None else waits.setdefault(job.key, job.after)
        if job.after and first != job.after:
            raise UsageError(
                f"two calls have the key {job.key!r}, but wait for different jobs: only the first"
                " would run. Give each a key of its own"
            )


def find_awaited(jobs: Sequence[NewJob]) -> set[int]:
    """Return the places of the jobs that others of the same call wait for."""
    return {-1 - each.job for job in jobs for each in job.after if each.job < 0}


def find_named(jobs: Sequence[NewJob]) -> list[int]:
    """Return the ids of stored jobs that some of these wait for."""
    return sorted({each.job for job in jobs for each in job.after if each.job >= 0})


def check_upstream(named: Sequence[int], keeps: Mapping[int, float | None]) -> None:
    """Raise JobNotFound for a missing job, UsageError for one that is deleted when it ends.
    ``keeps``: for how long each is kept."""
    for job_id in named:
        if job_id not in keeps:
            raise JobNotFound(f"there is no job {job_id} to wait for: nothing was enqueued")
        keep = keeps[job_id]
        if keep is not None and keep <= 0:
            raise UsageError(
                f"no job can wait for job {job_id}, which is deleted as it ends (keep=0): enqueue"
                " both in one call, or keep it for longer"
            )


def find_dependencies(jobs: Sequence[NewJob], stored: Sequence[Enqueued]) -> list[Dependency]:
    """Return the dependencies of the jobs that were stored, one for each place: two places may name
    one job, by its key. A job found by its key was not stored, and keeps its own dependencies."""
    found: list[Dependency] = []
    for job, one in zip(jobs, stored, strict=True):
        if not one.created:
            continue
        for place, (upstream, wants) in enumerate(job.after):
            other = stored[-1 - upstream] if upstream < 0 else None
            upstream_id = upstream if other is None else other.job_id
            if upstream_id != one.job_id:
                is_new = other is not None and other.created
                found.append(Dependency(one.job_id, upstream_id, wants, is_new, place))
    return found


def not_spawned(spawn: Spawn) -> LostLease:
    """Return the error for a spawn by an attempt that is not the current one."""
    return LostLease(
        f"the attempt of job {spawn.step.job_id} with token {spawn.step.token} is no longer the"
        " current one: it has spawned nothing"
    )


def add_results(
    claimed: Sequence[Claimed], rows: Sequence[tuple[int, str | None, int, int | None, bool]]
) -> tuple[list[Claimed], list[Transition]]:
    """Return claimed jobs with the results that they take, and ends that return the others to the
    queue: the reply had no room for their results.

    Each of ``rows`` has a job's id, one of its results, in order, how many results it takes, a
    completed job whose result was deleted (or None), and whether the reply had no room. Fewer rows
    than results: they are too large for one attempt.
    """
    found: dict[int, list[str | None]] = {}
    counts: dict[int, tuple[int, int | None]] = {}
    late: set[int] = set()
    for job_id, result, count, gone, is_late in rows:
        found.setdefault(job_id, []).append(result)
        counts[job_id] = count, gone
        late.update([job_id] if is_late else [])
    kept = [_with_results(each, found, counts) for each in claimed if each.job_id not in late]
    return kept, [_give_back(each) for each in claimed if each.job_id in late]


def _give_back(claimed: Claimed) -> Transition:
    message = "the reply to the claim had no room for the results that it takes"
    idle = Outcome(kind=OutcomeKind.RELEASED, message=message, began=False)
    return decide(claimed.make_facts(claimed.losses), idle, lambda: 0.0)


def _with_results(
    claimed: Claimed,
    found: Mapping[int, list[str | None]],
    counts: Mapping[int, tuple[int, int | None]],
) -> Claimed:
    if not claimed.policy.inputs:
        return claimed
    results, (count, gone) = found.get(claimed.job_id, []), counts.get(claimed.job_id, (None, None))
    if gone is not None:
        told = (
            f"the result of job {gone}, for which it waited, was deleted before it began again:"
            " enqueue the flow again, with a longer keep"
        )
        return msgspec.structs.replace(claimed, malformed=claimed.malformed or told)
    if count is None or len(results) < count:
        told = (
            f"the results of the jobs that it waited for have more than {RESULTS_BYTES:,} bytes:"
            " let them return less, such as the names of files"
        )
        return msgspec.structs.replace(claimed, malformed=claimed.malformed or told)
    return msgspec.structs.replace(claimed, results=tuple(results))
