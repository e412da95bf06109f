"""Group dead jobs, with an example of each group, and list shared deaths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from outlast.insight.queries import read_dead
from outlast.insight.resource import SCHEMA, Document, Resource
from outlast.model.crash import CrashKind, find_place
from outlast.model.kinds import Time
from outlast.model.lifecycle import OutcomeKind
from outlast.store.inspector import ReadableStore
from outlast.store.rows import AttemptRow, DeadGroup, JobFilter, StoredJob, Suspect

GROUPS_SHOWN = 100
TEXT_MAX = 200  # characters of an example's arguments

DEATHS = (*(kind.value for kind in CrashKind), OutcomeKind.DEAD.value)
"""The outcomes of attempts that have ended badly."""


class DeathGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead jobs with the same cause, described by the job with the largest id.

    Attributes:
        group: its name, the fingerprint of the rows; None: another program wrote the rows.
        number: how many of the examined jobs. ``first_at``, ``last_at``: their first and last
            death.
        job_id: the example. ``task`` and ``queue`` are its own.
        kind: how its last attempt ended; ``exception``, ``place`` (the innermost frame of the
            user's code) and ``message``, where they are known.
    """

    group: str | None
    number: int
    first_at: Time | None
    last_at: Time | None
    job_id: int
    task: str
    queue: str
    kind: str | None = None
    exception: str | None = None
    place: str | None = None
    message: str = ""


class DeathGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The groups with the latest deaths. ``looked_at``: how many dead jobs were examined, the
    newest by id; ``full``: there are more jobs. ``more``: there are more groups."""

    groups: list[DeathGroup]
    looked_at: int
    full: bool
    more: bool


async def read_dead_groups(store: ReadableStore, which: JobFilter) -> DeathGroups:
    """Return groups of dead jobs, at most GROUPS_SHOWN, the one with the latest death first."""
    found = await store.inspector.dead_groups(which)
    made = await _with_examples(store, found.groups[:GROUPS_SHOWN])
    more = found.more or len(found.groups) > GROUPS_SHOWN
    return DeathGroups(groups=made, looked_at=found.looked_at, full=found.full, more=more)


async def read_largest_groups(store: ReadableStore, most: int) -> list[DeathGroup]:
    """Return at most ``most`` groups of the newest dead jobs, the largest first."""
    found = (await store.inspector.dead_groups(JobFilter())).groups
    largest = sorted(found, key=lambda one: one.number, reverse=True)[:most]
    return await _with_examples(store, largest)


async def _with_examples(store: ReadableStore, groups: Sequence[DeadGroup]) -> list[DeathGroup]:
    ids = [one.newest for one in groups]
    examples = {row.id: (row, last) async for row, last in read_dead(store, ids, TEXT_MAX)}
    return [_group(one, *examples[one.newest]) for one in groups if one.newest in examples]


def _group(group: DeadGroup, row: StoredJob, last: AttemptRow | None) -> DeathGroup:
    crash = None if last is None else last.crash
    return DeathGroup(
        group=group.fingerprint,
        number=group.number,
        first_at=group.first_at,
        last_at=group.last_at,
        job_id=row.id,
        task=row.task,
        queue=row.queue,
        kind=None if last is None else last.outcome,
        exception=None if crash is None else crash.exception,
        place=None if crash is None else find_place(crash),
        message="" if last is None else last.message,
    )


GROUP = Resource(
    "DeathGroup",
    DeathGroup,
    "group number first_at last_at job_id task queue kind exception place message",
)


GROUPS = {"groups": [GROUP], "looked_at": int, "full": bool, "more": bool}


def dead_groups_document(found: DeathGroups) -> Document:
    """Return groups of dead jobs as one JSON document."""
    groups = [GROUP.document(one) for one in found.groups]
    told = {"looked_at": found.looked_at, "full": found.full, "more": found.more}
    return {"schema": SCHEMA, "groups": groups, **told}


# -- shared deaths


class SharedDeath(msgspec.Struct, frozen=True):
    """A death of a process with several attempts in it: ``incident`` is the lowest of their tokens.
    ``waiting``: suspects that wait or run; ``settled``: jobs that are no longer suspects, or have
    ended."""

    incident: int
    waiting: list[Suspect]
    settled: list[Suspect]


def shared_deaths(suspects: Iterable[Suspect]) -> list[SharedDeath]:
    """Return shared deaths, the newest first."""
    by_incident: dict[int, list[Suspect]] = {}
    for one in suspects:
        by_incident.setdefault(one.incident, []).append(one)
    return [_shared_death(incident, those) for incident, those in by_incident.items()]


def _shared_death(incident: int, those: list[Suspect]) -> SharedDeath:
    waiting, settled = list[Suspect](), list[Suspect]()
    for one in sorted(those, key=lambda one: one.job_id):
        is_open = one.solo and one.state in {"queued", "running"}
        (waiting if is_open else settled).append(one)
    return SharedDeath(incident, waiting, settled)
