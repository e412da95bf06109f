"""Writes the worker's counts to the store, once a minute and at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from outlast.base.clock import Clock
from outlast.errors import BadData, StoreError, text_of
from outlast.events import emit
from outlast.store.minutes import Counted
from outlast.store.protocol import Store
from outlast.store.values import WorkerRef
from outlast.worker.claims.counters import Counters

MINUTE = 60.0
LAST_SECONDS = 1.0  # for which a leaving worker waits for the write of its last counts


class MinuteWriter:
    """The duty that writes the counters. If nothing was counted it sends no statement.

    A batch that may not have arrived is sent again unchanged, under the same number and worker, by
    which the store recognises it. Counts made meanwhile wait for the next batch.
    """

    name = "minutes"

    def __init__(
        self, store: Store, counters: Counters, me: Callable[[], WorkerRef], clock: Clock
    ) -> None:
        self._store = store
        self._counters = counters
        self._me = me
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
        """Write the counts since then, if the store answers; else they are lost."""
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self._write()
                await self._write()  # the first write may have been an earlier batch
        except (StoreError, TimeoutError) as error:
            emit("store_unavailable", duty=self.name, error=text_of(error), count=1)

    async def _write(self) -> None:
        if self._batch is None and (counted := self._counters.take()):
            self._number = max(self._number + 1, int(self._clock.wall()))
            self._batch = (self._me().worker_id, self._number, counted)
        if self._batch is None:
            return
        try:
            await self._store.note_minute(*self._batch)
        except BadData as error:  # the store would refuse it again
            emit("duty_failed", duty=self.name, error=text_of(error))
        self._batch = None
