"""Announces jobs that wait unpublished: a messenger may lose any message.

A message can be lost after the commit; a job can be stored by the user's own transaction, which
publishes nothing, or fall due; a stream can be deleted. So the workers together, once in a poll
interval however many they are, find jobs that have waited for a while and publish them again. The
store remains the truth: a message for a job that is gone is acknowledged and forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from outlast.base.clock import Clock
from outlast.events import emit
from outlast.store.protocol import ServerStore, Store
from outlast.store.unpublished import Unpublished, UnpublishedBatch
from outlast.store.values import WorkerRef
from outlast.store.wakeup import Wakeup
from outlast.wakeup.inbox import Inbox
from outlast.wakeup.messenger import Messenger
from outlast.wakeup.notice import Notice, can_carry, notice_of

GRACE_SECONDS = 1.0  # for the notice of the client that enqueued
SWEEP_MAX = 100  # jobs per task and queue in one sweep: the first of their line
REPEAT_SECONDS = 5.0  # announced again after twice this time, then each time after twice the last
LOOK_SECONDS = 1.0  # between two checks of the wake-up's health, and of messages without a claim
PAUSE_MIN, PAUSE_MAX = 0.01, 60.0
RECLAIMED_MAX = 10_000  # jobs whose reasons are remembered until the next sweep
TOLD_MAX = 10_000  # remembered attempts that were reported to run elsewhere


class Sweeper:
    """The duty that publishes jobs that no worker has claimed, or whose worker is dead."""

    name = "sweeper"

    def __init__(
        self, store: ServerStore, messenger: Messenger, *, poll: float, clock: Clock
    ) -> None:
        self._store = store
        self._messenger = messenger
        self._poll = poll
        self._clock = clock
        self._reclaimed: dict[int, str] = {}

    def note_reclaimed(self, job_id: int, reason: str) -> None:
        """Note a job taken from a dead worker: the next sweep announces it, with the reason."""
        self._reclaimed[job_id] = reason
        if len(self._reclaimed) > RECLAIMED_MAX:  # while the messenger is away
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
        sound = filter(can_carry, found.jobs)
        notices = [self._notice(job, reclaimed.get(job.job_id)) for job in sound]
        await self._messenger.announce(notices)
        return found

    @staticmethod
    def _notice(job: Unpublished, reason: str | None) -> Notice:
        return notice_of(job, reason, repeat_of(job.seconds))


def repeat_of(seconds: float) -> int:
    """Return the ordinal of the announcement that is due after ``seconds`` of waiting.
    Announcements become ever rarer, so that a long line costs the messenger little. All workers
    compute the same ordinal, so the messenger drops the duplicates that several of them publish."""
    return 1 + int(math.log2(max(1.0, seconds / REPEAT_SECONDS)))


class Passed:
    """The duty that reports messages whose job another worker runs.

    It asks the store afterwards, for all of them at once, so that claims pay nothing for it. An
    attempt is reported once, however many messages name its job: anyone may have written them.
    """

    name = "passed"

    def __init__(self, store: ServerStore, inbox: Inbox, me: Callable[[], WorkerRef]) -> None:
        self._store = store
        self._inbox = inbox
        self._me = me
        self._told: dict[int, None] = {}

    async def run_once(self) -> float:
        """Report each such message, if there are any."""
        passed = self._inbox.take_passed_over()
        if passed:
            for job_id, token, worker, number in await self._store.list_run_elsewhere(
                self._me(), passed
            ):
                if not self._is_news(token):
                    continue
                emit(
                    "job_skipped_active_elsewhere",
                    job_id=job_id,
                    token=token,
                    worker=worker,
                    worker_id=number,
                )
        return LOOK_SECONDS

    def _is_news(self, token: int) -> bool:
        if token in self._told:
            return False
        self._told[token] = None
        if len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]
        return True


class WakeupTeller:
    """The duty that writes the health of the wake-ups to the worker's row."""

    name = "wakeup"

    def __init__(self, wakeup: Wakeup, store: Store, me: Callable[[], WorkerRef]) -> None:
        self._wakeup = wakeup
        self._store = store
        self._me = me
        self._told = (0, "")

    async def run_once(self) -> float:
        """Write the health, if it has changed."""
        me = self._me()
        now = me.worker_id, str(self._wakeup.health)
        if now != self._told and self._wakeup.health.known:
            await self._store.tell_wakeup(me, now[1])
            self._told = now
        return LOOK_SECONDS
