"""``python -m tests.sim.reviving FIRST LAST [TWIN]``: seeds in which jobs come back to wait again.

A job gets the results of two others. One of them dies, so it is cancelled; the other one's row is
deleted after a while; then a person requeues the dead one. The law: where the job runs after all,
it has both results. All jobs end, as in every world. With the name of a twin, which lacks the
guard, the first violation is printed.
"""

from __future__ import annotations

import asyncio
import json

import outlast
from outlast.errors import StoreError
from outlast.model.job import Policy
from outlast.store.sqlite import dependencies
from outlast.store.values import NewJob, Upstream
from tests.sim import tasks
from tests.sim.awaiting import AwaitingWorld
from tests.sim.chunks import Patches, Twins, play_kind
from tests.sim.twins import without
from tests.sim.world import World

STORIES = 3
_ONCE = Policy(retries=0, max_losses=40)
_BRIEFLY = Policy(retries=0, max_losses=40, keep=20.0)
_STATES = "SELECT state FROM outlast_jobs WHERE id = "


class RevivingWorld(AwaitingWorld):
    """A world in which jobs are requeued after what others got of them was deleted."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._app = tasks.release(sealed=False, dies=dies, one=one, both=both)
        self.requeued: set[int] = set()
        self._own: list[int] = []
        self.revived = 0

    def _some_job(self, index: int) -> NewJob:
        return World._some_job(self, index)

    async def _enqueue(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(World._enqueue(self))
            for number in range(STORIES):
                group.create_task(self._revive(number, 200.0 * self._own_chance()))

    async def _revive(self, number: int, pause: float) -> None:
        policy = Policy(retries=4, max_losses=40, inputs=(("found", True),))
        jobs = [
            NewJob(task="one", key=f"one {number}", policy=_BRIEFLY),
            NewJob(task="dies", key=f"dies {number}", policy=_ONCE, args=json.dumps({"n": number})),
            NewJob(task="both", policy=policy, after=(Upstream(-1), Upstream(-2))),
        ]
        while True:
            try:
                made = await self.client.enqueue(jobs)
                break
            except StoreError:
                await asyncio.sleep(0.3)
        _, dead, waits = (each.job_id for each in made)
        self._own += [dead, waits]
        self.tell("queue:default")
        while self._state(waits) != "cancelled":
            if not self.alive():
                self.add_worker()
            await asyncio.sleep(1.0)
        await asyncio.sleep(pause)
        self.requeued.add(number)
        while self._state(dead) == "dead":
            await self.requeue(dead)
            await asyncio.sleep(0.5)
        self.revived += 1

    async def _quiet(self) -> None:
        for job_id in self._own:  # until then no fault requeues or cancels them
            self.witness.accept(job_id)
        await super()._quiet()

    def _state(self, job_id: int) -> str:
        return str(self.witness.read(f"{_STATES}{job_id}")[0][0])


async def one() -> int:
    """Return a number."""
    tasks.RUNNER.get().step(outlast.current())
    return 1


async def dies(n: int) -> int:
    """Fail until a person has requeued it."""
    runner = tasks.RUNNER.get()
    runner.step(outlast.current())
    if n not in runner._world.requeued:
        raise ValueError("simulated")
    return 2


async def both(found: list[int | None]) -> None:
    """Look at the results."""
    runner = tasks.RUNNER.get()
    runner.step(outlast.current())
    if found != [1, 2]:
        runner._world.witness.wrong("flows hold: who runs has all results", f"{found}")


def _deleted_is_none() -> Patches:
    gone = "iif(j.id IS NULL AND d.wants = 0, d.upstream_id, NULL)"
    yield without(dependencies._SQL, "results", gone, "NULL")


TWINS: Twins = {"a deleted result counts as none": (_deleted_is_none, 1)}


if __name__ == "__main__":
    play_kind(
        RevivingWorld,
        TWINS,
        lambda world: world.revived,
        lambda revived: f"{sum(revived)} jobs that came back",
    )
