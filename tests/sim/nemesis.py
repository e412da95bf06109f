"""What happens to the world while faults are on.

A seed has only a few kinds of deeds: where everything happens, a fault that needs three of one
kind in a row never does. Half of the seeds have a *theme*: much of one kind of trouble.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.sim.schedules import change_a_schedule
from tests.sim.store_deeds import (
    crash_a_backend,
    end_a_session,
    fail_over,
    fill_the_disk,
    let_the_store_stand_still,
    outage,
    put_a_copy_back,
    restart_the_database,
    step_the_store_clock,
)
from tests.sim.worker_deeds import (
    Deed,
    add_worker,
    cancel,
    cut_the_power,
    cut_watchers_off,
    cut_worker_off,
    drain_worker,
    kill_runner,
    kill_tree,
    kill_watchers,
    kill_worker,
    leave_a_reply_unread,
    let_a_link_die,
    let_beats_get_stuck,
    pause_within_the_lease,
    requeue,
    slow_a_link,
    step_a_host_clock,
    stop_runner,
    stop_tree,
    stop_worker_alone,
    suspend_host,
    unlink_a_lock,
)

THEMES = {
    "pauses": ["worker stopped alone", "worker stopped alone", "tree stopped"],
    "cuts": ["worker cut off", "link dies slowly", "link dies slowly"],
    "outages": ["store away", "disk full"],
    "suspends": ["host suspended"],
    "presence": ["presence session ended", "database restarted"],
    "deaths": ["runner killed", "worker killed", "tree killed", "host without power"],
    "operators": ["job cancelled", "job requeued", "worker killed"],
    "calls": ["worker drained"],  # most of the trouble is with the calls themselves
    "slow disk": ["tree killed"],
    "near deaths": ["presence session ended", "beats stuck"],  # a beat comes just before the reap
    "beats": ["beats stuck"],
    "stuck replies": ["reply not read", "reply not read", "tree killed"],
    "backend crashes": ["backend crashed", "presence session ended"],
    "long pauses": ["worker paused within its lease"],
    "failovers": ["database failed over", "database failed over", "worker killed"],
    "slow links": ["link slow", "link slow", "worker killed"],
    "watchers": ["watchers killed", "watchers killed", "watchers cut off", "worker killed"],
    "schedules": ["tree killed", "worker killed", "store clock stepped", "schedule changed"],
    "last wills": ["worker killed", "worker killed", "worker stopped alone", "worker drained"],
    "copies": ["copy put back", "copy put back", "worker killed"],
    "stalls": ["store away", "store away", "store stands still", "disk full"],
    "relapses": ["worker killed", "tree killed", "tree stopped"],
}
LATER_EACH = 50
LATER = {  # the other seeds keep their themes
    43: "schedules", 37: "last wills", 27: "watchers", 23: "copies", 39: "stalls", 41: "relapses",
}  # fmt: skip
ONLY_THEMED = {"schedule changed", "watchers killed", "watchers cut off", "copy put back"}
ONE_AT_A_TIME = {"pauses", "cuts", "suspends", "beats", "long pauses"}  # and others to notice
LONG_LEASE = 90.0  # seconds: the world of long pauses, in which deadlines pass within a lease
LEASES = {"long pauses": LONG_LEASE}
SERVED = {
    "presence", "suspends", "near deaths", "stuck replies", "backend crashes", "failovers",
    "last wills", "watchers",
}  # fmt: skip


def theme_of(seed: int) -> str | None:
    """Return the theme of a seed; every second one has none."""
    if later := LATER.get(seed % LATER_EACH):
        return later
    names = [name for name in THEMES if name not in LATER.values()]
    return names[seed // 2 % len(names)] if seed % 2 else None


async def torment(world: Any, until: asyncio.Task[None]) -> None:
    """Do deeds now and then, until everything is enqueued and a while longer."""
    deeds = _chosen(world.chance) if world.theme is None else THEMES[world.theme]
    pace = 1.0 + 6.0 * world.chance()
    idle = 0.3 * world.chance()  # how often nothing happens
    slow = world.theme in ONE_AT_A_TIME
    least = world.loop.now + (4.0 if slow else 2.5) * world.lease
    end = None
    while end is None or world.loop.now < end:
        if end is None and until.done():
            end = max(least, world.loop.now + world.lease * world.chance())
        rest = 0.3 * world.lease if slow else 0.3
        await asyncio.sleep(rest + pace * world.chance() ** 2)
        name = deeds[int(world.chance() * len(deeds))]
        if world.chance() >= idle and DEEDS[name](world):
            world.plan.seen[name] += 1
            world.witness.note(f"NEMESIS {name}", {})


def _chosen(chance: Callable[[], float]) -> list[str]:
    share = 0.1 + 0.5 * chance()
    names = [name for name in DEEDS if name not in ONLY_THEMED]
    chosen = [name for name in names if chance() < share]
    return chosen or [names[int(chance() * len(names))]]


DEEDS: dict[str, Deed] = {
    "runner killed": kill_runner,
    "worker killed": kill_worker,
    "tree killed": kill_tree,
    "watchers killed": kill_watchers,
    "watchers cut off": cut_watchers_off,
    "worker drained": drain_worker,
    "tree stopped": stop_tree,
    "worker stopped alone": stop_worker_alone,
    "runner stopped": stop_runner,
    "worker cut off": cut_worker_off,
    "link dies slowly": let_a_link_die,
    "beats stuck": let_beats_get_stuck,
    "host suspended": suspend_host,
    "host without power": cut_the_power,
    "store away": outage,
    "store stands still": let_the_store_stand_still,
    "database restarted": restart_the_database,
    "backend crashed": crash_a_backend,
    "database failed over": fail_over,
    "copy put back": put_a_copy_back,
    "reply not read": leave_a_reply_unread,
    "worker paused within its lease": pause_within_the_lease,
    "link slow": slow_a_link,
    "presence session ended": end_a_session,
    "disk full": fill_the_disk,
    "host clock stepped": step_a_host_clock,
    "store clock stepped": step_the_store_clock,
    "lock file unlinked": unlink_a_lock,
    "job cancelled": cancel,
    "job requeued": requeue,
    "worker added": add_worker,
    "schedule changed": change_a_schedule,
}
