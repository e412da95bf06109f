"""Makes the plan of a due schedule's ticks, and their jobs. Pure."""

from __future__ import annotations

import math

import msgspec

from outlast.model.job import TICKS_KEY
from outlast.model.schedule import Spec
from outlast.model.schedule_owed import count_owed
from outlast.model.schedule_plan import CatchUp, Overlap, TickPlan, plan
from outlast.store.schedules import DueSchedule, Firing
from outlast.store.values import NewJob


def firing_of(due: DueSchedule, now: float) -> Firing:
    """Return the firing of a due schedule, by the store's clock. An unreadable text raises."""
    spec = _spec_of(due.spec)
    owed, left = count_owed(due.owed, _spec_of)
    if left:
        # count a part of the owed ticks and leave the rest to the next run: it is due at once, with
        # a new next_tick, so that no worker that has seen the old one counts the part again
        return Firing(
            name=due.name,
            revision=due.revision,
            next_tick=due.next_tick,
            since=due.since,
            then=math.nextafter(due.next_tick, math.inf),
            missed=owed,
            owed=left,
        )
    call = msgspec.json.decode(due.call, type=NewJob)
    what: TickPlan = plan(spec, due.since, now, CatchUp(due.catch_up), due.grace)
    overlap = Overlap(due.overlap)
    return Firing(
        name=due.name,
        revision=due.revision,
        next_tick=due.next_tick,
        since=what.since,
        then=what.then,
        jobs=[_job_of(due.name, call, spec, tick, overlap) for tick in what.ticks],
        missed=owed + what.missed,
    )


def _spec_of(text: str) -> Spec:
    return msgspec.json.decode(text, type=Spec)


def _job_of(name: str, call: NewJob, spec: Spec, tick: float, overlap: Overlap) -> NewJob:
    return msgspec.structs.replace(
        call,
        policy=msgspec.structs.replace(call.policy, schedule=name, tick=tick),
        key=f"{TICKS_KEY}{name}" if overlap is Overlap.SKIP else call.key,
        run_at=spec.due(name, tick) + call.delay,
        delay=0.0,
    )
