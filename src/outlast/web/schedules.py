"""``/schedules``: show when each schedule fires next; pause, resume, trigger."""

from __future__ import annotations

from starlette.responses import Response

from outlast.insight.acting import By, pause_schedule, trigger_schedule
from outlast.insight.queries import read_schedule
from outlast.insight.schedules import Schedule, next_ticks, schedule_of, spec_of
from outlast.store.protocol import Store
from outlast.store.schedules import ScheduleRow
from outlast.web.access import Right
from outlast.web.endpoint import Endpoint
from outlast.web.listing import read_name, require_name
from outlast.web.visit import Visit

ROWS = 100
TICKS_SHOWN = 10


async def show_schedules(visit: Visit) -> Response:
    """Show schedules by name."""
    after = read_name(visit.query, "after") or ""

    async def look(store: Store) -> list[ScheduleRow]:
        return await store.inspector.schedules(ROWS + 1, after)

    rows = await visit.ask(("schedules", after), look)
    shown = [(row, schedule_of(row)) for row in rows[:ROWS]]
    more = rows[ROWS - 1].name if len(rows) > ROWS else None
    return visit.show("schedules.html", rows=shown, after=after, more=more)


async def show_schedule(visit: Visit) -> Response:
    """Show one schedule with its next ticks."""
    name = require_name(visit.query, "name")
    row = await visit.ask(("schedule", name), lambda store: read_schedule(store, name))
    shown = schedule_of(row)
    return visit.show(
        "schedule.html",
        row=row,
        shown=shown,
        ticks=_ticks(row, shown, visit.now),
        done=visit.query.get("done", ""),
    )


def _ticks(row: ScheduleRow, shown: Schedule, now: float) -> list[tuple[float, str]]:
    """Return the next ticks, each with its local time in the schedule's zone."""
    if shown.malformed is not None:
        return []
    spec = spec_of(row)
    return [
        (at, spec.local(at).strftime("%a %d %b %H:%M:%S"))
        for at in next_ticks(row, now, TICKS_SHOWN)
    ]


async def pause(visit: Visit) -> Response:
    """Stop a schedule from firing until it is resumed."""
    return await _set(visit, paused=True)


async def resume(visit: Visit) -> Response:
    """Let a schedule fire again."""
    return await _set(visit, paused=False)


async def _set(visit: Visit, *, paused: bool) -> Response:
    name = (await visit.form()).get("name", "")

    async def act(store: Store) -> None:
        await pause_schedule(store, name, By(visit.access.user), paused=paused)

    await visit.act(act)
    return visit.go("/schedules/schedule", name=name)


async def trigger(visit: Visit) -> Response:
    """Enqueue the call of a schedule now."""
    name = (await visit.form()).get("name", "")

    async def act(store: Store) -> int:
        return (await trigger_schedule(store, name, visit.now, By(visit.access.user))).job_id

    return visit.go(f"/jobs/{await visit.act(act)}")


ENDPOINTS = [
    Endpoint("/schedules", show_schedules),
    Endpoint("/schedules/schedule", show_schedule),
    Endpoint("/schedules/pause", pause, Right.PAUSE, "POST"),
    Endpoint("/schedules/resume", resume, Right.PAUSE, "POST"),
    Endpoint("/schedules/trigger", trigger, Right.TRIGGER, "POST"),
]
