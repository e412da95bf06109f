"""``/schedules``: show when each schedule fires next."""

from __future__ import annotations

from starlette.responses import Response

from outlast.insight.queries import read_schedule
from outlast.insight.schedules import Schedule, next_ticks, schedule_of, spec_of
from outlast.store.schedules import ScheduleRow
from outlast.web.endpoint import Endpoints
from outlast.web.visit import Visit

ENDPOINTS = Endpoints()
ROWS = 100
TICKS_SHOWN = 10


@ENDPOINTS.at("/schedules")
async def show_schedules(visit: Visit) -> Response:
    """Show schedules by name."""
    after = visit.read_name("after") or ""
    rows = await visit.ask(
        ("schedules", after), lambda store: store.inspector.schedules(ROWS + 1, after)
    )
    shown = [(row, schedule_of(row)) for row in rows[:ROWS]]
    more = rows[ROWS - 1].name if len(rows) > ROWS else None
    return visit.show("schedules.html", rows=shown, after=after, more=more)


@ENDPOINTS.at("/schedules/schedule")
async def show_schedule(visit: Visit) -> Response:
    """Show one schedule with its next ticks."""
    name = visit.require_name("name")
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
