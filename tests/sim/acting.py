"""``python -m tests.sim.acting FIRST LAST [TWIN]``: seeds in which operators act on all dead jobs.

Each requeues or discards what a preview has shown, step by step, while calls are lost and operators
are killed; others go on with what is left. The laws: an action changes exactly the jobs that were
dead when it was previewed, each once, none of them is left out, and its row counts what was done.
Where the store's clock was set back since the preview, it may also change jobs that have died since
at an earlier time of that clock.
With the name of a twin, which lacks one guard, the first violation is printed instead.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

from outlast.base.clock import seeded
from outlast.errors import OutlastError, StoreError
from outlast.insight import bulk
from outlast.insight.acting import By, Verb
from outlast.model.job import Policy
from outlast.store import acts
from outlast.store.actions import BulkStep
from outlast.store.values import NewJob
from tests.sim.chunks import Patches, Twins, play_kind
from tests.sim.loop import AROUND, PROCESS, Process
from tests.sim.witness import Verb as WitnessedVerb
from tests.sim.witness import Witness
from tests.sim.world import World

JOBS = 14  # that die soon
ROUNDS = 10  # of operators in a seed
STEP = 2  # jobs in a step
SLOW = {"slow": 0.2, "done late": 0.1}  # calls: what was read is old when something is done
ARGS = '{"steps":1,"pause":0.2,"ending":"error","saves":false}'


class ActingWorld(World):
    """A world of jobs that die, and of people who requeue or discard them all."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._own_chance = seeded(seed * 104_717 + 9)
        self.plan.rates |= SLOW
        self.acts = Acts(self)
        self._operators = 0

    def _draw_theme(self) -> str | None:
        theme = super()._draw_theme()
        return "calls" if theme in {"failovers", "copies"} else theme

    def _stand_ins(self) -> Iterator[Any]:
        yield from super()._stand_ins()
        yield mock.patch.object(bulk, "STEP", STEP)
        yield mock.patch.object(bulk, "SEARCH", 5)
        real = Witness.watch

        async def watch(witness: Any, name: str, verb: Any, args: Any, kwargs: Any) -> Any:
            act = self.acts.made_by(name, args, kwargs)
            if act is None:
                return await real(witness, name, verb, args, kwargs)
            mark = AROUND.set(act)
            try:
                return await verb(*args, **kwargs)
            finally:
                AROUND.reset(mark)

        yield mock.patch.object(Witness, "watch", watch)

    def _some_job(self, index: int) -> NewJob:
        return NewJob(task="work", args=ARGS, policy=Policy(retries=0))  # a key may be taken

    async def _enqueue(self) -> None:
        async with asyncio.TaskGroup() as group:
            for index in range(JOBS):
                group.create_task(self._enqueue_one(self._some_job(index)))
            group.create_task(self._operate())

    async def _operate(self) -> None:
        for _ in range(ROUNDS):
            await asyncio.sleep(3.0 * self._own_chance())
            killed = self._start(self._act)
            if self._own_chance() < 0.7:
                await asyncio.sleep(0.05 * self._own_chance())
                self._start(self._go_on)
            if self._own_chance() < 0.4:
                await asyncio.sleep(0.1 * self._own_chance())
                self.loop.kill(killed)

    def _start(self, what: Callable[[], Any]) -> Process:
        """Let another program do it."""
        self._operators += 1
        process, context = Process(f"operator {self._operators}"), copy_context()
        context.run(PROCESS.set, process)
        self.keep(self.loop.create_task(what(), context=context))
        return process

    async def _act(self) -> None:
        verb = Verb.DISCARD if self._own_chance() < 0.1 else Verb.REQUEUE
        try:
            seen = await bulk.preview(self.client, verb, bulk.BulkFilter())
            if seen.count:
                await asyncio.sleep(1.0 * self._own_chance())
                action_id = await bulk.begin(self.client, seen, By("operator"))
                await self._take_steps(action_id)
        except OutlastError:  # it ends with an error, and leaves the action as it stands
            return

    async def _go_on(self) -> None:
        look = self.disk.look()
        rows = look.execute("SELECT id FROM outlast_actions WHERE state = 'running'").fetchall()
        look.close()
        for (action_id,) in rows:
            try:
                await self._take_steps(action_id)
            except StoreError:
                return

    async def _take_steps(self, action_id: int) -> None:
        async for _ in bulk.go_on(self.client, action_id, self.store_clock):
            await asyncio.sleep(0.02 * self._own_chance())

    async def _quiet(self) -> None:
        self.plan.stop()
        await asyncio.sleep(20.0)  # what is late has come
        await self._go_on()
        await super()._quiet()
        self.acts.judge_the_whole()


@dataclass(frozen=True)
class Order:
    """What an action is to change. ``due``: the dead jobs at its begin, with their tokens;
    ``begun_at``: on the loop's clock; -inf where the store's clock was then before ``as_of``."""

    due: dict[int, int]
    up_to_id: int
    as_of: float
    begun_at: float


NO_ORDER = Order({}, 0, 0.0, float("inf"))  # of an action whose begin was not seen


class Acts:
    """What bulk actions have really done, by the tables before and after each verb."""

    def __init__(self, world: ActingWorld) -> None:
        self._world = world
        self._orders: dict[int, Order] = {}  # by action
        self._done: dict[int, Counter[int]] = {}  # action -> jobs, how often
        self.changed = 0

    def made_by(self, name: str, args: Any, kwargs: Any) -> WitnessedVerb | None:
        """Return what judges a verb of a bulk action."""
        if name in {"requeue", "discard"} and isinstance(kwargs.get("record"), BulkStep):
            return Act(self, kwargs["record"].action_id)
        if name == "take_step":
            return Act(self, args[0].action_id)
        if name == "note" and args[0].bulk is not None:
            return Act(self, None)
        return None

    def dead(self) -> dict[int, tuple[int, float]]:
        """Return token and end of each dead job."""
        sql = "SELECT id, token, ended_at FROM outlast_jobs WHERE state = 'dead'"
        return {job_id: (token, ended) for job_id, token, ended in self._all(sql)}

    def note_begin(self, action_id: int) -> None:
        """Note which jobs the action is to change."""
        up_to_id, as_of = self._all(
            "SELECT up_to_id, as_of FROM outlast_actions WHERE id = ?", action_id
        )[0]
        due = {
            job_id: token
            for job_id, (token, ended) in self.dead().items()
            if job_id <= up_to_id and ended <= as_of
        }
        was_set_back = self._world.store_clock.wall() < as_of
        begun_at = float("-inf") if was_set_back else self._world.loop.now
        self._orders[action_id] = Order(due, up_to_id, as_of, begun_at)
        self._done[action_id] = Counter()

    def note_step(self, action_id: int, before: dict[int, tuple[int, float]]) -> None:
        """Hold what a step has changed to what was due."""
        left = self.dead()
        order = self._orders.get(action_id, NO_ORDER)
        for job_id in before.keys() - left.keys():
            self.changed += 1
            self._done[action_id][job_id] += 1
            token, ended = before[job_id]
            if order.due.get(job_id) != token and not self._seems_due(order, job_id, ended):
                self._wrong(f"action {action_id} changed job {job_id}, which it was not to")
            if self._is_gone(job_id):  # so that its end, if it is written again, is unknown
                self._world.witness.forget_job(job_id, before[job_id][0])
        state = self._all("SELECT state FROM outlast_actions WHERE id = ?", action_id)[0][0]
        for job_id, token in order.due.items():
            if state == "done" and job_id in left and left[job_id][0] == token:
                self._wrong(f"action {action_id} is done, and has left out job {job_id}")

    def _seems_due(self, order: Order, job_id: int, ended: float) -> bool:
        """Whether a job that has died since can only be taken for one that was dead: the store's
        clock was set back in between, and its end has a time before the preview."""
        was_set_back = self._world.store_host.set_back_at >= order.begun_at
        return was_set_back and job_id <= order.up_to_id and ended <= order.as_of

    def judge_the_whole(self) -> None:
        """Hold what the rows count to what was done; all of them are over."""
        if self._world.witness.went_back_at > 0:
            return
        for action_id, state, counts in self._all("SELECT id, state, counts FROM outlast_actions"):
            if state != "done":
                self._wrong(f"action {action_id} is {state}")
            told = json.loads(counts)
            count = told.get("requeued", 0) + told.get("discarded", 0)
            done = self._done[action_id].total()
            if count != done:
                self._wrong(f"action {action_id} counts {count} jobs, and changed {done}")

    def _is_gone(self, job_id: int) -> bool:
        return not self._all("SELECT 1 FROM outlast_jobs WHERE id = ?", job_id)

    def _wrong(self, what: str) -> None:
        if self._world.witness.went_back_at < 0:  # what was committed is there
            self._world.witness.wrong("an act is exactly what was ordered", what)

    def _all(self, sql: str, *values: object) -> list[Any]:
        rows: list[Any] = self._world.witness._rows.execute(sql, values).fetchall()
        return rows


class Act(WitnessedVerb):
    """One verb of an action; without an id: its begin."""

    def __init__(self, acts: Acts, action_id: int | None) -> None:
        self._acts = acts
        self._action_id = action_id
        self._dead: dict[int, tuple[int, float]] = {}

    def before(self) -> None:
        """Read which jobs are dead."""
        self._dead = self._acts.dead()

    def after(self, reply: Any) -> None:
        """Judge."""
        if self._action_id is None:
            self._acts.note_begin(reply)
        else:
            self._acts.note_step(self._action_id, self._dead)


def _two_commits() -> Patches:
    async def act(self: Any, record: Any, deed: Any, count: Any) -> Any:
        done = await self._in_transaction(deed)

        async def told(_: Any) -> Any:
            return done

        record_it = partial(acts._do, record=record, deed=told, count=count)
        await self._in_transaction(record_it)
        return done

    yield mock.patch.object(acts.ActVerbs, "_act", act)


def _any_token() -> Patches:
    lock = acts._lock
    yield mock.patch.object(acts, "_lock", lambda it, ids, _: lock(it, ids, None))


TWINS: Twins = {
    "what died since is taken, too": (
        lambda: [mock.patch.object(bulk, "_came_at", return_value=0.0)],
        1,
    ),
    "a job that has died again is the same": (_any_token, 6),
    "the act and its record are two commits": (_two_commits, 6),
}


if __name__ == "__main__":
    play_kind(
        ActingWorld,
        TWINS,
        lambda world: world.acts.changed,
        lambda changed: f"{sum(changed)} jobs changed by bulk actions",
    )
