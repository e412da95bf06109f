"""``python -m tests.sim.awaiting FIRST LAST [TWIN]``: seeds in which most jobs wait for events.

Each waits for one, for a few seconds or for days, in attempts that are lost and that fail; events
are sent before, meanwhile, too late, and twice with other values. The laws: each attempt of a job
sees the same outcome, the event's one value or the end of the time (L10), and no event is missed.
That is judged by the tables' own rows after each verb, and since all jobs end, also those that wait
for days. With the name of a twin, which lacks one guard, the first violation is printed.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from typing import Any
from unittest import mock

import outlast
from outlast.base.clock import seeded
from outlast.client import events
from outlast.client.attempt_store import AttemptStore
from outlast.errors import StoreError
from outlast.store.sqlite import events as sqlite_events
from outlast.store.values import NewEvent, NewJob
from tests.sim import tasks
from tests.sim.chunks import Patches, Twins, play_kind
from tests.sim.flowing import UNRESOLVED
from tests.sim.twins import without
from tests.sim.world import Laws, World

SHARE = 0.7  # of the jobs that wait for events
DAYS = 1e6  # seconds: only the event ends such a wait
_FORGETFUL = {"failovers", "copies"}  # the store loses commits: another outcome may follow
_STEPPED = "schedules"  # and such clocks end no wait within a seed


class AwaitingWorld(World):
    """A world whose jobs wait for events."""

    laws: Laws = {"waits hold: no event is missed": UNRESOLVED}

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.most = seed % 4  # 0: as in production
        self._own_chance = seeded(seed * 350_377 + 5)  # the others' draws stay as they are
        self._app = tasks.release(sealed=False, asks=asks)
        self._app.stores.ask = self._ask  # type: ignore[method-assign]
        self._names: list[tuple[str, float]] = []
        self.outcomes: dict[int, set[Any]] = defaultdict(set)
        self.sealed = False

    def _draw_theme(self) -> str | None:
        theme = super()._draw_theme()
        return "deaths" if theme is None or theme in {*_FORGETFUL, _STEPPED} else theme

    def app_of(self, owner: Any) -> outlast.App:
        return self._app

    async def _ask(self, verb: Any) -> Any:
        return await verb(self.client)

    def _some_job(self, index: int) -> NewJob:
        new = super()._some_job(index)
        if self._own_chance() >= SHARE:
            return new
        lasts = 4.0 * self._own_chance() if self._own_chance() < 0.6 else DAYS
        name = f"event {index // 2}"
        self._names.append((name, 6.0 * self._own_chance()))
        args = {"name": name, "timeout": lasts, "fails": self._own_chance() < 0.6}
        return NewJob(task="asks", args=json.dumps(args), key=f"k{index}", policy=tasks._PATIENT)

    async def _enqueue(self) -> None:
        await super()._enqueue()
        async with asyncio.TaskGroup() as group:
            for number, (name, after) in enumerate(self._names):
                group.create_task(self._send(NewEvent(name, f"[{number}]"), after))

    async def _send(self, event: NewEvent, after: float) -> None:
        await asyncio.sleep(after)
        while True:
            try:
                await self.client.send_event(event)
            except StoreError:
                await asyncio.sleep(0.3)
            else:
                return self.tell("")

    def saw(self, job_id: int, outcome: Any) -> None:
        """Judge what an attempt has seen against what others of its job have."""
        self.outcomes[job_id].add(outcome)
        if len(self.outcomes[job_id]) > 1:
            told = f"job {job_id} has seen {self.outcomes[job_id]}"
            self.witness.wrong("waits hold: one outcome of each", told)


async def asks(name: str, timeout: float, fails: bool) -> None:
    """Wait for an event, and fail in the first attempts that have an outcome."""
    attempt, runner = outlast.current(), tasks.RUNNER.get()
    attempt._clock = runner.owner.clock
    runner.step(attempt)
    try:
        outcome = await attempt.wait_event(name, timeout=timeout)
    except TimeoutError:
        outcome = None
    runner._world.saw(attempt.job_id, outcome)
    runner.step(attempt)
    await asyncio.sleep(1.0)
    if fails and attempt.failures < 2:
        raise ValueError("simulated")


def _forget_the_end_of_the_time() -> Patches:
    real = AttemptStore.keep

    async def keep(store: Any, name: str, text: str) -> None:
        if text != events._TIMED_OUT:
            await real(store, name, text)

    yield mock.patch.object(AttemptStore, "keep", keep)


def _leave_no_notice() -> Patches:
    yield without(sqlite_events._SQL, "note", "VALUES (0, ?)", "SELECT 0, ? WHERE false")


TWINS: Twins = {
    "the end of the time is not stored": (_forget_the_end_of_the_time, 1),
    "ends and events leave no notice": (_leave_no_notice, 1),
}


if __name__ == "__main__":
    play_kind(
        AwaitingWorld,
        TWINS,
        lambda world: len(world.outcomes),
        lambda seen: f"{sum(seen)} jobs with an outcome",
    )
