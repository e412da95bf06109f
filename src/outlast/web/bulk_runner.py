"""Bulk actions that this process goes on with: those that it began, and those that were left.

How far an action has come is in its row. So one that ends with its process is gone on with by
another, or by this one after a restart: whenever actions are looked at, and none of its steps was
taken for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from outlast.clock import Clock
from outlast.errors import OutlastError
from outlast.insight.bulk import PATIENCE, go_on
from outlast.store.protocol import Store

RUNNING_MAX = 20  # actions that are gone on with at once


class BulkRunner:
    """The tasks that take the steps of bulk actions, on the loop that serves."""

    def __init__(
        self, writer: Callable[[], Awaitable[Store]], clock: Clock, *, read_only: bool
    ) -> None:
        """``read_only``: leave all of them to others."""
        self._writer = writer
        self._read_only = read_only
        self._clock = clock
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def start(self, action_id: int) -> None:
        """Go on with an action until it is over, beside the answers that this process gives."""
        task = self._tasks.get(action_id)
        if task is not None and not task.done():
            return
        loop = asyncio.get_running_loop()
        made = loop.create_task(self._go_on(action_id), name=f"outlast-bulk-{action_id}")
        self._tasks[action_id] = made
        made.add_done_callback(lambda _: self._tasks.pop(action_id, None))

    def look_for_left(self) -> None:
        """Go on with what was left, once this process serves; it does not wait for the store."""
        made = asyncio.get_running_loop().create_task(self._look(), name="outlast-bulk-look")
        self._tasks[0] = made
        made.add_done_callback(lambda _: self._tasks.pop(0, None))

    async def _look(self) -> None:
        with suppress(OutlastError):  # the next look at actions does
            await self.go_on_with_left()

    async def go_on_with_left(self) -> None:
        """Go on with actions of which no step was taken for a while: their process has died."""
        if self._read_only:
            return
        store = await self._writer()
        rows = await store.inspector.running_actions(RUNNING_MAX)
        if rows:
            now = await store.inspector.now()
            for row in rows:
                if now - row.moved_at > PATIENCE:
                    self.start(row.id)

    async def close(self) -> None:
        """Take no more steps here. What is under way is left to others."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _go_on(self, action_id: int) -> None:
        try:
            async for _ in go_on(await self._writer(), action_id, self._clock):
                pass
        except OutlastError:
            return  # its row says how far it came; the next look at actions goes on
