"""What happens to the world while faults are on."""

from __future__ import annotations

import asyncio
from typing import Any


async def torment(world: Any, until: asyncio.Task[None]) -> None:
    """Do harm now and then, until everything is enqueued and a while longer."""
    end = None
    while end is None or world.loop.now < end:
        if end is None and until.done():
            end = world.loop.now + 20 * world.chance()
        await asyncio.sleep(0.3 + 6.0 * world.chance() ** 2)
        if world.chance() < 0.25:
            continue  # sometimes nothing happens
        deeds = list(DEEDS)
        name = deeds[int(world.chance() * len(deeds))]
        if await DEEDS[name](world):
            world.plan.seen[name] += 1
            world.witness.note(f"NEMESIS {name}", {})


def _one(world: Any, things: list[Any]) -> Any:
    return things[int(world.chance() * len(things))] if things else None


async def _kill_runner(world: Any) -> bool:
    runner = _one(world, [each for worker in world.alive() for each in worker.runners])
    if runner is None:
        return False
    world.witness.killed_from_outside |= runner.tokens  # charged, if it was alone: that is the rule
    runner.die(exit_code=None, signal="SIGKILL")
    return True


async def _kill_worker(world: Any) -> bool:
    worker = _one(world, world.alive())
    if worker is None:
        return False
    _take_the_blame(world, worker)
    worker.kill()
    _replace(world)
    return True


async def _kill_tree(world: Any) -> bool:
    worker = _one(world, world.alive())
    if worker is None:
        return False
    _take_the_blame(world, worker)
    worker.kill_tree()
    _replace(world)
    return True


def _take_the_blame(world: Any, worker: Any) -> None:
    """What was alone in its worker, since it had lost two, is charged with its death: the rule."""
    for runner in worker.runners:
        world.witness.killed_from_outside |= runner.tokens


def _replace(world: Any) -> None:
    world.loop.call_later(0.1 + 5.0 * world.chance(), world.add_worker)


async def _drain_worker(world: Any) -> bool:
    worker = _one(world, world.alive())
    if worker is None or worker.process.stopped:
        return False
    worker.drain()
    _replace(world)
    return True


async def _stop(world: Any, *, tree: bool) -> bool:
    worker = _one(world, world.alive())
    if worker is None or worker.process.stopped:
        return False
    worker.set_stopped(True, tree=tree)
    about_a_lease = world.chance() < 0.6
    seconds = 8.0 + 8.0 * world.chance() if about_a_lease else 0.5 + 25.0 * world.chance() ** 2
    world.loop.call_later(seconds, lambda: worker.set_stopped(False, tree=tree))
    return True


async def _stop_tree(world: Any) -> bool:
    return await _stop(world, tree=True)


async def _stop_worker_alone(world: Any) -> bool:
    return await _stop(world, tree=False)


async def _stop_runner(world: Any) -> bool:
    runner = _one(world, [each for worker in world.alive() for each in worker.runners])
    if runner is None:
        return False
    runner.process.stopped = True

    def go_on() -> None:
        runner.process.stopped = False

    world.loop.call_later(0.5 + 10.0 * world.chance(), go_on)
    return True


async def _outage(world: Any) -> bool:
    world.plan.outage_until = world.loop.now + 0.5 + 25.0 * world.chance() ** 2
    return True


async def _step_the_clock(world: Any) -> bool:
    world.wall_step += 7_200.0 * (world.chance() - 0.5)
    world.wall_step_max = max(world.wall_step_max, world.wall_step)
    return True


async def _unlink_a_lock(world: Any) -> bool:
    worker = _one(world, [each for each in world.alive() if each.lock is not None])
    if worker is None:
        return False
    worker.lock.path.unlink(missing_ok=True)
    return True


async def _cancel(world: Any) -> bool:
    job_id = _one(world, sorted(world.witness.accepted))
    if job_id is None:
        return False
    try:
        await world.client.cancel([job_id])
    except Exception:
        return False
    return True


async def _requeue(world: Any) -> bool:
    job_id = _one(world, sorted(world.witness.accepted))
    if job_id is None:
        return False
    try:
        await world.client.requeue([job_id])
    except Exception:
        return False
    return True


async def _add_worker(world: Any) -> bool:
    if len(world.alive()) < 4:
        world.add_worker()
    return True


DEEDS = {
    "runner killed": _kill_runner,
    "worker killed": _kill_worker,
    "tree killed": _kill_tree,
    "worker drained": _drain_worker,
    "tree stopped": _stop_tree,
    "worker stopped alone": _stop_worker_alone,
    "runner stopped": _stop_runner,
    "store away": _outage,
    "wall clock stepped": _step_the_clock,
    "lock file unlinked": _unlink_a_lock,
    "job cancelled": _cancel,
    "job requeued": _requeue,
    "worker added": _add_worker,
}
