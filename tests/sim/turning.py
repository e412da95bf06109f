"""``python -m tests.sim.turning FIRST LAST [TWIN]``: seeds in which jobs need two limits at once.

Each of both limits has a flood of jobs that need nothing else. The law: a job that needs both
starts before many of each flood have, however its workers fare. It is judged at each claim; and
all jobs end, as in every world. With the name of a twin, which lacks the guard, the first
violation is printed.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

from outlast.errors import StoreError
from outlast.model.limits import LimitSpec, Need, limits_of, needs_text, permit_id, stream_id
from outlast.store.limits import NewLimit
from outlast.store.sqlite.permits import Permits
from outlast.store.values import NewJob
from tests.sim import tasks
from tests.sim.chunks import Patches, Twins, play_kind
from tests.sim.limiting import LimitingWorld
from tests.sim.witness import Witness
from tests.sim.world import World

FLOOD = 40  # jobs under each limit
BOTH = 3  # jobs under both
PASSED = 15  # of each flood that may start before one of them
NAMES = ("a", "b")
_QUEUED = "SELECT id FROM outlast_jobs WHERE state = 'queued'"
_ARGS = json.dumps({"steps": 1, "pause": 0.3, "ending": "complete", "saves": False})


class TurningWorld(LimitingWorld):
    """A world in which a job that needs two limits at once meets floods under each."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._waiting: dict[int, Counter[str]] = {}  # what has started before each such job
        self._begun: set[int] = set()
        self.passed: list[int] = []

    def _some_job(self, index: int) -> NewJob:
        return World._some_job(self, index)

    async def _declare(self) -> None:
        while True:
            try:
                limits = [NewLimit(name, LimitSpec(running=1)) for name in NAMES]
                return await self.client.declare_limits(limits)
            except StoreError:
                await asyncio.sleep(0.2)

    async def _enqueue(self) -> None:
        await self._declare()
        for name in NAMES:
            await self._put([_under(name, key=f"{name}{n}") for n in range(FLOOD)])
        for number in range(BOTH):
            await asyncio.sleep(4.0 * self._own_chance())
            (job_id,) = await self._put([_under(*NAMES, key=f"both {number}")])
            if job_id not in self._begun:
                self._waiting[job_id] = Counter()
        await World._enqueue(self)

    async def _put(self, jobs: list[NewJob]) -> list[int]:
        while True:
            try:
                made = await self.client.enqueue(jobs)
            except StoreError:
                await asyncio.sleep(0.3)
            else:
                self.tell("queue:default")
                return [each.job_id for each in made]

    def _stand_ins(self) -> Iterator[Any]:
        yield from super()._stand_ins()
        real = Witness._exchanged

        def exchanged(witness: Any, me: Any, ended: Any, reply: Any, before: Any) -> None:
            real(witness, me, ended, reply, before)
            for each in reply.claimed:
                self._note(witness, each.job_id)

        yield mock.patch.object(Witness, "_exchanged", exchanged)

    def _note(self, witness: Witness, job_id: int) -> None:
        """Count a start, and judge those that wait."""
        ((needs,),) = witness.read(f"SELECT needs FROM outlast_jobs WHERE id = {job_id}")
        names = limits_of(needs)
        if names == NAMES:
            self._begun.add(job_id)
            if (passed := self._waiting.pop(job_id, None)) is not None:
                self.passed.append(min(passed[name] for name in NAMES))
        queued = {row[0] for row in witness.read(_QUEUED)}  # a fault may cancel one
        for waits, passed in self._waiting.items():
            if waits not in queued:
                continue
            passed.update(names)
            if min(passed[name] for name in NAMES) > PASSED:
                told = f"job {waits} has seen {dict(passed)} others start"
                witness.wrong("turns hold: who needs several starts, too", told)


def _under(*names: str, key: str) -> NewJob:
    needs = [Need(permit_id(name, ""), name) for name in names]
    stream = stream_id("work", "default", 0, needs, None)
    return NewJob(
        task="work", args=_ARGS, key=key, policy=tasks._PATIENT, stream=stream,
        needs=needs_text(needs),
    )  # fmt: skip


def _nothing_is_kept() -> Patches:
    yield mock.patch.object(Permits, "keep_rest")


TWINS: Twins = {"what comes free goes to those that need nothing else": (_nothing_is_kept, 1)}


if __name__ == "__main__":
    play_kind(
        TurningWorld,
        TWINS,
        lambda world: max([0, *world.passed]),
        lambda passed: f"{max(passed)} others at most before one that needs both",
    )
