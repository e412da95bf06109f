"""What is done to workers: to their processes, their hosts, their links and their jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from outlast.model import watch
from tests.sim.loop import Process

Deed = Callable[[Any], bool]
"""Does something to a world; returns whether it was possible."""


def one(world: Any, things: list[Any]) -> Any:
    return things[int(world.chance() * len(things))] if things else None


def any_worker(world: Any) -> Any:
    return one(world, world.alive())


def any_runner(world: Any) -> Any:
    return one(world, [each for worker in world.alive() for each in worker.runners])


def a_worker(world: Any) -> Any:
    """Return a worker that is not in trouble; mostly not the last such one."""
    well = [each for each in world.alive() if each.well_for > 0]
    return one(world, well) if len(well) > 1 or world.chance() < 0.2 else None


def a_worker_in_trouble(world: Any, why: str) -> Any:
    """Return a worker that from now on has trouble of its own, or None."""
    worker = a_worker(world)
    if worker is not None:
        worker.is_unwell(why)
    return worker


def about_a_lease(world: Any) -> float:
    """Return seconds, mostly a little more or less than a lease."""
    if world.chance() < 0.6:
        return float(world.lease * (0.8 + 0.8 * world.chance()))
    return float(0.5 + 2.5 * world.lease * world.chance() ** 2)


def done_to(choose: Callable[[Any], Any]) -> Callable[[Callable[[Any, Any], None]], Deed]:
    """Make a deed of what is done to the one that ``choose`` returns, if there is one."""

    def decorate(act: Callable[[Any, Any], None]) -> Deed:
        def deed(world: Any) -> bool:
            chosen = choose(world)
            if chosen is not None:
                act(world, chosen)
            return chosen is not None

        return deed

    return decorate


@done_to(any_runner)
def kill_runner(world: Any, runner: Any) -> None:
    runner.killed_from_outside()


@done_to(any_worker)
def kill_worker(world: Any, worker: Any) -> None:
    worker.kill()
    world.replace()


@done_to(any_worker)
def kill_tree(world: Any, worker: Any) -> None:
    worker.kill_tree()
    world.replace()


def _watchers(world: Any) -> list[Any]:
    """Return the workers that keep a watch, if another one is well that does not."""
    ids = {mark & watch.ID_MASK for mark in world.database.watches} if world.database else set()
    kept = [each for each in world.alive() if each.worker and each.worker.me.worker_id in ids]
    others = [each for each in world.alive() if each not in kept and each.well_for > 0]
    return kept if others else []


def kill_watchers(world: Any) -> bool:
    """Lose in one instant all that watch over the others."""
    watchers = _watchers(world)
    for each in watchers:
        each.kill_tree()
        world.replace()
    return bool(watchers)


def cut_watchers_off(world: Any) -> bool:
    watchers = _watchers(world)
    for each in watchers:
        each.is_unwell("cut off")
        each.cut_until = world.loop.now + about_a_lease(world)
    return bool(watchers)


@done_to(a_worker)
def drain_worker(world: Any, worker: Any) -> None:
    worker.drain()
    world.replace()


@done_to(a_worker)
def stop_tree(world: Any, worker: Any) -> None:
    worker.stop(about_a_lease(world), tree=True)


@done_to(a_worker)
def stop_worker_alone(world: Any, worker: Any) -> None:
    worker.stop(about_a_lease(world), tree=False)


@done_to(any_runner)
def stop_runner(world: Any, runner: Any) -> None:
    stop_for(world, runner.processes, 0.5 + 10.0 * world.chance())


def stop_for(world: Any, processes: Collection[Process], seconds: float) -> None:
    for process in processes:
        process.stops += 1

    def go_on() -> None:
        for process in processes:
            process.stops = max(0, process.stops - 1)

    world.loop.call_later(seconds, go_on)


@done_to(lambda world: a_worker_in_trouble(world, "cut off"))
def cut_worker_off(world: Any, worker: Any) -> None:
    worker.cut_until = world.loop.now + about_a_lease(world)


@done_to(lambda world: a_worker_in_trouble(world, "its link dies"))
def let_a_link_die(world: Any, worker: Any) -> None:
    worker.link_dies = True


@done_to(lambda world: a_worker_in_trouble(world, "its beats are stuck"))
def let_beats_get_stuck(world: Any, worker: Any) -> None:
    worker.beats_stuck_until = world.loop.now + about_a_lease(world)


def suspend_host(world: Any) -> bool:
    """Where there are several hosts, one stays awake; a network comes back later than its host."""
    awake = [each for each in world.hosts if not each.suspended and each.workers()]
    host = one(world, awake)
    if host is None or (len(world.hosts) > 1 and len(awake) == 1):
        return False
    seconds = about_a_lease(world)
    host.suspend(seconds)
    if len(world.hosts) > 1 and world.chance() < 0.5:
        back_at = world.loop.now + seconds + 0.5 * world.lease * world.chance()
        for each in host.workers():
            each.cut_until = max(each.cut_until, back_at)
    return True


@done_to(lambda world: one(world, [each for each in world.hosts if each.workers()]))
def cut_the_power(world: Any, host: Any) -> None:
    count = len(host.workers())
    host.cut_the_power()
    for _ in range(count):
        world.replace()


def leave_a_reply_unread(world: Any) -> bool:
    """A host is lost in the middle of a claim's reply: the server waits for it to be read, and
    meanwhile holds the worker's row, so that each reap of that worker fails."""
    worker = one(world, [each for each in world.alive() if each.worker is not None])
    if worker is None or world.database is None or len(world.alive()) < 2:
        return False
    worker.row_held_until = world.loop.now + 10 * world.lease * world.chance()
    worker.kill_tree(linger=worker.row_held_until - world.loop.now)
    world.replace()
    return True


@done_to(a_worker)
def pause_within_the_lease(world: Any, worker: Any) -> None:
    """Stop a worker for long, but not as long as its lease; its runners go on."""
    worker.stop(world.lease * (0.3 + 0.45 * world.chance()), tree=False)


def slow_a_link(world: Any) -> bool:
    """Let every byte to and from a worker take its time, to the end of the faults and beyond."""
    worker = one(world, world.alive())
    if worker is None or worker.bytes_per_second is not None:
        return False
    worker.bytes_per_second = 50_000 * (1.0 + world.chance())
    return True


def step_a_host_clock(world: Any) -> bool:
    host = one(world, world.hosts)
    host.step(7_200.0 * (world.chance() - 0.5))
    return True


@done_to(lambda world: one(world, [each for each in world.alive() if each.lock is not None]))
def unlink_a_lock(world: Any, worker: Any) -> None:
    worker.lock.path.unlink(missing_ok=True)


@done_to(lambda world: one(world, sorted(world.witness.accepted)))
def cancel(world: Any, job_id: Any) -> None:
    world.keep(asyncio.ensure_future(world.cancel(job_id)))


@done_to(lambda world: one(world, sorted(world.witness.accepted)))
def requeue(world: Any, job_id: Any) -> None:
    world.keep(asyncio.ensure_future(world.requeue(job_id)))


def add_worker(world: Any) -> bool:
    world.add_worker()
    return True
