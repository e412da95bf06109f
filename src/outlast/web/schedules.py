"""``/schedules``: show when each schedule fires next; pause, resume, trigger."""

from __future__ import annotations

from functools import partial

from starlette.responses import Response

from outlast.insight.acting import By, pause_schedule, trigger_schedule
from outlast.insight.queries import read_schedule
from outlast.insight.schedules import Schedule, next_ticks, schedule_of, spec_of
from outlast.store.schedules import ScheduleRow
from outlast.web.access import Right
from outlast.web.endpoint import Endpoints
from outlast.web.listing import read_name, require_name
from outlast.web.visit import Visit

ENDPOINTS = Endpoints()
ROWS = 100
TICKS_SHOWN = 10


@ENDPOINTS.at("/schedules")
async def show_schedules(visit: Visit) -> Response:
    """Show schedules by name."""
    after = read_name(visit.query, "after") or ""
    rows = await visit.ask(
        ("schedules", after), lambda store: store.inspector.schedules(ROWS + 1, after)
    )
    shown = [(row, schedule_of(row)) for row in rows[:ROWS]]
    more = rows[ROWS - 1].name if len(rows) > ROWS else None
    return visit.show("schedules.html", rows=shown, after=after, more=more)


@ENDPOINTS.at("/schedules/schedule")
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


@ENDPOINTS.at("/schedules/pause", Right.PAUSE, "POST")
async def pause(visit: Visit, *, paused: bool = True) -> Response:
    """Stop a schedule from firing until it is resumed; or resume it."""
    name, by = (await visit.form()).get("name", ""), By(visit.access.user)
    await visit.act(lambda store: pause_schedule(store, name, by, paused=paused))
    return visit.go("/schedules/schedule", name=name)


ENDPOINTS.at("/schedules/resume", Right.PAUSE, "POST")(partial(pause, paused=False))


@ENDPOINTS.at("/schedules/trigger", Right.TRIGGER, "POST")
async def trigger(visit: Visit) -> Response:
    """Enqueue the call of a schedule now."""
    name, by = (await visit.form()).get("name", ""), By(visit.access.user)
    stored = await visit.act(lambda store: trigger_schedule(store, name, visit.now, by))
    return visit.go(f"/jobs/{stored.job_id}")
