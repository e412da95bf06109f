"""Counts, in memory, how a worker's attempts ended, the deaths that it found, its refused writes.

Counting an end costs one dictionary lookup, two searches in a list of ten and a few additions.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterable

from outlast.base.clock import Clock
from outlast.errors import BadData, StoreError, text_of
from outlast.events import emit
from outlast.model.lease import DeathCause
from outlast.store.minutes import BOUNDS, BUCKETS, OTHER, Counted, CountKind
from outlast.store.protocol import Store
from outlast.worker.base import Lease, Running
from outlast.worker.service import Nudge

LANES_MAX = 1_000  # distinct combinations of queue, task and outcome in a minute
SECONDS_MAX = 1e9  # of one attempt: a longer time means that a clock was changed
_JOBS, _FIRSTS, _SECONDS, _WAITED, _DURATIONS = range(5)
_WAITS = _DURATIONS + BUCKETS
_LENGTH = _WAITS + BUCKETS
_Key = tuple[str, str, str]
MINUTE = 60.0
LAST_SECONDS = 1.0  # for which a worker that ends waits for the write of its last counts


class Counters:
    """The counts since ``take`` was last called, in flat lists, since each attempt updates them."""

    def __init__(self) -> None:
        self._attempts: dict[_Key, list[float]] = {}
        self._others: dict[tuple[CountKind, str], int] = {}

    def note_ends(self, ends: Iterable[tuple[Running, str]]) -> None:
        """Note ends that the store has accepted, each with its outcome."""
        for running, outcome in ends:
            claimed = running.claimed
            counts = self._attempts.get((claimed.queue, claimed.task, outcome))
            if counts is None:
                counts = self._begin(claimed.queue, claimed.task, outcome)
            seconds, waited = running.ended_at - running.started_at, claimed.waited
            counts[_JOBS] += 1
            if claimed.number == 1:
                counts[_FIRSTS] += 1
            counts[_DURATIONS + bisect_left(BOUNDS, seconds)] += 1
            counts[_WAITS + bisect_left(BOUNDS, waited)] += 1
            if 0.0 < seconds < SECONDS_MAX:
                counts[_SECONDS] += seconds
            if 0.0 < waited < SECONDS_MAX:
                counts[_WAITED] += waited

    def note_reclaimed(self, queue: str, task: str, outcome: str) -> None:
        """Note an attempt of another worker that this one has closed."""
        self._begin(queue, task, outcome)[_JOBS] += 1

    def note_death(self, cause: DeathCause, number: int = 1) -> None:
        """Note workers that this one found dead."""
        self._add(CountKind.DEATH, cause.value, number)

    def note_refusal(self, verb: str) -> None:
        """Note a write that the store has refused."""
        self._add(CountKind.REFUSAL, verb)

    def take(self) -> list[Counted]:
        """Return the counts, and start again from zero."""
        taken = [_attempts(key, counts) for key, counts in self._attempts.items()]
        for (kind, outcome), number in self._others.items():
            taken.append(Counted(kind=kind, outcome=outcome, jobs=number))
        self._attempts, self._others = {}, {}
        return taken

    def _begin(self, queue: str, task: str, outcome: str) -> list[float]:
        is_full = len(self._attempts) >= LANES_MAX and (queue, task, outcome) not in self._attempts
        key = (OTHER, OTHER, outcome) if is_full else (queue, task, outcome)
        return self._attempts.setdefault(key, [0] * _LENGTH)

    def _add(self, kind: CountKind, outcome: str, number: int = 1) -> None:
        if number:
            self._others[kind, outcome] = self._others.get((kind, outcome), 0) + number


def _attempts(key: _Key, counts: list[float]) -> Counted:
    queue, task, outcome = key
    return Counted(
        kind=CountKind.ATTEMPT,
        queue=queue,
        task=task,
        outcome=outcome,
        jobs=int(counts[_JOBS]),
        firsts=int(counts[_FIRSTS]),
        seconds=counts[_SECONDS],
        waited=counts[_WAITED],
        durations=[int(each) for each in counts[_DURATIONS:_WAITS]],
        waits=[int(each) for each in counts[_WAITS:]],
    )


class MinuteWriter:
    """The duty that writes the counters, if something was counted.

    A batch that may not have arrived is sent again unchanged, with the same number and worker, by
    which the store recognizes it. Counts made meanwhile wait for the next batch.
    """

    name = "minutes"

    def __init__(self, store: Store, counters: Counters, lease: Lease, clock: Clock) -> None:
        self.nudge = Nudge()
        self._store = store
        self._counters = counters
        self._lease = lease
        self._clock = clock
        self._number = 0
        self._batch: tuple[int, int, list[Counted]] | None = None
        self._write_at = clock.boot() + MINUTE

    async def run_once(self) -> float:
        """Write the counts, if it is time."""
        if (left := self._write_at - self._clock.boot()) > 0:
            return left
        await self._write()
        self._write_at = self._clock.boot() + MINUTE
        return MINUTE

    async def write_last(self) -> None:
        """Write the remaining counts at the worker's end; they are lost if the store is slow."""
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self._write()
                await self._write()  # the first write may have been an earlier batch
        except (StoreError, TimeoutError) as error:
            emit("store_unavailable", duty=self.name, error=text_of(error), count=1)

    async def _write(self) -> None:
        if self._batch is None and (counted := self._counters.take()):
            self._number = max(self._number + 1, int(self._clock.wall()))
            self._batch = (self._lease.me.worker_id, self._number, counted)
        if self._batch is None:
            return
        try:
            await self._store.note_minute(*self._batch)
        except BadData as error:  # the store would refuse it again
            emit("duty_failed", duty=self.name, error=text_of(error))
        self._batch = None
