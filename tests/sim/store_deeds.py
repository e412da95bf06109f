"""What is done to the store: outages, restarts, failovers, a full disk, a clock that steps."""

from __future__ import annotations

from typing import Any

from tests.sim.worker_deeds import about_a_lease, one

COPIED = 0.4  # how often a copy is made, where there are some already


def outage(world: Any) -> bool:
    world.plan.outage_until = world.loop.now + about_a_lease(world)
    return True


def let_the_store_stand_still(world: Any) -> bool:
    if not beats_have_landed(world):
        return False
    world.plan.still_until = world.loop.now + 0.6 * world.lease * world.chance()
    return True


def beats_have_landed(world: Any) -> bool:
    """Return whether beats that were due at the end of the last such fault have arrived."""
    return bool(world.loop.now >= max(world.plan.still_until, world.plan.moved_until) + 2.0)


def crash_a_backend(world: Any) -> bool:
    """The server ends all sessions, and with them all locks, and goes on as the same server."""
    if world.database is None:
        return False
    world.database.crash()
    world.plan.outage_until = world.loop.now + 0.5 * world.chance()
    if beats_have_landed(world):
        move_the_database(world)
    return True


def fail_over(world: Any) -> bool:
    """A standby that lags is promoted: what was committed in the last moments is lost, mostly with
    the registration of a worker, whose id another one is given then."""
    if world.database is None or world.database.fails_over or world.plan.slow_disk > 0:
        return False  # a statement that is on its way would be done on the other server
    world.database.fails_over = True
    kept = world.disk.copy()
    late = world.replace_one() if world.chance() < 0.7 else None

    def promote() -> None:
        world.disk.go_back_to(kept)
        kept.close()
        world.witness.went_back()
        world.database.promote()
        world.plan.outage_until = world.loop.now + 2.0 * world.chance()
        if beats_have_landed(world):
            move_the_database(world)
        if late is not None and world.replace_one(spare=late) is not None:
            late.astray_until = world.plan.outage_until + 2.0 * world.chance()

    world.loop.call_later(0.05 + 2.0 * world.chance() ** 2, promote)
    return True


def put_a_copy_back(world: Any) -> bool:
    """Copy the database, with all of its rows, as a clean stop leaves it; or put such a copy in its
    place, also one that was put there before, or that was made of one."""
    if not world.copies or world.chance() < COPIED:
        row = None if world.database is None else world.database.drawn_in
        world.copies.append((world.disk.copy(), row))
        return False
    kept, row = one(world, world.copies)
    world.disk.go_back_to(kept)
    world.witness.went_back()
    if world.database is not None:
        world.database.put_back(row)
    world.plan.outage_until = world.loop.now + 2.0 * world.chance()
    return True


def restart_the_database(world: Any) -> bool:
    if world.database is None:
        return False
    world.database.restart()
    world.plan.outage_until = world.loop.now + 3.0 * world.chance() ** 2
    if beats_have_landed(world):
        move_the_database(world)
    return True


def move_the_database(world: Any) -> None:
    """Let some workers look where it was while others have found it, as behind an address that
    moves in a failover. That is no trouble of their own, and it is over well within a lease."""
    for each in world.alive():
        if world.chance() < 0.5:
            late = world.lease * (0.25 + 0.15 * world.chance())
            each.astray_until = world.plan.outage_until + late
            world.plan.moved_until = max(world.plan.moved_until, each.astray_until)


def end_a_session(world: Any) -> bool:
    lock = one(world, [each.presence for each in world.alive() if each.presence is not None])
    if lock is None:
        return False
    world.database.end_session(lock, tell=world.chance() < 0.7)
    return True


def fill_the_disk(world: Any) -> bool:
    world.disk.fill()
    world.plan.disk_is_full = True

    def free_space() -> None:
        world.disk.free_space()
        world.plan.disk_is_full = False

    world.loop.call_later(0.5 + 0.8 * world.lease * world.chance() ** 2, free_space)
    return True


def step_the_store_clock(world: Any) -> bool:
    world.store_host.step(7_200.0 * (world.chance() - 0.5))
    return True
