"""``python -m tests.sim.spawning FIRST LAST [TWIN]``: seeds in which most jobs make children.

Each makes a few, waits for them, and may fail or be lost before, meanwhile and after. The laws: all
attempts of a job have the same children (L9), a parent that goes on finds them ended, no end is
missed, and no child begins once its parent is dead or cancelled. They are judged by the tables' own
rows after each verb; and all jobs end. With the name of a twin, which lacks one guard, the first
violation is printed.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from typing import Any
from unittest import mock

import outlast
from outlast.client.attempt_store import AttemptStore
from outlast.store.sqlite import dependencies
from outlast.store.sqlite import steps as sqlite_steps
from outlast.store.values import Answer, NewJob
from tests.sim import tasks
from tests.sim.awaiting import AwaitingWorld
from tests.sim.chunks import Patches, Twins, play_kind
from tests.sim.flowing import UNRESOLVED
from tests.sim.twins import without
from tests.sim.world import Laws, World

SHARE = 0.4  # of the jobs that make children
_LEFT_ALONE = """SELECT d.job_id, d.upstream_id FROM outlast_dependencies AS d
                 JOIN outlast_jobs AS p ON p.id = d.job_id AND p.state IN ('dead', 'cancelled')
                 JOIN outlast_jobs AS c ON c.id = d.upstream_id
                 WHERE d.place < 0 AND c.state IN ('queued', 'blocked') AND c.attempt_count = 0
                   AND NOT EXISTS (SELECT 1 FROM outlast_upstream_notices AS n
                                   WHERE n.job_id = d.job_id)"""


class SpawningWorld(AwaitingWorld):
    """A world whose jobs make children."""

    laws: Laws = {
        "children hold: no end is missed": UNRESOLVED,
        "children hold: none is left alone": _LEFT_ALONE,
    }

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._app = tasks.release(sealed=False, makes=makes, child=child)
        self._app.stores.ask = self._ask  # type: ignore[method-assign]
        self._app.stores.enqueue = self._spawn  # type: ignore[method-assign]
        self.children: dict[int, set[tuple[int, ...]]] = defaultdict(set)

    async def _spawn(self, batch: Any, connection: Any = None) -> Any:
        made = await self.client.spawn(batch, connection)
        self.tell("")
        return made

    def _some_job(self, index: int) -> NewJob:
        new = World._some_job(self, index)
        if self._own_chance() >= SHARE:
            return new
        fails = ["", "first", "later", "always"][int(4 * self._own_chance())]
        args = {"count": 1 + int(4 * self._own_chance()), "fails": fails}
        return NewJob(task="makes", args=json.dumps(args), key=f"k{index}", policy=tasks._PATIENT)

    def made(self, job_id: int, ids: tuple[int, ...]) -> None:
        """Judge the children that an attempt has against those of the job's others."""
        self.children[job_id].add(ids)
        if len(self.children[job_id]) > 1:
            told = f"job {job_id} has {self.children[job_id]}"
            self.witness.wrong("children hold: one child for each ordinal", told)


async def child(place: int) -> int:
    """Take some time."""
    tasks.RUNNER.get().step(outlast.current())
    await asyncio.sleep(0.4 * place)
    return place


async def makes(count: int, fails: str) -> int:
    """Make children and wait for them; fail in the first attempts, after the wait, or always."""
    attempt, runner = outlast.current(), tasks.RUNNER.get()
    attempt._clock = runner.owner.clock
    runner.step(attempt)
    task = runner._world.app_of(runner.owner).tasks["child"]
    if fails == "always":  # they have not begun when it dies
        task = task.using(delay=30.0)
    run = await attempt.spawn(outlast.group(map(task.call, range(count))))
    runner._world.made(attempt.job_id, tuple(job.id for job in run.jobs))
    if fails == "always" or (fails == "first" and attempt.failures < 2):
        raise ValueError("simulated")
    found = []
    try:
        found = await attempt.wait_for(run)
    except (outlast.JobCancelled, outlast.JobFailed, outlast.JobNotFound):
        return -1
    runner.step(attempt)
    if found != [*range(count)]:
        runner._world.witness.wrong("children hold: all have ended", f"{found}")
    await asyncio.sleep(0.5)
    if fails == "later" and attempt.failures < 2:
        raise ValueError("simulated")
    return len(found)


def _make_others() -> Patches:
    real = AttemptStore.find

    async def find(store: Any, *names: str) -> Any:
        return [None] if names[0].startswith("spawn") else await real(store, *names)

    yield mock.patch.object(AttemptStore, "find", find)
    yield mock.patch.object(sqlite_steps, "keep_steps", return_value=[Answer.ACCEPTED])
    yield without(sqlite_steps._CHILDREN, "adopt", "INSERT INTO", "INSERT OR REPLACE INTO")


def _watch_the_ended() -> Patches:
    yield without(sqlite_steps._CHILDREN, "watch", " AND j.ended_at IS NULL", "")


def _leave_children_alone() -> Patches:
    yield without(dependencies._SQL, "end_children", "d.place < 0", "d.place > 0")


TWINS: Twins = {
    "each attempt makes its own": (_make_others, 1),
    "ended children are waited for": (_watch_the_ended, 1),
    "children outlive their parent": (_leave_children_alone, 4),
}


if __name__ == "__main__":
    play_kind(
        SpawningWorld,
        TWINS,
        lambda world: len(world.children),
        lambda seen: f"{sum(seen)} jobs with children",
    )
