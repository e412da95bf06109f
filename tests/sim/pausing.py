"""``python -m tests.sim.pausing FIRST LAST [TWIN]``: seeds in which everything is paused at times.

The law: from when all active workers have acknowledged a pause until it is resumed, no attempt is
given to a runner. It is judged by the tables' own rows, at the moment at which an attempt begins.
With the name of a twin, which lacks one guard, the first violation is printed instead.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest import mock

from outlast.clock import seeded
from outlast.errors import StoreError
from outlast.model.pause import PauseKind, is_heeded
from outlast.store.values import NewPause
from outlast.worker.claims.pauses import PauseKeeper
from outlast.worker.runners.starter import RunnerStarter
from tests.sim.chunks import live_in
from tests.sim.world import World

TIMES = 12  # that everything is paused in a seed
HEED_SECONDS = 15.0  # virtual, to wait for workers; some are dead or cut off
QUIET_SECONDS = 20.0  # virtual, in which what is late has come
FORCE_SECONDS = 3.0  # virtual, at most, from the acknowledgement of the last one to the end


class PausingWorld(World):
    """A world with an operator who pauses everything, and resumes it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._own_chance = seeded(seed * 104_729 + 3)  # the others' draws stay as they are
        self._in_force_since: float | None = None
        self.forced = 0

    def _stand_ins(self) -> Iterator[Any]:
        yield from super()._stand_ins()
        real = RunnerStarter._begin

        def begin(starter: Any, runner: Any, attempts: Any) -> None:
            since = self._in_force_since
            if since is not None and self.witness.went_back_at < since:
                tokens = [each.token for each in attempts]
                self.witness.wrong("nothing of a pause starts", f"attempts {tokens} began")
            real(starter, runner, attempts)

        yield mock.patch.object(RunnerStarter, "_begin", begin)

    async def _enqueue(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(super()._enqueue())
            group.create_task(self._pause_now_and_then())

    async def _pause_now_and_then(self) -> None:
        for _ in range(TIMES):
            await asyncio.sleep(3.0 * self._own_chance())
            new = NewPause(kind=PauseKind.ALL, stop=self._own_chance() < 0.3)
            pause = await self._insist(lambda new=new: self.client.pause(new))  # type: ignore[misc]
            if await self._is_acknowledged(pause.id):
                self._in_force_since = self.loop.now
                self.forced += 1
                await asyncio.sleep(FORCE_SECONDS * self._own_chance())
            self._in_force_since = None
            await self._insist(lambda: self.client.resume(PauseKind.ALL, ""))

    async def _quiet(self) -> None:
        """Resume once more: a failover may have lost that, or a request for a pause be late."""
        self.plan.stop()
        await asyncio.sleep(QUIET_SECONDS)
        await self._insist(lambda: self.client.resume(PauseKind.ALL, ""))
        await super()._quiet()

    async def _is_acknowledged(self, pause_id: int) -> bool:
        end = self.loop.now + HEED_SECONDS
        while self.loop.now < end:
            look = self.disk.look()
            rows = look.execute("SELECT heeds FROM outlast_workers WHERE status = 'active'")
            heeds = [row[0] for row in rows.fetchall()]
            look.close()
            if all(is_heeded(pause_id, each) for each in heeds):
                return True
            await asyncio.sleep(0.01)
        return False

    async def _insist(self, verb: Callable[[], Any]) -> Any:
        while True:
            try:
                return await verb()
            except StoreError:
                await asyncio.sleep(0.2)


Patches = Iterable[AbstractContextManager[Any]]


def _late_replies() -> Patches:
    yield mock.patch.object(PauseKeeper, "choose", lambda self, attempts: list(attempts))


def _hasty() -> Patches:
    real = PauseKeeper._apply

    def later(self: Any, pauses: Any) -> None:
        asyncio.get_running_loop().call_later(0.3, real, self, pauses)

    yield mock.patch.object(PauseKeeper, "_apply", later)


TWINS: dict[str, Callable[[], Patches]] = {
    "replies that come late are started": _late_replies,
    "acknowledged before it is done": _hasty,
}
KNOWN = {  # a seed that catches it soon
    "replies that come late are started": 21,
    "acknowledged before it is done": 5,
}


def main(first: int, last: int, twin: str | None) -> int:
    """Play seeds; print the first violation, or what was held to the law. Return the exit code."""
    forced = 0
    with ExitStack() as stack:
        for patch in TWINS[twin]() if twin else ():
            stack.enter_context(patch)
        for seed in range(first, last + 1):
            world = live_in(PausingWorld(seed))
            forced += world.forced
            if world.witness.violations:
                print(f"seed {seed}: {world.witness.violations[0]}")
                return 1
    print(f"{last - first + 1} seeds, 0 violations, {forced} pauses in force")
    return 0


if __name__ == "__main__":
    code = main(int(sys.argv[1]), int(sys.argv[2]), " ".join(sys.argv[3:]) or None)
    sys.stdout.flush()
    os._exit(code)
