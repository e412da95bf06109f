"""Reads the pauses, starts no paused job, and acknowledges the pauses to the store.

Workers enforce pauses, not the store's claims. Each claim request leaves out paused queues, tasks
and tenants; paused jobs that have not begun are given back, even from runners. Only then does the
worker acknowledge the pause on its row: when the rows of all active workers acknowledge it, nothing
more of it starts. A worker that has registered or reconnected reads the pauses before it claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from outlast.base.clock import Clock
from outlast.events import emit
from outlast.model.pause import NO_PAUSES, Pauses
from outlast.store.protocol import Store
from outlast.store.values import Claimed, ClaimRequest, WorkerRef
from outlast.worker.base import Owner, Running
from outlast.worker.claims.in_flight import InFlight
from outlast.worker.service import Nudge

READ_SECONDS = 3.5  # since the last snapshot or peek, which show the version and come more often
RECALL_SECONDS = 0.05  # between two checks whether the runners have answered a recall
STOP_REASON = "pause"


class PauseKeeper:
    """The duty that reads the pauses, acts on them, and acknowledges them."""

    name = "pauses"

    def __init__(self, owner: Owner, store: Store, in_flight: InFlight, clock: Clock) -> None:
        self._owner = owner
        self._in_flight = in_flight
        self._store = store
        self.nudge = Nudge()
        self._clock = clock
        self._known: WorkerRef | None = None  # the connection that has read the pauses
        self._told: tuple[WorkerRef, str] | None = None  # the acknowledgement on its row
        self._seen: str | None = None  # the version in the last snapshot or peek
        self._seen_at = clock.boot()
        self._soon = False  # something has changed: read without waiting for a snapshot
        self.pauses = NO_PAUSES

    def take_look(self, version: str | None) -> None:
        """Note the version in a snapshot or a peek."""
        if version is None:
            return
        self._seen, self._seen_at = version, self._clock.boot()
        if version != self.pauses.version:
            self.nudge.give()

    def read_soon(self) -> None:
        """Read the pauses now: they may have changed, or the worker has a new row."""
        self._soon = True
        self.nudge.give()

    async def run_once(self) -> float:
        """Read the pauses, unless a snapshot or peek has just shown that they are unchanged."""
        if not self._is_due():
            return max(0.001, self._seen_at + READ_SECONDS - self._clock.boot())
        me, asked_at, self._soon = self._owner.me, self._clock.boot(), False
        pauses = Pauses(await self._store.inspector.pauses())
        if me != self._owner.me:
            return 0.001  # connected again meanwhile: the pauses may be older than that
        self._apply(pauses)
        if self._seen_at <= asked_at:  # else a newer version may have come meanwhile
            self._seen, self._seen_at = pauses.version, asked_at
        if self._known != me:
            self._known = me
            self._owner.look_for_work()
        if self._told != (me, pauses.version):
            recall = self._owner.pool.control.recall
            if not recall(STOP_REASON, lambda claimed: not self.may_start(claimed)):
                return RECALL_SECONDS
            await self._store.acknowledge_pauses(me, pauses.version)
            self._told = me, pauses.version
        return 0.001 if self._is_due() else READ_SECONDS

    def _is_due(self) -> bool:
        changed = self._soon or self._seen not in {None, self.pauses.version}
        late = self._clock.boot() >= self._seen_at + READ_SECONDS
        told = self._told == (self._owner.me, self.pauses.version)
        return changed or late or not told

    def _apply(self, pauses: Pauses) -> None:
        before, self.pauses = self.pauses, pauses
        if before.version == pauses.version:
            return
        emit("pauses_changed", worker_id=self._owner.me.worker_id, pauses=len(pauses.listed))
        known = {pause.id for pause in before.listed}
        stops = Pauses(pause for pause in pauses.listed if pause.stop and pause.id not in known)
        for token, running in list(self._in_flight.running.items()):
            if _is_under(stops, running.claimed):
                self._owner.pool.control.stop(token, STOP_REASON)
        self._owner.look_for_work()  # for work that was resumed

    def are_known(self) -> bool:
        """Whether the pauses were read since the worker has connected: it claims nothing before,
        since another database may answer, one that was set back or is behind."""
        return self._known == self._owner.me

    def may_start(self, claimed: Claimed) -> bool:
        """Whether no pause applies to this job."""
        return not _is_under(self.pauses, claimed)

    def narrow(self, requests: Sequence[ClaimRequest]) -> list[ClaimRequest]:
        """Return claim requests without paused queues, tasks and tenants."""
        if self.pauses.has_all:
            return []
        narrowed = [
            msgspec.structs.replace(
                request,
                tasks=[task for task in request.tasks if task not in self.pauses.tasks],
                not_queues=tuple(sorted(self.pauses.queues)),
                not_tenants=tuple(sorted(self.pauses.tenants)),
            )
            for request in requests
        ]
        return [request for request in narrowed if request.tasks]

    def choose(self, attempts: Iterable[Running]) -> list[Running]:
        """Return the attempts that may start."""
        return [each for each in attempts if self.may_start(each.claimed)]


def _is_under(pauses: Pauses, claimed: Claimed) -> bool:
    return pauses.find(claimed.queue, claimed.task, claimed.tenant) is not None
