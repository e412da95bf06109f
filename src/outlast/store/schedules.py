"""Defines schedules as a store keeps them: arguments and results of its verbs about them.

A row records up to when ticks are accounted for (``since``) and when a worker looks next
(``next_tick``). A tick has no row: firing it moves both forward, if they stand where they were
seen, and stores its job in the same commit (docs/decisions/0056). A change, or the end of a pause,
moves both on; the ticks in between are ``owed``, and the next worker that looks counts them
(``model/schedule_plan.py``). The text of a spec goes in and comes out unchanged.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256
from typing import Any

import msgspec

from outlast.errors import BadData, text_of
from outlast.model.schedule_plan import GRACE_SECONDS, CatchUp, Overlap
from outlast.store.values import NewJob

DUE_MAX = 500  # schedules in one page of due ones
DECLARED_SECONDS = 60.0  # a declaration not renewed for this long is no longer in use
RENEW_SECONDS = 10.0  # a younger declaration counts as new: no worker renews it
UNDECLARED_SECONDS = 7 * 86_400.0  # after which the row of an undeclared or deleted one goes
AHEAD_SECONDS = 86_400.0  # that a deleted schedule may be ahead of the clock and still count
OWED_MAX = 10_000  # characters of ticks that are to be counted
VERSIONS_KEPT = 20  # of a schedule of the code: versions that were replaced
VERSION_LENGTH = 32  # characters
FIRST_PAGE = (-1e16, "")


class Origin(StrEnum):
    """Where a schedule comes from: the code of workers, or a call at run time. A row of origin
    ``deleted`` reads as if it did not exist."""

    CODE = "code"
    RUN_TIME = "run_time"


DELETED = "deleted"  # instead of an origin


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule to put or declare. ``spec`` is JSON text; ``grace`` is in seconds. The spec, not a
    ``delay`` of the call, says when the job of a tick is due."""

    name: str
    call: NewJob
    spec: str
    overlap: Overlap = Overlap.SKIP
    catch_up: CatchUp = CatchUp.LAST
    grace: float = GRACE_SECONDS

    @property
    def version(self) -> str:
        """Identifies this declaration among all declarations of its name."""
        parts = (call_text(self.call), self.spec, self.overlap, self.catch_up, self.grace)
        return sha256(msgspec.json.encode(parts)).hexdigest()[:VERSION_LENGTH]


def call_text(call: NewJob) -> str:
    """Return a call as it is stored, without defaults. BadData for a text that no store holds."""
    plain = NewJob(task=call.task)
    fields = {name: getattr(call, name) for name in NewJob.__struct_fields__}
    told = {name: one for name, one in fields.items() if one != getattr(plain, name)}
    try:
        return msgspec.json.encode({"task": call.task, **told}).decode()
    except UnicodeEncodeError as error:
        raise BadData(f"not a text that can be stored: {text_of(error)}") from error


def columns_of(new: NewSchedule) -> dict[str, Any]:
    """Return the columns of a schedule that is put. BadData for a text that no store takes."""
    if "\0" in new.name or "\0" in new.spec:
        raise BadData("the name or the spec of a schedule holds a NUL character")
    return {
        "name": new.name,
        "call": call_text(new.call),
        "spec": new.spec,
        "overlap": new.overlap.value,
        "catch_up": new.catch_up.value,
        "grace": new.grace,
        "version": new.version,
    }


class Put(StrEnum):
    """The result of putting or declaring a schedule. ``same``: it stands as it is. ``older``:
    a newer declaration is in use. ``taken``: the name has the other origin. ``held``: another
    transaction holds its row; a worker declares it again.
    """

    CREATED = "created"
    CHANGED = "changed"
    SAME = "same"
    OLDER = "older"
    TAKEN = "taken"
    HELD = "held"


class Deleted(StrEnum):
    """Results of a delete. ``declared``: nothing was deleted, as an active worker's code has it."""

    DELETED = "deleted"
    DECLARED = "declared"
    UNKNOWN = "unknown"


class ScheduleFields(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a schedule that workers and people read. Instants are seconds since 1970,
    texts are in their stored form. ``since``: every tick up to it is accounted for.
    ``declared_at``: when a worker last declared it; None: it was put at run time."""

    name: str
    call: str
    spec: str
    overlap: str
    catch_up: str
    grace: float
    version: str
    revision: int
    since: float
    declared_at: float | None = None


class DueSchedule(ScheduleFields, frozen=True, kw_only=True):
    """A due schedule, as a worker fires it."""

    next_tick: float
    owed: str


class DueSchedules(msgspec.Struct, frozen=True, kw_only=True):
    """A page of due schedules, the longest due first. ``now``: the store's clock, in seconds since
    1970; ``next_tick``: when the first of the others is due."""

    now: float
    schedules: list[DueSchedule]
    next_tick: float | None = None


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with a schedule that stands at ``revision`` and ``next_tick``. ``jobs``: of its
    ticks, in order, each with its tick in its policy. Then every tick up to ``since`` is accounted
    for, ``missed`` of them as missed; ``then``: when to look next (None: never). ``owed``: earlier
    ticks that are still to be counted.
    """

    name: str
    revision: int
    next_tick: float
    since: float
    then: float | None
    jobs: list[NewJob] = []
    missed: int = 0
    owed: str = ""


class FireAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a firing. Not ``won``: the schedule no longer stood there, or its row is held.
    ``jobs``: their ids; None: the tick was skipped, since ``in_the_way``, if it is still
    unfinished, has its key."""

    won: bool
    jobs: list[int | None] = []
    in_the_way: int | None = None


def fired_columns(firing: Firing, answer: FireAnswer) -> dict[str, Any]:
    """Return the columns that a firing that was won changes on its schedule's row."""
    ticks = [job.policy.tick for job in firing.jobs]
    jobs = list(zip(ticks, answer.jobs, strict=True))
    fired = [(tick, job_id) for tick, job_id in jobs if job_id is not None]
    skipped = [tick for tick, job_id in jobs if job_id is None]
    last_tick, last_job = fired[-1] if fired else (None, None)
    return {
        "name": firing.name,
        "since": firing.since,
        "then": firing.then,
        "last_tick": last_tick,
        "last_job": last_job,
        "fired": len(fired),
        "skipped": len(skipped),
        "missed": firing.missed,
        "last_skip": skipped[-1] if skipped else None,
        "in_the_way": answer.in_the_way,
        "owed": firing.owed,
    }


class ScheduleRow(ScheduleFields, frozen=True, kw_only=True):
    """A schedule as it is read. ``next_tick``: when a worker looks next; equal to ``since`` right
    after a change. ``declared``: whether a worker still declared it when it was last due.
    ``fired``, ``skipped``, ``missed`` count ticks."""

    origin: str
    paused: bool
    declared: bool
    next_tick: float | None
    last_tick: float | None = None
    last_job: int | None = None
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    last_skip: float | None = None
    last_skip_job: int | None = None
