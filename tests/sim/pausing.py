"""``python -m tests.sim.pausing FIRST LAST [TWIN]``: seeds in which everything is paused at times.

The law: from when all live workers have acknowledged a pause until it is resumed, no attempt is
given to a runner, and the code of none begins, also of those that lie in a runner whose event loop
is blocked. It is judged by the tables' own rows, at the moment at which an attempt begins.
With the name of a twin, which lacks one guard, the first violation is printed instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from outlast.base.clock import seeded
from outlast.errors import StoreError
from outlast.model.pause import PauseKind, is_acknowledged
from outlast.store.values import NewPause
from outlast.worker.claims.pauses import PauseKeeper
from outlast.worker.runners.control import RunnersControl
from outlast.worker.runners.starter import RunnerStarter
from tests.sim.chunks import Patches, Twins, play_kind
from tests.sim.worker_deeds import stop_for
from tests.sim.world import World

TIMES = 12  # that everything is paused in a seed
ACKNOWLEDGE_SECONDS = 15.0  # virtual, to wait for workers; some are dead or cut off
QUIET_SECONDS = 20.0  # virtual, in which what is late has come
BLOCKED, BLOCKED_SECONDS = 0.7, 8.0  # how often a loop is, before a pause, and for how long at most
FORCE_SECONDS = 3.0  # virtual, at most, from the acknowledgement of the last one to the end


class PausingWorld(World):
    """A world with an operator who pauses everything, and resumes it, while loops are blocked."""

    loops_block = True

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._own_chance = seeded(seed * 104_729 + 3)  # the others' draws stay as they are
        self._in_force_since: float | None = None
        self._begun: set[int] = set()  # tokens whose code has begun
        self.forced = 0

    def _draw_theme(self) -> str | None:
        theme = super()._draw_theme()
        # not where jobs have short limits: one that is alone in a blocked loop reaches them
        return "outages" if theme in {"stalls", "long pauses"} else theme

    def _stand_ins(self) -> Iterator[Any]:
        yield from super()._stand_ins()
        real = RunnerStarter._begin

        def begin(starter: Any, runner: Any, attempts: Any) -> None:
            tokens = [each.token for each in attempts]
            self._may_begin("were given to a runner", tokens)
            real(starter, runner, attempts)

        yield mock.patch.object(RunnerStarter, "_begin", begin)

    def stepped(self, runner: Any, attempt: Any) -> None:
        """User code has taken a step: its first one is where it begins."""
        if attempt.token not in self._begun and self._is_held(attempt.token):
            self._may_begin("began", [attempt.token])
        self._begun.add(attempt.token)
        super().stepped(runner, attempt)

    def _may_begin(self, how: str, tokens: list[int]) -> None:
        since = self._in_force_since
        if since is not None and self.witness.went_back_at < since:
            self.witness.wrong("nothing of a pause starts", f"attempts {tokens} {how}")

    def _is_held(self, token: int) -> bool:
        """Whether it is the current attempt, of a worker that is not lost."""
        sql = """SELECT 1 FROM outlast_jobs j JOIN outlast_workers w ON w.id = j.worker_id
                 WHERE j.token = ? AND w.status IN ('active', 'draining')"""
        return self.witness._rows.execute(sql, (token,)).fetchone() is not None

    async def _enqueue(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(super()._enqueue())
            group.create_task(self._pause_now_and_then())

    async def _pause_now_and_then(self) -> None:
        for _ in range(TIMES):
            await asyncio.sleep(3.0 * self._own_chance())
            self._block_a_loop()
            new = NewPause(kind=PauseKind.ALL, stop=self._own_chance() < 0.3)
            pause = await self._insist(lambda new=new: self.client.pause(new))  # type: ignore[misc]
            if await self._is_acknowledged(pause.id):
                self._in_force_since = self.loop.now
                self.forced += 1
                await asyncio.sleep(FORCE_SECONDS * self._own_chance())
            self._in_force_since = None
            await self._insist(lambda: self.client.resume(PauseKind.ALL, ""))

    def _block_a_loop(self) -> None:
        """Let attempts lie where they were sent: a neighbour's code holds the loop for a while."""
        runners = [each for worker in self.alive() for each in worker.runners]
        if self.faulty and runners and self._own_chance() < BLOCKED:
            runner = runners[int(self._own_chance() * len(runners))]
            stop_for(self, [runner.process], BLOCKED_SECONDS * self._own_chance())
            self.plan.seen["loop of a runner blocked"] += 1

    async def _quiet(self) -> None:
        """Resume once more: a failover may have lost that, or a request for a pause be late."""
        self.plan.stop()
        await asyncio.sleep(QUIET_SECONDS)
        await self._insist(lambda: self.client.resume(PauseKind.ALL, ""))
        await super()._quiet()

    async def _is_acknowledged(self, pause_id: int) -> bool:
        end = self.loop.now + ACKNOWLEDGE_SECONDS
        while self.loop.now < end:
            sql = """SELECT acknowledged_pauses FROM outlast_workers
                     WHERE status IN ('active', 'draining')"""
            versions = self.witness._rows.execute(sql).fetchall()
            if all(is_acknowledged(pause_id, each) for (each,) in versions):
                return True
            await asyncio.sleep(0.01)
        return False

    async def _insist(self, verb: Callable[[], Any]) -> Any:
        while True:
            try:
                return await verb()
            except StoreError:
                await asyncio.sleep(0.2)


def _hasty() -> Patches:
    real = PauseKeeper._apply

    def later(self: Any, pauses: Any) -> None:
        asyncio.get_running_loop().call_later(0.3, real, self, pauses)

    yield mock.patch.object(PauseKeeper, "_apply", later)


TWINS: Twins = {
    "replies that come late are started": (
        lambda: [mock.patch.object(PauseKeeper, "choose", lambda _, attempts: list(attempts))],
        1,
    ),
    "acknowledged before it is done": (_hasty, 1),
    "what lies in a blocked runner is not recalled": (
        lambda: [mock.patch.object(RunnersControl, "recall", return_value=True)],
        5,
    ),
}


if __name__ == "__main__":
    play_kind(
        PausingWorld,
        TWINS,
        lambda world: world.forced,
        lambda forced: f"{sum(forced)} pauses in force",
    )
