"""What happens to the world while faults are on.

A seed has only a few kinds of deeds: where everything happens, a fault that needs three of one
kind in a row never does. Half of the seeds have a *theme*: much of one kind of trouble.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.sim.loop import Process

Deed = Callable[[Any], bool]


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
}
ONE_AT_A_TIME = {"pauses", "cuts", "suspends", "beats", "long pauses"}  # and others to notice
LONG_LEASE = 90.0  # seconds: the world of long pauses, in which deadlines pass within a lease
LEASES = {"long pauses": LONG_LEASE}
SERVED = {
    "presence", "suspends", "near deaths", "stuck replies", "backend crashes", "failovers",
}  # fmt: skip


def theme_of(seed: int) -> str | None:
    """Return the theme of a seed; every second one has none."""
    names = list(THEMES)
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
    chosen = [name for name in DEEDS if chance() < share]
    return chosen or [list(DEEDS)[int(chance() * len(DEEDS))]]


def _one(world: Any, things: list[Any]) -> Any:
    return things[int(world.chance() * len(things))] if things else None


def _a_worker(world: Any) -> Any:
    """Return a worker that is not in trouble; mostly not the last such one."""
    well = [each for each in world.alive() if each.well_for > 0]
    return _one(world, well) if len(well) > 1 or world.chance() < 0.2 else None


def _a_worker_in_trouble(world: Any, why: str) -> Any:
    """Return a worker that from now on has trouble of its own, or None."""
    worker = _a_worker(world)
    if worker is not None:
        worker.is_unwell(why)
    return worker


def _about_a_lease(world: Any) -> float:
    """Return seconds, mostly a little more or less than a lease."""
    if world.chance() < 0.6:
        return float(world.lease * (0.8 + 0.8 * world.chance()))
    return float(0.5 + 2.5 * world.lease * world.chance() ** 2)


def _kill_runner(world: Any) -> bool:
    runner = _one(world, [each for worker in world.alive() for each in worker.runners])
    if runner is None:
        return False
    runner.killed_from_outside()
    return True


def _kill_worker(world: Any) -> bool:
    worker = _one(world, world.alive())
    if worker is None:
        return False
    worker.kill()
    world.replace()
    return True


def _kill_tree(world: Any) -> bool:
    worker = _one(world, world.alive())
    if worker is None:
        return False
    worker.kill_tree()
    world.replace()
    return True


def _drain_worker(world: Any) -> bool:
    worker = _a_worker(world)
    if worker is None:
        return False
    worker.drain()
    world.replace()
    return True


def _stop_tree(world: Any) -> bool:
    worker = _a_worker(world)
    if worker is None:
        return False
    worker.stop(_about_a_lease(world), tree=True)
    return True


def _stop_worker_alone(world: Any) -> bool:
    worker = _a_worker(world)
    if worker is None:
        return False
    worker.stop(_about_a_lease(world), tree=False)
    return True


def _stop_runner(world: Any) -> bool:
    runner = _one(world, [each for worker in world.alive() for each in worker.runners])
    if runner is None:
        return False
    process: Process = runner.process
    process.stops += 1

    def go_on() -> None:
        process.stops = max(0, process.stops - 1)

    world.loop.call_later(0.5 + 10.0 * world.chance(), go_on)
    return True


def _cut_worker_off(world: Any) -> bool:
    worker = _a_worker_in_trouble(world, "cut off")
    if worker is None:
        return False
    worker.cut_until = world.loop.now + _about_a_lease(world)
    return True


def _let_a_link_die(world: Any) -> bool:
    worker = _a_worker_in_trouble(world, "its link dies")
    if worker is None:
        return False
    worker.link_dies = True
    return True


def _let_beats_get_stuck(world: Any) -> bool:
    worker = _a_worker_in_trouble(world, "its beats are stuck")
    if worker is None:
        return False
    worker.beats_stuck_until = world.loop.now + _about_a_lease(world)
    return True


def _suspend_host(world: Any) -> bool:
    """Where there are several hosts, one stays awake; a network comes back later than its host."""
    awake = [each for each in world.hosts if not each.suspended and each.workers()]
    host = _one(world, awake)
    if host is None or (len(world.hosts) > 1 and len(awake) == 1):
        return False
    seconds = _about_a_lease(world)
    host.suspend(seconds)
    if len(world.hosts) > 1 and world.chance() < 0.5:
        back_at = world.loop.now + seconds + 0.5 * world.lease * world.chance()
        for each in host.workers():
            each.cut_until = max(each.cut_until, back_at)
    return True


def _cut_the_power(world: Any) -> bool:
    host = _one(world, [each for each in world.hosts if each.workers()])
    if host is None:
        return False
    count = len(host.workers())
    host.cut_the_power()
    for _ in range(count):
        world.replace()
    return True


def _outage(world: Any) -> bool:
    world.plan.outage_until = world.loop.now + _about_a_lease(world)
    return True


def _let_the_store_stand_still(world: Any) -> bool:
    if not _beats_have_landed(world):
        return False
    world.plan.still_until = world.loop.now + 0.6 * world.lease * world.chance()
    return True


def _beats_have_landed(world: Any) -> bool:
    """Return whether beats that were due at the end of the last such fault have arrived."""
    return bool(world.loop.now >= max(world.plan.still_until, world.plan.moved_until) + 2.0)


def _leave_a_reply_unread(world: Any) -> bool:
    """A host is lost in the middle of a claim's reply: the server waits for it to be read, and
    meanwhile holds the worker's row, so that each reap of that worker fails."""
    worker = _one(world, [each for each in world.alive() if each.worker is not None])
    if worker is None or world.database is None or len(world.alive()) < 2:
        return False
    worker.row_held_until = world.loop.now + 10 * world.lease * world.chance()
    worker.kill_tree(linger=worker.row_held_until - world.loop.now)
    world.replace()
    return True


def _crash_a_backend(world: Any) -> bool:
    """The server ends all sessions, and with them all locks, and goes on as the same server."""
    if world.database is None:
        return False
    world.database.crash()
    world.plan.outage_until = world.loop.now + 0.5 * world.chance()
    if _beats_have_landed(world):
        _move_the_database(world)
    return True


def _fail_over(world: Any) -> bool:
    """A standby that lags is promoted: what was committed in the last moments is lost, mostly with
    the registration of a worker, whose id another one is given then."""
    if world.database is None or world.database.fails_over or world.plan.slow_disk > 0:
        return False  # a statement that is on its way would be done on the other server
    world.database.fails_over = True
    kept = world.disk.copy()
    late = world.replace_one() if world.chance() < 0.7 else None

    def promote() -> None:
        world.disk.go_back_to(kept)
        world.witness.went_back()
        world.database.promote()
        world.plan.outage_until = world.loop.now + 2.0 * world.chance()
        if _beats_have_landed(world):
            _move_the_database(world)
        if late is not None and world.replace_one(spare=late) is not None:
            late.astray_until = world.plan.outage_until + 2.0 * world.chance()

    world.loop.call_later(0.05 + 2.0 * world.chance() ** 2, promote)
    return True


def _pause_within_the_lease(world: Any) -> bool:
    """Stop a worker for long, but not as long as its lease; its runners go on."""
    worker = _a_worker(world)
    if worker is None:
        return False
    worker.stop(world.lease * (0.3 + 0.45 * world.chance()), tree=False)
    return True


def _slow_a_link(world: Any) -> bool:
    """Let every byte to and from a worker take its time, to the end of the faults and beyond."""
    worker = _one(world, world.alive())
    if worker is None or worker.bytes_per_second is not None:
        return False
    worker.bytes_per_second = 50_000 * (1.0 + world.chance())
    return True


def _restart_the_database(world: Any) -> bool:
    if world.database is None:
        return False
    world.database.restart()
    world.plan.outage_until = world.loop.now + 3.0 * world.chance() ** 2
    if _beats_have_landed(world):
        _move_the_database(world)
    return True


def _move_the_database(world: Any) -> None:
    """Let some workers look where it was while others have found it, as behind an address that
    moves in a failover. That is no trouble of their own, and it is over well within a lease."""
    for each in world.alive():
        if world.chance() < 0.5:
            late = world.lease * (0.25 + 0.15 * world.chance())
            each.astray_until = world.plan.outage_until + late
            world.plan.moved_until = max(world.plan.moved_until, each.astray_until)


def _end_a_session(world: Any) -> bool:
    lock = _one(world, [each.presence for each in world.alive() if each.presence is not None])
    if lock is None:
        return False
    world.database.end_session(lock, tell=world.chance() < 0.7)
    return True


def _fill_the_disk(world: Any) -> bool:
    world.disk.fill()
    world.plan.disk_is_full = True

    def free_space() -> None:
        world.disk.free_space()
        world.plan.disk_is_full = False

    world.loop.call_later(0.5 + 0.8 * world.lease * world.chance() ** 2, free_space)
    return True


def _step_a_host_clock(world: Any) -> bool:
    host = _one(world, world.hosts)
    host.step(7_200.0 * (world.chance() - 0.5))
    return True


def _step_the_store_clock(world: Any) -> bool:
    world.store_host.step(7_200.0 * (world.chance() - 0.5))
    return True


def _unlink_a_lock(world: Any) -> bool:
    worker = _one(world, [each for each in world.alive() if each.lock is not None])
    if worker is None:
        return False
    worker.lock.path.unlink(missing_ok=True)
    return True


def _cancel(world: Any) -> bool:
    job_id = _one(world, sorted(world.witness.accepted))
    if job_id is None:
        return False
    world.keep(asyncio.ensure_future(world.cancel(job_id)))
    return True


def _requeue(world: Any) -> bool:
    job_id = _one(world, sorted(world.witness.accepted))
    if job_id is None:
        return False
    world.keep(asyncio.ensure_future(world.requeue(job_id)))
    return True


def _add_worker(world: Any) -> bool:
    world.add_worker()
    return True


DEEDS: dict[str, Deed] = {
    "runner killed": _kill_runner,
    "worker killed": _kill_worker,
    "tree killed": _kill_tree,
    "worker drained": _drain_worker,
    "tree stopped": _stop_tree,
    "worker stopped alone": _stop_worker_alone,
    "runner stopped": _stop_runner,
    "worker cut off": _cut_worker_off,
    "link dies slowly": _let_a_link_die,
    "beats stuck": _let_beats_get_stuck,
    "host suspended": _suspend_host,
    "host without power": _cut_the_power,
    "store away": _outage,
    "store stands still": _let_the_store_stand_still,
    "database restarted": _restart_the_database,
    "backend crashed": _crash_a_backend,
    "database failed over": _fail_over,
    "reply not read": _leave_a_reply_unread,
    "worker paused within its lease": _pause_within_the_lease,
    "link slow": _slow_a_link,
    "presence session ended": _end_a_session,
    "disk full": _fill_the_disk,
    "host clock stepped": _step_a_host_clock,
    "store clock stepped": _step_the_store_clock,
    "lock file unlinked": _unlink_a_lock,
    "job cancelled": _cancel,
    "job requeued": _requeue,
    "worker added": _add_worker,
}
