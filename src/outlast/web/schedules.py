"""``/schedules`` and ``/schedule?name=``: when each fires next; pause, resume, trigger."""

from __future__ import annotations

from starlette.responses import Response

from outlast.insight.queries import no_schedule, read_schedule
from outlast.insight.schedules import Schedule, job_now, next_ticks, schedule_of, spec_of
from outlast.store.protocol import Store
from outlast.store.schedules import ScheduleRow
from outlast.web.access import Right
from outlast.web.endpoint import Endpoint
from outlast.web.listing import read_name
from outlast.web.queues import required
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
    name = required(visit, "name")
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
    """Return the next ticks, each with what the clocks of its zone will show."""
    if shown.malformed is not None:
        return []
    spec = spec_of(row)
    return [
        (at, spec.local(at).strftime("%a %d %b %H:%M:%S"))
        for at in next_ticks(row, now, TICKS_SHOWN)
    ]


async def pause(visit: Visit) -> Response:
    """Fire no tick until it is resumed."""
    return await _set(visit, paused=True)


async def resume(visit: Visit) -> Response:
    """Fire ticks again."""
    return await _set(visit, paused=False)


async def _set(visit: Visit, *, paused: bool) -> Response:
    name = (await visit.form()).get("name", "")

    async def act(store: Store) -> None:
        if not await store.pause_schedule(name, paused=paused):
            raise no_schedule(name)

    await visit.act(act)
    return visit.go("/schedules/schedule", name=name)


async def trigger(visit: Visit) -> Response:
    """Enqueue the call of a schedule now."""
    name = (await visit.form()).get("name", "")

    async def act(store: Store) -> int:
        row = await read_schedule(store, name)
        (made,) = await store.enqueue([job_now(row, visit.now)])
        return made.job_id

    return visit.go(f"/jobs/{await visit.act(act)}")


ENDPOINTS = [
    Endpoint("/schedules", show_schedules),
    Endpoint("/schedules/schedule", show_schedule),
    Endpoint("/schedules/pause", pause, Right.PAUSE, "POST"),
    Endpoint("/schedules/resume", resume, Right.PAUSE, "POST"),
    Endpoint("/schedules/trigger", trigger, Right.REQUEUE, "POST"),
]
