"""``python -m tests.sim.expiring FIRST LAST [TWIN]``: seeds in which most jobs expire soon.

The laws: an attempt that is claimed begins before its job expires, and no job that is handed back
before it has begun waits for a time at which it has expired; one that has begun expires no more.
They are judged by the tables' own rows, at the moment of each
exchange, by the store's clock, which may step. With the name of a twin, which lacks one guard, the
first violation is printed instead.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest import mock

import msgspec

from outlast.clock import seeded
from outlast.store.sqlite import exchange as sqlite_exchange
from outlast.store.values import NewJob
from tests.sim.chunks import live_in
from tests.sim.twins import without
from tests.sim.witness import Witness
from tests.sim.world import World

SHARE = 0.7  # of the jobs that expire
LEAST, MOST = 3.5, 20.0  # virtual seconds until they do; none is enqueued for later than 3 s
SWEPT = 1  # jobs that an exchange ends at most, so that claims meet others, too


class ExpiringWorld(World):
    """A world whose jobs expire soon."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._own_chance = seeded(seed * 104_723 + 5)  # the others' draws stay as they are

    def _some_job(self, index: int) -> NewJob:
        new = super()._some_job(index)
        if self._own_chance() >= SHARE:
            return new
        seconds = LEAST + (MOST - LEAST) * self._own_chance() ** 2
        return msgspec.structs.replace(new, expires=seconds)

    def _stand_ins(self) -> Iterator[Any]:
        yield from super()._stand_ins()
        yield mock.patch.object(sqlite_exchange, "EXPIRE_MAX", SWEPT)
        real = Witness._exchanged

        def exchanged(witness: Any, me: Any, ended: Any, reply: Any, before: Any) -> None:
            real(witness, me, ended, reply, before)
            _judge(witness, [claimed.job_id for claimed in reply.claimed])

        yield mock.patch.object(Witness, "_exchanged", exchanged)

    def ends(self) -> Counter[str]:
        """Return how the jobs that expire have ended; expired, where that was why."""
        return self._ends

    async def _end(self) -> None:
        await super()._end()
        sql = """SELECT CASE WHEN state = 'cancelled' AND started_at IS NULL
                                  AND cancel_requested = 0 THEN 'expired' ELSE state END, count(*)
                 FROM outlast_jobs WHERE expires_at IS NOT NULL GROUP BY 1"""
        self._ends = Counter(dict(self.witness._rows.execute(sql).fetchall()))


def _judge(witness: Any, claimed: list[int]) -> None:
    """Hold what was claimed, and what waits, to the laws."""
    for job_id in claimed:
        sql = "SELECT started_at - expires_at FROM outlast_jobs WHERE id = ?"
        (late,) = witness._rows.execute(sql, (job_id,)).fetchone()
        if late is not None and late >= 0:
            witness.wrong("what has expired never begins", f"job {job_id} began {late:.3f} s late")
    sql = """SELECT j.id, j.run_at - j.expires_at, a.outcome FROM outlast_jobs AS j
             JOIN outlast_attempts AS a ON a.token = j.token
             WHERE j.state = 'queued' AND j.expires_at IS NOT NULL
               AND (j.run_at > max(j.expires_at, a.ended_at)
                    OR a.outcome NOT IN ('released', 'undecodable'))"""
    for job_id, late, outcome in witness._rows.execute(sql).fetchall():
        told = f"job {job_id} would begin {late:.3f} s after it expires, after it was {outcome}"
        witness.wrong("what has begun expires no more, and no pause ends a job", told)


Patches = Iterable[AbstractContextManager[Any]]


def _no_sweep() -> Patches:
    yield mock.patch.object(sqlite_exchange, "expire", return_value=0)


def _blind_claims() -> Patches:
    yield mock.patch.object(sqlite_exchange, "_keep_unexpired", lambda cursor, now, found: found)


def _always_expire() -> Patches:
    yield without(sqlite_exchange._SQL, "end", "n.state = 'queued' AND :began", "0")


TWINS: dict[str, Callable[[], Patches]] = {
    "nothing is ended before a claim": _no_sweep,
    "claims do not look at what they meet": _blind_claims,
    "what has begun expires all the same": _always_expire,
}
KNOWN = {  # the first seed that catches it
    "nothing is ended before a claim": 1,
    "claims do not look at what they meet": 31,
    "what has begun expires all the same": 1,
}


def main(first: int, last: int, twin: str | None) -> int:
    """Play seeds; print the first violation, or how the jobs have ended. Return the exit code."""
    ends: Counter[str] = Counter()
    with ExitStack() as stack:
        for patch in TWINS[twin]() if twin else ():
            stack.enter_context(patch)
        for seed in range(first, last + 1):
            world = live_in(ExpiringWorld(seed))
            if world.witness.violations:
                print(f"seed {seed}: {world.witness.violations[0]}")
                return 1
            ends += world.ends()
    print(f"{last - first + 1} seeds, 0 violations, {ends['expired']} jobs expired, {ends}")
    return 0


if __name__ == "__main__":
    code = main(int(sys.argv[1]), int(sys.argv[2]), " ".join(sys.argv[3:]) or None)
    sys.stdout.flush()
    os._exit(code)
