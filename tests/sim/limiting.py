"""``python -m tests.sim.limiting FIRST LAST [TWIN]``: seeds in which most jobs are under limits.

The laws: a permit counts exactly the attempts that run under it (L1), never more than its limit
allows (L2), no job that may start waits where no worker looks (L3), no more start in any span than
burst and rate allow (L4), and a job of an ordered limit begins only once those before it have ended
for good (L6). They are judged by the tables' own rows after each verb (L4 at the end, of jobs that
have completed), and once more at the end by ``outlast verify``; and all jobs end, as in every
world. With the name of a twin, which lacks one guard, the first violation is printed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import combinations
from typing import Any
from unittest import mock

import msgspec

from outlast.base.clock import seeded
from outlast.errors import StoreError
from outlast.model.limits import LimitSpec, Need, Per, needs_text, permit_id, stream_id
from outlast.store.limits import NewLimit
from outlast.store.sqlite import jobs as sqlite_jobs
from outlast.store.sqlite import refusals
from outlast.store.sqlite import streams as sqlite_streams
from outlast.store.sqlite.permits import Permits
from outlast.store.sqlite.statements import statements
from outlast.store.values import NewJob
from tests.sim.chunks import Patches, Twins, play_kind
from tests.sim.twins import without
from tests.sim.witness import Witness
from tests.sim.world import World

SHARE = 0.8  # of the jobs that are under limits
SPACING, BURST = 2.0, 1.0
LIMITS = [
    NewLimit("few", LimitSpec(running=2)),
    NewLimit("each", LimitSpec(running=1, per=Per.LIMIT_KEY)),
    NewLimit("paced", LimitSpec(spacing=SPACING, burst=BURST)),
    NewLimit("turn", LimitSpec(running=1, per=Per.LIMIT_KEY, ordered=True)),
]
KINDS = [
    (("few", ""),),
    (("few", ""), ("each", "x")),
    (("each", "x"),),
    (("each", "y"), ("paced", "")),
    (("paced", ""),),
    (("turn", "x"),),
    (("turn", "y"), ("few", "")),
    (),  # tenants take turns
]
_SQL = statements("limits")
_ABOVE = """SELECT p.name, p.key, p.used
            FROM outlast_permits AS p JOIN outlast_limits AS l ON l.name = p.name
            WHERE p.used > l.running"""
# A job that was enqueued for later enters the line when it is due: only others are compared by id.
_PASSED = """SELECT b.id, a.id, a.state, a.attempt_count
             FROM outlast_jobs AS b CROSS JOIN outlast_jobs AS a ON a.stream = b.stream
             WHERE b.state = 'running' AND instr(b.needs, ',true]') > 0 AND a.id <> b.id
             AND a.state IN ('queued', 'running')
             AND (a.attempt_count > 0 OR a.id < b.id
                  AND a.run_at <= a.enqueued_at AND b.run_at <= b.enqueued_at)"""
_PACED = """SELECT started_at FROM outlast_jobs
            WHERE state = 'completed' AND instr(needs, '"paced"') > 0 ORDER BY started_at"""


class LimitingWorld(World):
    """A world whose jobs are under limits."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.most = seed % 4  # 0: as in production
        self._own_chance = seeded(seed * 104_729 + 7)  # the others' draws stay as they are
        self.limited = 0

    def _some_job(self, index: int) -> NewJob:
        new = super()._some_job(index)
        if self._own_chance() >= SHARE:
            return new
        self.limited += 1
        kind = KINDS[int(self._own_chance() * len(KINDS))]
        needs = [
            Need(permit_id(name, key), name, key, ordered=name == "turn") for name, key in kind
        ]
        if any(need.ordered for need in needs):  # as the client asks for
            new = msgspec.structs.replace(new, priority=0)
        fair = None if needs else f"t{int(3 * self._own_chance())}"
        stream = stream_id(new.task, new.queue, new.priority, needs, fair)
        return msgspec.structs.replace(new, stream=stream, needs=needs_text(needs))

    async def _enqueue(self) -> None:
        await self._declare()
        await super()._enqueue()

    async def _quiet(self) -> None:
        """Declare once more, as workers do at each start: a failover may have lost it."""
        self.plan.stop()
        await self._declare()
        await super()._quiet()
        if self.store_host.wall_step_max == 0 == self.store_host.wall_step:
            self._judge_rate()

    async def _declare(self) -> None:
        while True:
            try:
                return await self.client.declare_limits(LIMITS)
            except StoreError:
                await asyncio.sleep(0.2)

    def _stand_ins(self) -> Iterator[Any]:
        yield from super()._stand_ins()
        real = Witness.judge

        def judge(witness: Any, *args: Any) -> None:
            real(witness, *args)
            self._judge_permits(witness)

        yield mock.patch.object(Witness, "judge", judge)

    def _judge_permits(self, witness: Any) -> None:
        values = {"now": self.store_clock.wall(), "most": 5}
        if wrong := witness._rows.execute(_SQL["miscounted"], values).fetchall():
            witness.wrong("limits hold: permits count what runs", f"{wrong}")
        if wrong := witness._rows.execute(_ABOVE).fetchall():
            witness.wrong("no more run than a limit allows", f"{wrong}")
        if wrong := witness._rows.execute(_PASSED).fetchall():
            witness.wrong("limits hold: ordered jobs take their turns", f"{wrong}")
        if wrong := witness._rows.execute(_SQL["forgotten"], values).fetchall():
            witness.wrong("limits hold: no stream is forgotten", f"{wrong}")

    def _judge_rate(self) -> None:
        if self.witness.went_back_at > 0:  # starts are lost with what they have spent
            return
        starts = [row[0] for row in self.witness._rows.execute(_PACED)]
        for first, last in combinations(range(len(starts)), 2):
            seconds = starts[last] - starts[first]
            if last - first + 1 > BURST + seconds / SPACING + 1e-6:
                said = f"{last - first + 1} in {seconds:.3f} s"
                self.witness.wrong("limits hold: no faster than the rate", said)


_OF_A_JOB = """UPDATE outlast_permits SET used = max(0, used + ?) WHERE id IN (
    SELECT json_extract(j.needs, e.fullkey || '[0]')
    FROM outlast_jobs AS j CROSS JOIN json_each(j.needs) AS e WHERE j.id = ?)"""


def _settled_twice() -> Patches:
    real = refusals.judge

    def judge(cursor: Any, now: float, job_id: int, *args: Any, **named: Any) -> Any:
        cursor.execute(_OF_A_JOB, (-1, job_id))
        return real(cursor, now, job_id, *args, **named)

    yield mock.patch("outlast.store.sqlite.exchange.judge", judge)


def _taken_in_the_queue() -> Patches:
    real = sqlite_jobs._enqueue_one

    def enqueue_one(cursor: Any, *args: Any) -> Any:
        made = real(cursor, *args)
        if made.created:
            cursor.execute(_OF_A_JOB, (1, made.job_id))
        return made

    yield mock.patch.object(sqlite_jobs, "_enqueue_one", enqueue_one)


def _idle_in_any_case() -> Patches:
    blocked = (
        "blocked = CASE WHEN e.waits THEN json_extract(e.value, '$[2]') END, idle = NOT e.waits"
    )
    yield without(sqlite_streams._SQL, "note_looks", blocked, "blocked = NULL, idle = 1")


def _next_after_a_failure() -> Patches:
    real = sqlite_streams.Streams._note

    def note(self: Any, looks: Any, started: Any) -> None:
        for look in looks:
            look.holder = None
        real(self, looks, started)

    yield mock.patch.object(sqlite_streams.Streams, "_note", note)


def _rate_of_each_worker() -> Patches:
    real_note: Any = Permits._note
    real_row = Permits._row
    times: dict[tuple[int, int], float] = {}

    def note(self: Any, need: Need, *values: Any) -> None:
        own = times.get((id(self._cursor.connection), need.permit), 0.0)
        real_note(self, need, *values[:5], own, *values[6:])

    def row(self: Any, known: Any) -> tuple[Any, ...]:
        made = real_row(self, known)
        times[id(self._cursor.connection), made[0]] = made[4]
        return made

    yield mock.patch.object(Permits, "_note", note)
    yield mock.patch.object(Permits, "_row", row)


TWINS: Twins = {
    "a refused end gives a permit back": (_settled_twice, 3),
    "a permit is taken in the queue": (_taken_in_the_queue, 1),
    "a stream is idle although jobs wait": (_idle_in_any_case, 1),
    "the next job of a key starts while the first waits for a retry": (_next_after_a_failure, 5),
    "a rate is kept by each worker": (_rate_of_each_worker, 4),
}


if __name__ == "__main__":
    play_kind(
        LimitingWorld,
        TWINS,
        lambda world: world.limited,
        lambda limited: f"{sum(limited)} jobs under limits",
    )
