"""``python -m tests.sim.batching FIRST LAST [TWIN]``: seeds in which most jobs are items.

Items come alone and together, beside other jobs that want the same runners; some raise, one in a
while kills the process, in its first attempts or always. The laws: a completed job has the result
of its own item, no call has more items than its task takes, and a job that has only waited for its
call is no suspect. They are judged by the calls' own steps and by the tables' rows; what never
fails is charged with nothing, and all jobs end, as in every world. With the name of a twin, which
lacks one guard, the first violation is printed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from unittest import mock

import outlast
from outlast.base.clock import seeded
from outlast.client.batches import sort_out
from outlast.runner import batches
from outlast.store.values import NewJob
from outlast.worker.runners.pool import RunnerPool
from outlast.worker.runners.process import RunnerProcess
from tests.sim import tasks
from tests.sim.chunks import Patches, Twins, play_kind
from tests.sim.world import World

SHARE = 0.7  # of the jobs that are items
MOST = 5  # items of a call
KILLED = 0.1  # of the times at which one more gathers: its runner dies soon
ENDINGS = ["complete"] * 6 + ["error", "crash", "poison"]
_MIXED = """SELECT id, args, result FROM outlast_jobs WHERE task = 'gathers'
            AND state = 'completed' AND result <> json_extract(args, '$.items.number') || ''"""
_SUSPECTS = """SELECT j.id, json_group_array(a.token)
               FROM outlast_jobs AS j JOIN outlast_attempts AS a ON a.job_id = j.id
               WHERE j.task = 'gathers' AND j.solo = 1 GROUP BY j.id"""


class BatchingWorld(World):
    """A world whose jobs are items of batches."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._own_chance = seeded(seed * 611_953 + 7)  # the others' draws stay as they are
        self._app = tasks.release(sealed=False)
        self._app.task(name="gathers", batch=MOST, batch_wait=4.0)(gathers)
        self.begun: set[int] = set()  # tokens whose calls have begun, as their workers were told
        self.sealed = False
        self.laws = {
            "batches hold: each item has its own result": _MIXED,
            "batches hold: what waits for its call is no suspect": self._find_blamed,
        }

    def _find_blamed(self) -> list[int]:
        suspects = self.witness.read(_SUSPECTS)
        return [job_id for job_id, its in suspects if self.begun.isdisjoint(json.loads(its))]

    def app_of(self, owner: Any) -> outlast.App:
        return self._app

    def _some_job(self, index: int) -> NewJob:
        new = super()._some_job(index)
        if self._own_chance() >= SHARE:
            return new
        ending = ENDINGS[int(len(ENDINGS) * self._own_chance())] if self.faulty else "complete"
        args = {"items": {"number": index, "ending": ending, "pause": 2.0 * self._own_chance()}}
        return NewJob(task="gathers", args=json.dumps(args), key=f"k{index}", policy=tasks._PATIENT)

    def _stand_ins(self) -> Iterator[Any]:
        yield from super()._stand_ins()
        note_call, gather = RunnerProcess.note_call, RunnerProcess.gather

        def noted(runner: Any, tokens: Any) -> list[int]:
            self.begun.update(tokens)
            return note_call(runner, tokens)

        def gathered(runner: Any, token: int, task: str) -> None:
            gather(runner, token, task)
            if self.plan.on and len(runner.gathering) > 1 and self._own_chance() < KILLED:
                self.loop.call_later(self._own_chance(), runner.killed_from_outside)

        yield mock.patch.object(RunnerProcess, "note_call", noted)
        yield mock.patch.object(RunnerProcess, "gather", gathered)


async def gathers(items: list[dict[str, Any]]) -> list[int]:
    """Take some steps; end as the items say."""
    runner, attempts = tasks.RUNNER.get(), outlast.current_batch()
    world = runner._world
    if len(items) > MOST:
        told = f"{len(items)} items"
        world.witness.wrong("batches hold: no call has more items than its task takes", told)
    errors: dict[int, Exception] = {}
    for place, (item, attempt) in enumerate(zip(items, attempts, strict=True)):
        runner.step(attempt)
        await asyncio.sleep(item["pause"] / len(items))
        first = attempt.number <= 2
        if item["ending"] == "poison" or (item["ending"] == "crash" and first):
            await runner.crash()
        if item["ending"] == "error" and first:
            errors[place] = ValueError("simulated")
    if errors:
        raise outlast.ItemErrors(errors, [item["number"] for item in items])
    return [item["number"] for item in items]


def _mix_results_up() -> Patches:
    def mixed(count: int, returned: Any, error: Any) -> Any:
        return sort_out(count, returned, error)[::-1]

    yield mock.patch.object(batches, "sort_out", mixed)


def _suspect_all() -> Patches:
    real = RunnerPool._end_attempts

    def end(pool: Any, runner: Any, death: Any) -> None:
        runner.gathering.clear()
        real(pool, runner, death)

    yield mock.patch.object(RunnerPool, "_end_attempts", end)


TWINS: Twins = {
    "results come in another order": (_mix_results_up, 1),
    "what waits for its call is a suspect": (_suspect_all, 2),
}


if __name__ == "__main__":
    play_kind(
        BatchingWorld,
        TWINS,
        lambda world: len(world.begun),
        lambda begun: f"{sum(begun)} attempts in calls",
    )
