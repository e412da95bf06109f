"""Schedules in one line each."""

from __future__ import annotations

from typing import Any

import msgspec

from outlast.model.job import Policy
from outlast.model.schedule_plan import Overlap
from outlast.store.protocol import Store
from outlast.store.schedules import (
    DueSchedule,
    FireAnswer,
    Firing,
    NewSchedule,
    Origin,
    Put,
    ScheduleRow,
)
from outlast.store.values import NewJob
from tests.conformance.kit import job

SPEC = '{"every":60}'
LATER = 1e9  # seconds


def schedule(name: str = "nightly", **fields: Any) -> NewSchedule:
    """A schedule of the one known task."""
    values: dict[str, Any] = {"name": name, "call": job(), "spec": SPEC}
    return NewSchedule(**(values | fields))


def tick_job(due: DueSchedule, tick: float, **fields: Any) -> NewJob:
    """The job of a tick, as a worker makes it."""
    call = msgspec.json.decode(due.call, type=NewJob)
    policy = msgspec.structs.replace(call.policy, schedule=due.name, tick=tick)
    key = f"outlast:schedule:{due.name}" if due.overlap == Overlap.SKIP else call.key
    values: dict[str, Any] = {"policy": policy, "key": key, "run_at": tick}
    return msgspec.structs.replace(call, **(values | fields))


def firing(due: DueSchedule, *ticks: float, **fields: Any) -> Firing:
    """What fires these ticks, the last one accounted for, and nothing for a long time."""
    values: dict[str, Any] = {
        "name": due.name,
        "revision": due.revision,
        "next_tick": due.next_tick,
        "since": max((due.since, *ticks)),
        "then": due.next_tick + LATER,
        "jobs": [tick_job(due, tick) for tick in ticks],
    }
    return Firing(**(values | fields))


async def put_one(store: Store, *args: Any, **fields: Any) -> Put:
    """Put one schedule."""
    (answer,) = await store.put_schedules([schedule(*args, **fields)])
    return answer


async def declare(store: Store, *args: Any, **fields: Any) -> Put:
    """Say that a worker's code declares a schedule."""
    (answer,) = await store.put_schedules([schedule(*args, **fields)], Origin.CODE)
    return answer


async def due_one(store: Store) -> DueSchedule:
    """Return the one schedule that is due."""
    (due,) = (await store.due_schedules()).schedules
    return due


async def fire_one(store: Store, one: Firing) -> FireAnswer:
    """Fire once."""
    (answer,) = await store.fire([one])
    return answer


async def row_of(store: Store, name: str = "nightly") -> ScheduleRow:
    """Return a schedule that is there."""
    row = await store.inspector.schedule(name)
    assert row is not None
    return row


def policy_at(tick: float, name: str = "nightly") -> Policy:
    """The policy of a tick's job."""
    return Policy(schedule=name, tick=tick)
