"""Publishes to a worker's messenger: jobs that other workers should claim, and its own state.

A messenger may lose any message, and hears nothing of jobs that the user's own transaction stores,
or that fall due. So the workers together, once in a poll interval however many they are, publish
jobs again that have waited for a while. The store remains the truth: a message for a job that is
gone is acknowledged and forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Sequence

from outlast.base.clock import Clock
from outlast.events import emit
from outlast.model.job import State
from outlast.model.lease import DeathCause
from outlast.model.lifecycle import Transition
from outlast.store.protocol import ServerStore
from outlast.store.values import NewWorker, UnpublishedBatch, WorkerSeen
from outlast.wakeup.inbox import Inbox
from outlast.wakeup.messenger import Messenger
from outlast.wakeup.notice import can_carry, notice_of
from outlast.worker.base import Lease
from outlast.worker.service import Nudge

GRACE_SECONDS = 1.0  # for the notice of the client that enqueued
SWEEP_MAX = 100  # jobs per task and queue in one sweep: the first of their line
REPEAT_SECONDS = 5.0  # announced again after twice this time, then each time after twice the last
LOOK_SECONDS = 1.0  # between two checks of messages without a claim
PAUSE_MIN, PAUSE_MAX = 0.01, 60.0
RECLAIMED_MAX = 10_000  # jobs whose reasons are remembered until the next sweep
TOLD_MAX = 10_000  # remembered attempts that were reported to run elsewhere
FAREWELL_SECONDS = 1.0


class Announcer:
    """The messenger of one worker, and the duty that publishes jobs that no worker has claimed, or
    whose worker is dead."""

    name = "announcer"

    def __init__(
        self,
        messenger: Messenger,
        store: ServerStore,
        new: NewWorker,
        lease: Lease,
        *,
        poll: float,
        clock: Clock,
    ) -> None:
        self.nudge = Nudge()
        self._messenger = messenger
        self._store = store
        self._new = new
        self._lease = lease
        self._poll = poll
        self._clock = clock
        self._reclaimed: dict[int, str] = {}  # job -> why it was taken from a dead worker

    def note_reclaimed(self, applied: Sequence[Transition]) -> None:
        """Note jobs taken from dead workers: the next sweep announces them, with the reason."""
        for each in applied:
            if each.state is State.QUEUED and each.delay <= 0:
                self._reclaimed[each.job_id] = each.message
        while len(self._reclaimed) > RECLAIMED_MAX:  # while the messenger is away
            del self._reclaimed[next(iter(self._reclaimed))]

    async def run_once(self) -> float:
        """Sweep once; return the seconds until this worker's next turn."""
        if not self._messenger.health.good:
            return self._poll
        found = await self.sweep(0.0 if self._reclaimed else GRACE_SECONDS)
        turn = self._poll * max(1, found.workers) * (0.5 + self._clock.random())
        due = math.inf if found.next_due is None else found.next_due
        return max(PAUSE_MIN, min(turn, due, PAUSE_MAX))

    async def sweep(self, grace: float) -> UnpublishedBatch:
        """Announce jobs that have waited for ``grace`` seconds; return the found ones."""
        reclaimed, self._reclaimed = self._reclaimed, {}
        found = await self._store.waiting(grace, SWEEP_MAX)
        await self._messenger.announce(
            [
                notice_of(job, reclaimed.get(job.job_id), repeat_of(job.seconds))
                for job in found.jobs
                if can_carry(job)
            ]
        )
        return found

    def tell_reaped(self, gone: WorkerSeen, cause: DeathCause) -> None:
        """Tell watchers of a worker that is gone."""
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
        new, mine = self._new, {"worker": self._new.name, "worker_id": self._lease.me.worker_id}
        self._messenger.tell(topic, **mine, host=new.host, pid=new.pid, **facts)

    async def leave(self) -> None:
        """Announce the jobs handed back at the end, say goodbye, and close."""
        self.tell("stopped")
        with contextlib.suppress(Exception):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self.sweep(grace=0.0)
                await self._messenger.wait_until_told()
        await self._messenger.close()


def repeat_of(seconds: float) -> int:
    """Return the ordinal of the announcement due after ``seconds`` of waiting. They become ever
    rarer, so that a long line costs little, and each worker makes each once."""
    return 1 + int(math.log2(max(1.0, seconds / REPEAT_SECONDS)))


class Passed:
    """The duty that reports messages whose job another worker runs: of all at once, so that claims
    pay nothing for it. An attempt is reported once: anyone may have written the messages."""

    name = "passed"

    def __init__(self, store: ServerStore, inbox: Inbox, lease: Lease) -> None:
        self.nudge = Nudge()
        self._store = store
        self._inbox = inbox
        self._lease = lease
        self._told: dict[int, None] = {}

    async def run_once(self) -> float:
        """Report each such message, if there are any."""
        passed = self._inbox.take_passed_over()
        if passed:
            for job_id, token, worker, number in await self._store.list_run_elsewhere(
                self._lease.me, passed
            ):
                if token not in self._told:
                    self._told[token] = None
                    emit(
                        "job_skipped_active_elsewhere",
                        job_id=job_id,
                        token=token,
                        worker=worker,
                        worker_id=number,
                    )
                    if len(self._told) > TOLD_MAX:
                        del self._told[next(iter(self._told))]
        return LOOK_SECONDS
