"""Publishes to a worker's messenger: jobs that other workers should claim, and its own state.

Without a messenger it does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence

from outlast.base.clock import Clock
from outlast.model.job import State
from outlast.model.lease import DeathCause
from outlast.model.lifecycle import Transition
from outlast.store.protocol import ServerStore, Store
from outlast.store.values import NewWorker, WorkerRef, WorkerSeen
from outlast.store.wakeup import Wakeup
from outlast.wakeup.inbox import Inbox
from outlast.wakeup.messenger import Messenger
from outlast.worker.base import AttemptStarter
from outlast.worker.maintenance.sweeper import Passed, Sweeper, WakeupTeller
from outlast.worker.service import Duty

FAREWELL_SECONDS = 1.0


class Announcer:
    """The messenger of one worker, if its wake-up is one."""

    def __init__(
        self,
        wakeup: Wakeup | None,
        store: Store,
        new: NewWorker,
        me: Callable[[], WorkerRef],
        starter: AttemptStarter,
        *,
        poll: float,
        clock: Clock,
    ) -> None:
        self._wakeup = wakeup
        self._starter = starter
        self._store = store
        self._new = new
        self._me = me
        self._messenger = wakeup if isinstance(wakeup, Messenger) else None
        self.sweeper: Sweeper | None = None
        self.passed: Passed | None = None
        if self._messenger is not None and isinstance(store, ServerStore):
            self.sweeper = Sweeper(store, self._messenger, poll=poll, clock=clock)
            if self._messenger.inbox is not None:
                self.passed = Passed(store, self._messenger.inbox, me)

    @property
    def inbox(self) -> Inbox | None:
        """The inbox for the names of jobs."""
        return None if self._messenger is None else self._messenger.inbox

    async def start(self, on_wake: Callable[[str], None]) -> None:
        """Begin to listen, and to take messages about tasks that the worker serves; messages about
        other tasks go on to other workers."""
        if self._messenger is not None:
            await self._messenger.start(on_wake, self._knows)
        elif self._wakeup is not None:
            await self._wakeup.start(on_wake)

    def _knows(self, task: str) -> bool:
        return task in self._starter.tasks()

    def duties(self) -> Iterator[Duty]:
        """Return the duties of announcing."""
        if self._wakeup is not None:
            yield WakeupTeller(self._wakeup, self._store, self._me)
        if self.sweeper is not None:
            yield self.sweeper
        if self.passed is not None:
            yield self.passed

    def announce_reclaimed(self, applied: Sequence[Transition]) -> None:
        """Announce, with the next sweep, jobs taken from dead workers that may run at once."""
        for each in applied:
            if self.sweeper is not None and each.state is State.QUEUED and each.delay <= 0:
                self.sweeper.note_reclaimed(each.job_id, each.message)

    def tell_reaped(self, gone: WorkerSeen, cause: DeathCause) -> None:
        """Tell watchers of a worker that is gone."""
        if self._messenger is not None:
            self._messenger.tell(
                "deactivated",
                worker=gone.name,
                worker_id=gone.worker_id,
                host=gone.host,
                cause=cause.value,
                age=gone.age,
            )

    def tell(self, topic: str, **facts: object) -> None:
        """Tell watchers something about this worker."""
        if self._messenger is not None:
            mine = {"worker": self._new.name, "worker_id": self._me().worker_id}
            self._messenger.tell(topic, **mine, host=self._new.host, pid=self._new.pid, **facts)

    async def leave(self) -> None:
        """Announce the jobs handed back at the end, say goodbye, and close."""
        if self._messenger is None:
            return
        self.tell("stopped")
        with contextlib.suppress(Exception):
            async with asyncio.timeout(FAREWELL_SECONDS):
                if self.sweeper is not None:
                    await self.sweeper.sweep(grace=0.0)
                await self._messenger.wait_until_told()
        await self._messenger.close()
