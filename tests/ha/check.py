"""Judges a drill by what stands outside the database: the producer's ledger, the journal of the
attempts, and what a prober was told of its own commits."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

from outlast.store.rows import ClosedAttempt
from tests.chaos import judge
from tests.chaos.judge import Entry, Failover, Run

GAP_SECONDS = 0.25  # a pause between commits that is longer is an outage
SHOWN = 5  # findings of a kind
FIRST_JOB_MAX = 3.0  # seconds after the first commit


class Commit(msgspec.Struct, frozen=True):
    """An INSERT of the prober that a node has acknowledged, or what leads to the primary. Times are
    on CLOCK_BOOTTIME."""

    node: int
    asked_at: float
    at: float


class Facts(msgspec.Struct, kw_only=True):
    """All that is known of a drill. ``odd``: what its own parts have found wrong;
    ``notes``: what else they have to tell."""

    run: Run
    fault_at: float
    commits: list[Commit]
    closed: list[ClosedAttempt]
    synchronous: bool
    odd: list[str]
    notes: dict[str, Any]


class Found(msgspec.Struct, kw_only=True):
    """What came of a drill. ``writable`` and ``first_job``: seconds from the fault until an INSERT
    was committed and until an attempt began, after ``outage``, the longest time without a commit.
    None: there was none."""

    outage: float | None
    writable: float | None
    first_job: float | None
    charged: int
    twice: int
    jobs: int
    lost: int
    notes: dict[str, Any]
    findings: list[str]


def judged(facts: Facts, *, is_timed: bool) -> Found:
    """Return the figures of a drill and every law that it has broken; ``is_timed``: also that work
    goes on soon enough, which a busy machine may not show."""
    run = facts.run
    lost = set[judge.Name]()
    if not facts.synchronous:
        lost = run.accepted - {(job.id, job.key) for job in run.jobs}
        run = msgspec.structs.replace(
            run, failovers=[Failover(at=facts.fault_at, lost=lost_before(facts, lost))]
        )
    outage = longest_gap(facts)
    first = None if outage is None else first_start(run, outage[1])
    findings = [
        *judge.violations(run),
        *ids_given_again(run),
        *(done_again(facts) if facts.synchronous else ()),
        *(
            f"CHARGED job {each.job_id}: token {each.token} ended as {each.outcome},"
            " and its worker lived"
            for each in charged(facts)
        ),
        *facts.odd,
    ]
    if outage is not None and first is None:
        findings.append("no job began after the database took writes again")
    if is_timed and outage and first and (after := first - outage[1]) > FIRST_JOB_MAX:
        findings.append(f"LATE the first job began {after:.1f} s after the first commit")
    return Found(
        outage=None if outage is None else round(outage[1] - outage[0], 1),
        writable=None if outage is None else round(outage[1] - facts.fault_at, 1),
        first_job=None if first is None else round(first - facts.fault_at, 1),
        charged=len(charged(facts)),
        twice=judge.done_twice(run),
        jobs=len(run.jobs),
        lost=len(lost),
        notes=facts.notes,
        findings=findings,
    )


def lost_before(facts: Facts, lost: set[judge.Name]) -> set[judge.Name]:
    """Return those of the lost jobs that were acknowledged before the fault, or at that moment:
    what is acknowledged by the new leader may not be lost."""
    new = min((each.at for each in facts.commits if each.asked_at > facts.fault_at), default=0.0)
    late = {
        (line["job"], line["key"]) for line in facts.run.ledger if line["asked_at"] > (new or 1e12)
    }
    return lost - late


def longest_gap(facts: Facts) -> tuple[float, float] | None:
    """Return the longest time after the fault in which nothing was committed, if it is one."""
    at = sorted(each.at for each in facts.commits if each.at > facts.fault_at - 1.0)
    gaps = [(a, b) for a, b in itertools.pairwise(at) if b > facts.fault_at]
    longest = max(gaps, key=lambda gap: gap[1] - gap[0], default=(0.0, 0.0))
    return longest if longest[1] - longest[0] > GAP_SECONDS else None


def first_start(run: Run, at: float) -> float | None:
    """Return when the first attempt began after this time."""
    starts = [each["at"] for each in run.journal if each["event"] == "start" and each["at"] > at]
    return min(starts, default=None)


def charged(facts: Facts) -> list[ClosedAttempt]:
    """Return the attempts that cost their jobs something: no worker and no task has failed."""
    return [each for each in facts.closed if each.charge != "none"]


def ids_given_again(run: Run) -> Iterator[str]:
    """A job's id is never given to another job, even one that a failover has lost."""
    keys: dict[int, set[str]] = defaultdict(set)
    for line in run.ledger:
        keys[line["job"]].add(line["key"])
    for job_id, found in sorted(keys.items()):
        if len(found) > 1:
            yield f"REPEATED the id {job_id} was given to {sorted(map(str, found))}"


def done_again(facts: Facts) -> Iterator[str]:
    """A job is done again only if its earlier attempt was running when the store closed it."""
    closed = {each.token for each in facts.closed}
    done: dict[int, list[Entry]] = defaultdict(list)
    for entry in facts.run.journal:
        if entry["event"] == "done":
            done[entry["job"]].append(entry)
    for job_id, entries in done.items():
        *earlier, _last = sorted(each["token"] for each in entries)
        for token in earlier:
            if token not in closed:
                yield f"DONE AGAIN job {job_id}: token {token} was done, and was never closed"


def line_of(name: str, found: Found, **more: Any) -> str:
    """Return the line of JSON that tells of a drill, with some findings of each kind."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for each in found.findings:
        kinds[each.partition(" ")[0]].append(each)
    shown = [line for lines in kinds.values() for line in few(lines)]
    told = {"drill": name, **more, **msgspec.to_builtins(found), "findings": shown}
    return msgspec.json.encode(told).decode()


def few(lines: list[str]) -> list[str]:
    """Return the first lines, and how many there are besides."""
    left = len(lines) - SHOWN
    return [*lines[:SHOWN], *([f"and {left} more of this kind"] if left > 0 else [])]
