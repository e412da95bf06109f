"""``outlast schedules``: show, pause, resume, trigger, backfill and delete schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

from outlast.base.clock import SYSTEM
from outlast.base.text import ago, count_of, due, line, pretty, span, stamp
from outlast.cli.connect import me, on_store, read_store
from outlast.cli.options import Json, Url, flag, make_group, option
from outlast.cli.show import FIXED, Row, console, print_json, print_table, word
from outlast.errors import UsageError
from outlast.insight.acting import delete_schedule, note_backfill, pause_schedule, trigger_schedule
from outlast.insight.queries import read_schedule, read_schedules
from outlast.insight.schedules import (
    NEXT_MAX,
    Schedule,
    jobs_between,
    next_ticks,
    schedule_document,
    schedule_of,
    schedules_document,
    spec_of,
)
from outlast.store.schedules import ScheduleRow
from outlast.store.values import NewJob

if TYPE_CHECKING:
    from outlast.store.protocol import Store

NAME_MAX = 60
NEXT_SHOWN = 10
ZONE_AT_END = "%Y-%m-%d %H:%M:%S %Z"

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.")]
Names = Annotated[list[str], typer.Argument(metavar="NAME…", help="The schedules.")]

HELP = """List schedules, or pause, resume, trigger, backfill or delete some.

A schedule has ticks, its planned instants. A tick is fired (its job is enqueued), skipped (the job
of an earlier tick is unfinished) or missed (it is late by more than the schedule's grace).

Examples:
    outlast schedules
    outlast schedules show nightly --next 5
    outlast schedules pause nightly
    outlast schedules backfill nightly --from 2026-03-01 --to 2026-03-08 --dry-run
"""


def list_(url: Url = None, json: Json = False) -> None:
    """List all schedules by name.

    Schedules of code that no worker declares any longer are shown as undeclared, and removed after
    seven days.

    Examples:
        outlast schedules list
        outlast schedules list --json
    """
    rows = read_store(url, read_schedules)
    if json:
        print_json(schedules_document(rows))
        return
    now = SYSTEM.wall()
    shown: list[Row] = [
        {
            "NAME": line(one.name, NAME_MAX * 4),
            "STATE": word(one.state),
            "NEXT": "" if one.next_tick is None else due(one.next_tick.timestamp(), now),
            "WHEN": line(_when(one), NAME_MAX),
            "TASK": line(one.task, NAME_MAX),
            "QUEUE": line(one.queue, NAME_MAX),
            "LAST": ago(row.last_tick, now),
            "JOB": "" if row.last_job is None else str(row.last_job),
            "FIRED": str(row.fired),
            "SKIPPED": str(row.skipped or ""),
            "MISSED": str(row.missed or ""),
            "FROM": line(one.origin.replace("_", " ")),
        }
        for row, one in ((row, schedule_of(row)) for row in rows)
    ]
    none = "no schedules: a worker whose code has app.schedule(…) declares them"
    print_table(shown, none, FIXED - {"WHEN"})


def show(
    name: Name,
    count: Annotated[
        int, option("--next", "N", "Show N ticks to come.", min=0, max=NEXT_MAX)
    ] = NEXT_SHOWN,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show everything about one schedule, and its next ticks in its zone and in UTC.

    For a paused schedule it shows the ticks that it would have.

    Examples:
        outlast schedules show nightly
        outlast schedules show nightly --next 3 --json
    """
    row = read_store(url, lambda store: read_schedule(store, name))
    shown = schedule_of(row)
    ticks = [] if shown.malformed else next_ticks(row, SYSTEM.wall(), count)
    if json:
        print_json(schedule_document(row, ticks))
        return
    out = console()
    for label, text in _fields(row, shown):
        out.print(f"{label:<10}{text}", soft_wrap=True)
    if ticks:
        out.print("\nnext ticks")
    for tick in ticks:
        out.print(f"  {_local(row, tick):<32} {stamp(tick)}")


def _fields(row: ScheduleRow, shown: Schedule) -> list[tuple[str, str]]:
    now = SYSTEM.wall()
    overlap, catch_up = line(row.overlap, NAME_MAX), line(row.catch_up, NAME_MAX)
    fields = [
        ("schedule", f"{line(shown.name, 200)}  {shown.state}"),
        ("when", line(shown.malformed or _when(shown), 400)),
        ("calls", _call(row, shown)),
        ("rules", f"overlap {overlap}, catch up {catch_up}, grace {span(row.grace)}"),
        ("origin", _origin(shown)),
        ("ticks", f"{row.fired} fired, {row.skipped} skipped, {row.missed} missed"),
    ]
    if row.last_tick is not None:
        fields.append(
            ("last", f"{ago(row.last_tick, now)}, {stamp(row.last_tick)}, job {row.last_job}")
        )
    if row.last_skip is not None:
        behind = f" behind job {row.last_skip_job}" if row.last_skip_job else ""
        fields.append(("skipped", f"{ago(row.last_skip, now)}, {stamp(row.last_skip)}{behind}"))
    return fields


def _call(row: ScheduleRow, shown: Schedule) -> str:
    if shown.task is None:
        return " ".join(pretty(row.call, 1))
    args = line(dumps(shown.args, ensure_ascii=False), 200)
    return f"{line(shown.task, 80)} in queue {line(shown.queue or '', 80)}, {args}"


def _origin(shown: Schedule) -> str:
    if shown.origin == "run_time":
        return "put at run time"
    if shown.declared:
        return "declared by code"
    return "declared by code that no live worker has: it fires once a worker with that code starts"


def _when(shown: Schedule) -> str:
    spread = f", up to {span(shown.jitter)} later" if shown.jitter else ""
    if shown.every is not None:
        return f"every {span(shown.every)}{spread}"
    return "" if shown.cron is None else f"{shown.cron} in {shown.zone}{spread}"


def pause(names: Names, url: Url = None) -> None:
    """Stop schedules from firing until they are resumed.

    Their jobs continue. This works for schedules of code, too.

    Examples:
        outlast schedules pause nightly
    """
    _pause(url, names, paused=True)


def resume(names: Names, url: Url = None) -> None:
    """Let paused schedules fire again.

    They continue with the first tick after now; ticks that passed during the pause get no job.

    Examples:
        outlast schedules resume nightly
    """
    _pause(url, names, paused=False)


def _pause(url: str | None, names: Sequence[str], *, paused: bool) -> None:
    async def work(store: Store) -> None:
        for name in names:
            await pause_schedule(store, name, me(), paused=paused)
            print(f"schedule {line(name, 200)} is {'paused' if paused else 'resumed'}", flush=True)

    on_store(url, work)


def trigger(name: Name, url: Url = None, json: Json = False) -> None:
    """Enqueue a schedule's call now, even while it is paused.

    With overlap skip, if the job of an earlier tick is unfinished, the command enqueues nothing and
    names that job.

    Examples:
        outlast schedules trigger nightly
    """
    stored = on_store(url, lambda store: trigger_schedule(store, name, SYSTEM.wall(), me()))
    if json:
        print_json({"schema": 1, "id": stored.job_id, "created": stored.created})
    elif stored.created:
        print(f"job {stored.job_id} is enqueued")
    else:
        print(f"job {stored.job_id} of an earlier tick is unfinished: nothing was enqueued")


def backfill(
    name: Name,
    start: Annotated[str, option("--from", "TIME", "The first instant, such as 2026-03-01.")],
    end: Annotated[str, option("--to", "TIME", "The end, which is not included.")],
    dry_run: Annotated[bool, flag("--dry-run", "Only show the ticks.")] = False,
    url: Url = None,
) -> None:
    """Enqueue a job for each tick in a span of time, whether or not those ticks had jobs.

    Times are in ISO 8601. Without an offset they are local times in the schedule's zone. All jobs
    are due at once, and none of them waits for another. At most 10,000 at a time.

    Examples:
        outlast schedules backfill nightly --from 2026-03-01 --to 2026-03-08 --dry-run
        outlast schedules backfill nightly --from 2026-03-01T12:00Z --to 2026-03-02T12:00Z
    """

    async def work(store: Store) -> None:
        row = await read_schedule(store, name)
        jobs = jobs_between(row, _time(row, "--from", start), _time(row, "--to", end))
        if not dry_run:
            await _enqueue(store, jobs, name)
            return
        for job in jobs:
            assert job.policy.tick is not None
            print(f"{_local(row, job.policy.tick):<32} {stamp(job.policy.tick)}")
        print(f"{count_of(len(jobs), 'job')} would be enqueued")

    on_store(url, work, dry_run=dry_run)


async def _enqueue(store: Store, jobs: Sequence[NewJob], name: str) -> None:
    from outlast.store.batches import split

    await note_backfill(store, name, len(jobs), me())
    created = 0
    for part in split(jobs, lambda job: (1, len(job.args))):
        created += sum(one.created for one in await store.enqueue(part))
    there = len(jobs) - created
    unfinished = f", {there} of an earlier backfill are unfinished" if there else ""
    print(f"{count_of(created, 'job')} enqueued{unfinished}")


def _time(row: ScheduleRow, flag: str, text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{flag} takes a time such as 2026-03-01 or 2026-03-01T12:00Z") from None
    zone = spec_of(row).local(0).tzinfo
    return (at if at.utcoffset() is not None else at.replace(tzinfo=zone)).timestamp()


def _local(row: ScheduleRow, tick: float) -> str:
    return spec_of(row).local(tick).strftime(f"%a {ZONE_AT_END}")


def delete(names: Names, url: Url = None) -> None:
    """Delete schedules that were put at run time, or that no code declares any longer.

    Their jobs remain. To delete a schedule that code declares, change the code; `outlast schedules
    pause` stops it.

    Examples:
        outlast schedules delete digest:acme
    """

    async def work(store: Store) -> None:
        for name in names:
            await delete_schedule(store, name, by=me())
            print(f"schedule {line(name, 200)} is deleted", flush=True)

    on_store(url, work)


GROUP = make_group(HELP, list_, show, pause, resume, trigger, backfill, delete, default=list_)
