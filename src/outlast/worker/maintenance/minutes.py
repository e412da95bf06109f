"""Writes what the worker has counted to the store, once a minute, and at its end."""

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
LAST_SECONDS = 1.0  # that a worker which leaves waits for its last numbers to be written


class MinuteWriter:
    """The duty that writes the counters. Where nothing was counted it asks the store nothing.

    A batch that may not have arrived is sent again as it was, under the same number and the same
    worker, and the store knows it by these. What is counted meanwhile waits for the next.
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
        """Write what was counted, if it is time to."""
        if (left := self._write_at - self._clock.boot()) > 0:
            return left
        await self._write()
        self._write_at = self._clock.boot() + MINUTE
        return MINUTE

    async def write_last(self) -> None:
        """Write what was counted since, if the store is there: else it is lost."""
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self._write()
                await self._write()  # the first may have been a batch of before
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
        except BadData as error:  # it would be refused again
            emit("duty_failed", duty=self.name, error=text_of(error))
        self._batch = None
