"""``python -m tests.sim.flowing FIRST LAST [TWIN]``: seeds in which most jobs wait for others.

Jobs wait for one, two or three earlier ones, which may run, wait, or have ended by then, and which
are cancelled, requeued and lost as in every world. The laws: no job is open while something is left
that it waits for, none is blocked by an end that no notice tells (L7, L8), and none runs or has run
unless all have ended as wanted, a requeue by a person excepted. They are judged by the tables' own
rows after each verb, and once more at the end by ``outlast verify``; and all jobs end. With the
name of a twin, which lacks one guard, the first violation is printed.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import msgspec

from outlast.base.clock import seeded
from outlast.errors import JobNotFound
from outlast.store.sqlite import dependencies
from outlast.store.sqlite.statements import statements
from outlast.store.values import NewJob, Upstream, Wants
from tests.sim.chunks import Patches, Twins, play_kind
from tests.sim.twins import without
from tests.sim.world import Laws, World

SHARE = 0.7  # of the jobs that wait for others
NEAR = 12  # of the newest jobs, those that one may wait for
UNRESOLVED = statements("inspect")["unresolved"].replace(":most", "5")
_EARLY = """SELECT g.id, d.upstream_id FROM outlast_dependencies AS d
            JOIN outlast_jobs AS g ON g.id = d.job_id JOIN outlast_jobs AS u ON u.id = d.upstream_id
            WHERE g.state IN ('queued', 'running') AND g.requeued_at IS NULL
              AND u.requeued_at IS NULL
              AND d.wants <> 1 AND u.state <> iif(d.wants = 0, 'completed', 'dead')"""


class FlowingWorld(World):
    """A world whose jobs wait for others."""

    laws: Laws = {
        "flows hold: what is blocked waits for something": UNRESOLVED,
        "flows hold: nothing opens early": _EARLY,
    }

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.most = seed % 4  # 0: as in production
        self._own_chance = seeded(seed * 224_737 + 3)  # the others' draws stay as they are
        self._last: list[int] = []
        self.waited = 0

    def _some_job(self, index: int) -> NewJob:
        new = super()._some_job(index)
        self._last = sorted(self.witness.accepted)[-NEAR:]
        if not self._last or self._own_chance() >= SHARE:
            return new
        chosen = {self._any_of(self._last) for _ in range(1 + int(3 * self._own_chance()))}
        return msgspec.structs.replace(
            new, after=tuple(Upstream(each, self._any_of([*Wants])) for each in sorted(chosen))
        )

    def _any_of(self, listed: Any) -> Any:
        return listed[int(self._own_chance() * len(listed))]

    async def _enqueue_one(self, new: NewJob) -> None:
        try:
            await super()._enqueue_one(new)
        except JobNotFound:  # the store has lost it, or it was deleted
            await super()._enqueue_one(msgspec.structs.replace(new, after=()))
        self.waited += bool(new.after)


def _unawaited() -> Patches:
    yield without(dependencies._SQL, "await", "awaited = 1 ", "awaited = 0 ")


def _first_end_opens() -> Patches:
    left = "d.job_id = e.value AND d.state <> 2 AND d.state < 2"
    yield without(dependencies._SQL, "left", left, f"{left} AND false")


def _any_end_counts() -> Patches:
    yield mock.patch.dict(dependencies._WANTED, {Wants.COMPLETED: "dead", Wants.DEAD: "completed"})


def _round_is_done() -> Patches:
    yield mock.patch.object(dependencies, "max", return_value=0, create=True)


TWINS: Twins = {
    "ends of upstream jobs are not noted": (_unawaited, 1),
    "the first end opens": (_first_end_opens, 1),
    "another end counts as well": (_any_end_counts, 4),
    "a full round is the last one": (_round_is_done, 1),
}


if __name__ == "__main__":
    play_kind(
        FlowingWorld,
        TWINS,
        lambda world: world.waited,
        lambda waited: f"{sum(waited)} jobs that wait for others",
    )
