"""Judges a chaos run, apart from the code under test, from what the processes reported.

The ledger is what enqueuers were promised, the journal is what attempts did, the effects are what
they committed; jobs and refusals are as the store shows them.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

from outlast.model.job import ENDED, State
from outlast.store.rows import StoredJob
from tests.chaos.enqueuer import ROLLED_BACK

Entry = dict[str, Any]
Name = tuple[int, str | None]  # a job's id and key: an id that a failover has lost is given again
INTERRUPTED = {"lost_worker", "lost_lease", "bystander", "signalled"}


class Failover(msgspec.Struct, frozen=True, kw_only=True):
    """An asynchronous standby was promoted. ``lost``: jobs that the dead primary had, and it had
    not. ``steps``: the checkpoints that it had, by job."""

    at: float
    lost: set[Name] = set()
    steps: dict[int, int] = {}


class Run(msgspec.Struct, kw_only=True):
    """All that is known of a run. ``effects``: (job, token). ``closed``: why and when attempts
    were closed, by token. ``ledger``: what told of accepted jobs. ``upstream``: the jobs that a job
    waited for, in their order. Times are on CLOCK_BOOTTIME."""

    accepted: set[Name]
    journal: list[Entry]
    faults: list[Entry]
    jobs: list[StoredJob]
    effects: list[tuple[int, int]]
    closed: dict[int, tuple[str, float]]
    failovers: list[Failover] = []
    ledger: list[Entry] = []
    upstream: dict[int, list[int]] = {}


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from a fault until an interrupted attempt was closed, and until its job had begun
    again (it waits in the line for that)."""

    event: str
    number: int
    noticed: float
    noticed_max: float
    begun: float
    begun_max: float


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from a fault of the whole database until something was accepted again."""

    event: str
    number: int
    median: float
    longest: float


def violations(run: Run) -> Iterator[str]:
    """Return all violations."""
    yield from lost(run)
    yield from stale_ends(run)
    yield from doubled_effects(run)
    yield from twice_begun(run)
    yield from stale_saves(run)
    yield from checkpoints(run)
    yield from expired(run)
    yield from children(run)
    yield from given(run)
    yield from outcomes(run)


def lost(run: Run) -> Iterator[str]:
    """Every accepted job is there, but those that the database has lost, and every job that is
    there has ended."""
    there = {(job.id, job.key) for job in run.jobs}
    excused = {name for failover in run.failovers for name in failover.lost}
    for job_id, key in sorted(run.accepted - there - excused, key=str):
        yield f"LOST job {job_id} was accepted under the key {key}, and is not in the store"
    for job in run.jobs:
        if job.state not in ENDED:
            yield f"LOST job {job.id} ({job.task}) is still {job.state.value}"
        if job.tenant == ROLLED_BACK:
            yield f"job {job.id} ({job.task}) was enqueued in a transaction that was rolled back"


def stale_ends(run: Run) -> Iterator[str]:
    """An accepted result is that of the current attempt: each returns its own token."""
    for job in run.jobs:
        if job.state is State.COMPLETED:
            told = msgspec.json.decode(job.result or "{}").get("token")
            if told != job.token:
                yield (
                    f"STALE END job {job.id} ({job.task}) was completed under token {job.token}"
                    f" with the result of token {told}"
                )


def doubled_effects(run: Run) -> Iterator[str]:
    """What is committed with the completion is there exactly once, and only of that attempt."""
    effects: dict[int, list[int]] = defaultdict(list)
    for job_id, token in run.effects:
        effects[job_id].append(token)
    for job in run.jobs:
        if job.task == "pays":
            right = [job.token] if job.state is State.COMPLETED else []
            if effects[job.id] != right:
                yield (
                    f"DOUBLED job {job.id} is {job.state.value} under token {job.token},"
                    f" with effects of {effects[job.id]}"
                )


def twice_begun(run: Run) -> Iterator[str]:
    """One attempt is begun by one process, once."""
    starts = Counter(entry["token"] for entry in run.journal if entry["event"] == "start")
    for token, number in starts.items():
        if number > 1:
            yield f"token {token} was begun {number} times"


def stale_saves(run: Run) -> Iterator[str]:
    """What was asked for after a later attempt had begun was not accepted."""
    begun = _by_job(run, "start")
    for entry in _of(run, "saved"):
        later = [start for start in begun[entry["job"]] if start["token"] > entry["token"]]
        before = [start for start in later if start["at"] < entry["asked_at"]]
        if before:
            yield (
                f"STALE SAVE job {entry['job']}: a save of token {entry['token']} was accepted"
                f" though token {before[0]['token']} had begun"
            )


def checkpoints(run: Run) -> Iterator[str]:
    """What was reported as saved is handed to the next attempt."""
    saved = _by_job(run, "saved")
    for start in _of(run, "start"):
        since, last = _last_failover(run, start)
        earlier = [each for each in saved[start["job"]] if each["token"] < start["token"]]
        last = max((each["step"] for each in earlier if each["asked_at"] > since), default=last)
        if start["step"] < last:
            yield (
                f"FORGOTTEN job {start['job']}: token {start['token']} begins at step"
                f" {start['step']}, though step {last} was saved"
            )


def expired(run: Run) -> Iterator[str]:
    """An expiry ends only what has not begun, and not before its time; nothing begins after it."""
    begun = {entry["job"] for entry in _of(run, "start")}
    for job in run.jobs:
        if job.expires_at is None or run.failovers:  # ids that were lost are given again
            continue
        if job.state is State.CANCELLED and not job.cancel_requested:
            if job.id in begun:
                yield f"EXPIRED job {job.id} ({job.task}) had begun"
            if (job.ended_at or 0.0) < job.expires_at:
                yield f"EXPIRED job {job.id} ({job.task}) was ended before its time"
        elif job.attempt_count == 1 and (job.started_at or 0.0) > job.expires_at:
            yield f"EXPIRED job {job.id} ({job.task}) was claimed after its time"


def children(run: Run) -> Iterator[str]:
    """A job has each of its children once, whichever of its attempts has spawned them, and gets
    the results of all."""
    if run.failovers:  # ids that were lost are given again
        return
    spawned: dict[int, list[int]] = {}
    for entry in _of(run, "spawned"):
        before = spawned.setdefault(entry["job"], entry["children"])
        if before != entry["children"]:
            yield f"CHILDREN job {entry['job']} has {before}, and then {entry['children']}"
    jobs: dict[tuple[int, int], set[int]] = defaultdict(set)
    for entry in _of(run, "start"):
        if child := entry.get("child"):
            jobs[child[0], child[1]].add(entry["job"])
    for (parent, number), made in jobs.items():
        if len(made) > 1:
            yield f"CHILDREN job {parent} has its child {number} as jobs {sorted(made)}"
    for entry in _of(run, "gathered"):
        if entry["missing"]:
            yield f"CHILDREN job {entry['job']} misses {entry['missing']} results"


def given(run: Run) -> Iterator[str]:
    """What a job in a flow gets are the results of all jobs upstream, in their order."""
    if run.failovers:
        return
    jobs = {job.id: job for job in run.jobs}
    for entry in _of(run, "given"):
        upstream = [jobs.get(each) for each in run.upstream.get(entry["job"], [])]
        if None in upstream:  # pruned since
            continue
        right = [job.token if job.state is State.COMPLETED else None for job in upstream if job]
        if entry["tokens"] != right:
            yield f"RESULTS job {entry['job']} was given {entry['tokens']}, not {right}"


def outcomes(run: Run) -> Iterator[str]:
    """All attempts of a job find the same step, and the same outcome of a wait."""
    if run.failovers:
        return
    first: dict[int, Any] = {}
    for entry in _of(run, "outcome"):
        said = first.setdefault(entry["job"], entry["said"])
        if said != entry["said"]:
            yield f"OUTCOME job {entry['job']} was told {said}, and then {entry['said']}"


def _last_failover(run: Run, start: Entry) -> tuple[float, int]:
    """Return when the last one before this start was, and which step of the job it has left."""
    before = [each for each in run.failovers if each.at < start["at"]]
    if not before:
        return 0.0, 0
    last = max(before, key=lambda each: each.at)
    return last.at, last.steps.get(start["job"], 0)


def blamed(events: Counter[str]) -> Iterator[str]:
    """Each worker itself ends what is above its timeout, or is lost; no other worker does."""
    if number := events["attempt_overdue"]:
        yield f"BLAMED {number} attempts were ended for their timeout by another worker"


def done_twice(run: Run) -> int:
    """Count the jobs whose work, outside the store, was done to the end more than once."""
    done = Counter(entry["job"] for entry in _of(run, "done"))
    return sum(number > 1 for number in done.values())


def recoveries(run: Run) -> list[Recovery]:
    """Return how long it took to notice and to begin again, by fault: medians and maxima."""
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    begun = _by_job(run, "start")
    for start in _of(run, "start"):
        again = [each["at"] for each in begun[start["job"]] if each["token"] > start["token"]]
        outcome, closed_at = run.closed.get(start["token"], ("", 0.0))
        hits = [each for each in run.faults if _interrupts(each, start) and each["at"] < closed_at]
        if hits and again and outcome in INTERRUPTED:
            at = hits[0]["at"]
            spans[hits[0]["event"]].append((closed_at - at, min(again) - at))
    return [_recovery(event, values) for event, values in sorted(spans.items())]


def pauses(run: Run) -> list[Pause]:
    """Return how long after each fault of the whole database nothing that was asked for since
    then was accepted."""
    accepted = [(entry["asked_at"], entry["at"]) for entry in (*run.ledger, *_of(run, "saved"))]
    spans: dict[str, list[float]] = defaultdict(list)
    for fault in run.faults:
        if fault.get("halts"):
            later = [at for asked_at, at in accepted if asked_at > fault["at"]]
            spans[fault["event"]] += [min(later) - fault["at"]] if later else []
    return [
        Pause(
            event=event, number=len(values), median=statistics.median(values), longest=max(values)
        )
        for event, values in sorted(spans.items())
        if values
    ]


def _recovery(event: str, values: list[tuple[float, float]]) -> Recovery:
    noticed, begun = zip(*values, strict=True)
    return Recovery(
        event=event,
        number=len(values),
        noticed=statistics.median(noticed),
        noticed_max=max(noticed),
        begun=statistics.median(begun),
        begun_max=max(begun),
    )


def _interrupts(fault: Entry, start: Entry) -> bool:
    return start["pid"] in fault.get("runners", ()) and start["at"] < fault["at"]


def _of(run: Run, event: str) -> Iterator[Entry]:
    return (entry for entry in run.journal if entry["event"] == event)


def _by_job(run: Run, event: str) -> dict[int, list[Entry]]:
    found: dict[int, list[Entry]] = defaultdict(list)
    for entry in _of(run, event):
        found[entry["job"]].append(entry)
    return found
