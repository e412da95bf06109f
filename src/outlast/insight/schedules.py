"""Show a schedule to programs and screens, and make the jobs of triggers and backfills.

Pure: it turns a row of the store into plain values, documents and jobs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from outlast.errors import ConfigError, UsageError, text_of
from outlast.insight.resource import SCHEMA, Document, Resource
from outlast.insight.row import moment, read_payload
from outlast.model.job import BACKFILL_KEY, TICKS_KEY
from outlast.model.schedule import Spec
from outlast.model.schedule_plan import Overlap
from outlast.payload.payloads import PLAIN, Payloads
from outlast.store.schedules import ScheduleRow
from outlast.store.values import NewJob

BACKFILL_MAX = 10_000  # jobs of one backfill
NEXT_MAX = 1_000  # ticks that are shown
_WHEN = ("cron", "every", "zone", "jitter")
_SAME = {"name", "overlap", "catch_up", "grace", "origin", "paused", "declared"}
_SAME |= {"last_job", "fired", "skipped", "missed", "last_skip_job"}


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as read from the store. Times are aware datetimes in UTC.

    Attributes:
        name: its name.
        task, queue, args: what each tick enqueues; ``args`` by name, as plain JSON.
        cron, every, zone, jitter: when; ``every`` and ``jitter`` in seconds.
        overlap: ``skip`` or ``allow``; ``catch_up``: ``last``, ``all`` or ``none``.
        grace: seconds by which a tick may be late; a later tick is missed.
        origin: ``code`` or ``run_time``.
        paused: whether it was paused by a person.
        declared: for a schedule of the code, whether an active worker's code declares it.
        next_tick: the first tick that has not been handled, in the past if it is late; None while
            the schedule is paused or not declared, or has no more ticks.
        last_tick: the last tick that has fired; ``last_job``: its job's id.
        fired, skipped, missed: the number of such ticks. ``last_skip``: the last skipped tick;
            ``last_skip_job``: the unfinished job because of which it was skipped.
        malformed: why this host cannot read it, or None. Unreadable fields are None: ``cron``,
            ``every``, ``zone`` and ``jitter``, or ``task``, ``queue`` and ``args``.
    """

    name: str
    task: str | None
    queue: str | None
    args: Any
    cron: str | None
    every: int | None
    zone: str | None
    jitter: float | None
    overlap: str
    catch_up: str
    grace: float
    origin: str
    paused: bool
    declared: bool
    next_tick: datetime | None
    last_tick: datetime | None
    last_job: int | None
    fired: int
    skipped: int
    missed: int
    last_skip: datetime | None
    last_skip_job: int | None
    malformed: str | None = None

    @property
    def state(self) -> str:
        """The schedule's state: ``active``, ``paused``, ``undeclared`` or ``malformed``."""
        if self.malformed is not None:
            return "malformed"
        if self.paused:
            return "paused"
        return "active" if self.declared else "undeclared"


def schedule_of(row: ScheduleRow, payloads: Payloads = PLAIN) -> Schedule:
    """Return a schedule of the store as a program sees it. Arguments that ``payloads`` cannot read
    are shown by their encoding."""
    spec, call, malformed = _read(row)
    when: dict[str, Any] = {name: getattr(spec, name, None) for name in _WHEN}
    runs = malformed is None and row.declared and not row.paused
    return Schedule(
        **{name: getattr(row, name) for name in _SAME},
        **when,
        task=None if call is None else call.task,
        queue=None if call is None else call.queue,
        args=None if call is None else read_payload("args", call.args, payloads),
        next_tick=moment(spec.next_after(row.since)) if spec and runs else None,
        last_tick=moment(row.last_tick),
        last_skip=moment(row.last_skip),
        malformed=malformed,
    )


def find_malformed(row: ScheduleRow) -> str | None:
    """Return why this program cannot read a schedule of the store; None: it can."""
    return _read(row)[2]


def _read(row: ScheduleRow) -> tuple[Spec | None, NewJob | None, str | None]:
    """Return spec and call, each None if it cannot be read, and the reason."""
    spec = call = None
    wrong: list[str] = []
    try:
        spec = spec_of(row)
    except ConfigError as error:
        wrong.append(text_of(error))
    try:
        call = call_of(row)
    except UsageError as error:
        wrong.append(text_of(error))
    return spec, call, "; ".join(wrong) or None


def spec_of(row: ScheduleRow) -> Spec:
    """Return when the schedule fires; ConfigError if this host cannot read that."""
    try:
        return msgspec.json.decode(row.spec, type=Spec)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ConfigError(f"its spec cannot be read: {text_of(error)}") from error


def call_of(row: ScheduleRow) -> NewJob:
    """Return what each tick enqueues; UsageError if this program cannot read it."""
    try:
        return msgspec.json.decode(row.call, type=NewJob)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"its call cannot be read: {text_of(error)}") from error


def next_ticks(row: ScheduleRow, now: float, count: int) -> list[float]:
    """Return the next ticks, whether or not the schedule is paused."""
    return list(islice(spec_of(row).ticks_after(now), count))


def job_now(row: ScheduleRow, now: float) -> NewJob:
    """Return the job of a trigger: due at once, with this second as its tick. With
    ``overlap="skip"`` it has the key of the ticks' jobs, so while the job of a tick is unfinished,
    the trigger returns that job and stores none."""
    tick = float(math.floor(now))
    key = f"{TICKS_KEY}{row.name}" if row.overlap == Overlap.SKIP else None
    return _job_at(row, tick, key)


def jobs_between(row: ScheduleRow, start: float, end: float) -> list[NewJob]:
    """Return the jobs of a backfill: one for each tick with ``start <= tick < end``, all due at
    once. UsageError for more than BACKFILL_MAX of them."""
    return [
        _job_at(row, tick, f"{BACKFILL_KEY}{row.name}:{tick:.0f}")
        for tick in ticks_between(row, start, end)
    ]


def ticks_between(row: ScheduleRow, start: float, end: float) -> list[float]:
    """Return the ticks with ``start <= tick < end``; UsageError for more than BACKFILL_MAX."""
    ticks = list(islice(spec_of(row).ticks_between(start, end), BACKFILL_MAX + 1))
    if len(ticks) > BACKFILL_MAX:
        raise UsageError(
            f"schedule {row.name!r} has more than {BACKFILL_MAX} ticks in that time: backfill it in"
            " parts"
        )
    return ticks


def _job_at(row: ScheduleRow, tick: float, key: str | None) -> NewJob:
    call = call_of(row)
    policy = msgspec.structs.replace(call.policy, schedule=row.name, tick=tick, backfill=True)
    own = call.key if key is None else key
    return msgspec.structs.replace(call, policy=policy, key=own, delay=0.0, run_at=None)


SCHEDULE = Resource("Schedule", Schedule, " ".join((*Schedule.__struct_fields__, "state")))


def schedule_document(row: ScheduleRow, ticks: Sequence[float] = ()) -> Document:
    """Return all about one schedule as one JSON document, with its next ticks."""
    told = [
        {"utc": msgspec.to_builtins(moment(at)), "local": spec_of(row).local(at).isoformat()}
        for at in ticks
    ]
    return {"schema": SCHEMA, **SCHEDULE.document(schedule_of(row)), "next_ticks": told}


def schedules_document(rows: Sequence[ScheduleRow]) -> Document:
    """Return a list of schedules as one JSON document."""
    return {"schema": SCHEMA, "schedules": [SCHEDULE.document(schedule_of(row)) for row in rows]}


def falling_into_changes(rows: Sequence[ScheduleRow], now: float) -> Iterator[tuple[str, str]]:
    """Yield the name of each schedule that loses, merges or repeats ticks when the clocks of its
    zone change within a year, with a sentence about it."""
    for row in rows:
        if (told := _disturbed(row, now)) is not None:
            yield row.name, told


def _disturbed(row: ScheduleRow, now: float) -> str | None:
    try:
        spec = spec_of(row)
    except ConfigError:
        return None
    parts = [
        f"on {spec.local(one.change):%Y-%m-%d} {_WORDS[one.kind]}"
        f" {', '.join(f'{wall:%H:%M}' for wall in one.walls[:4])}"
        for one in spec.disturbances(now)
    ]
    return f"cron {spec.cron!r} in {spec.zone}: {'; '.join(parts)}" if parts else None


_WORDS = {"skipped": "it skips", "merged": "it merges into one", "repeated": "it repeats"}
