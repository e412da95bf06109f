"""Carry out bulk actions that this process began, or that another one abandoned.

The row of an action records how far it has come. So if its process dies, another process continues
it, or this one after a restart: when a visitor opens a page of actions and the row has not moved
for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from outlast.base.clock import Clock
from outlast.errors import OutlastError
from outlast.insight.bulk import PATIENCE, go_on
from outlast.store.protocol import Store

RUNNING_MAX = 20  # abandoned actions that are continued at the same time


class BulkRunner:
    """The tasks that take the steps of bulk actions, on the loop that serves."""

    def __init__(
        self, writer: Callable[[], Awaitable[Store]], clock: Clock, *, read_only: bool
    ) -> None:
        """``read_only``: continue no action."""
        self._writer = writer
        self._read_only = read_only
        self._clock = clock
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def start(self, action_id: int) -> None:
        """Carry out an action to its end, in the background."""

        async def work() -> None:
            async for _ in go_on(await self._writer(), action_id, self._clock):
                pass

        self._begin(action_id, work)

    def look_for_left(self) -> None:
        """Continue abandoned actions, in the background: the start does not wait for the store."""
        self._begin(0, self.go_on_with_left)

    def _begin(self, key: int, work: Callable[[], Awaitable[None]]) -> None:
        if key in self._tasks:
            return

        async def run() -> None:
            with suppress(OutlastError):  # the next visit to the actions tries again
                await work()

        made = asyncio.get_running_loop().create_task(run(), name=f"outlast-bulk-{key}")
        self._tasks[key] = made
        made.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def go_on_with_left(self) -> None:
        """Continue actions that no process has moved for PATIENCE seconds."""
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
        """Stop here; another process continues the running actions."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
