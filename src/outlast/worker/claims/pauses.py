"""What is paused, as this worker knows it; it starts nothing of that, and tells the store so.

The pause is kept here, not in the store's claims. What is paused is left out of each claim; what a
claim brings that was asked for before is given back, and what has not begun is recalled, from its
runner as well. Only then does the worker acknowledge the pause on its row: who sees that on
the rows of all active workers may rely on it. A worker that has registered claims nothing before
it has read what is paused: so one that no one has waited for starts nothing of it, either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from outlast.base.clock import Clock
from outlast.events import emit
from outlast.model.pause import NO_PAUSES, Pauses
from outlast.store.protocol import Store
from outlast.store.values import Claimed, ClaimRequest, WorkerRef
from outlast.worker.base import Owner
from outlast.worker.claims.ledger import Ledger
from outlast.worker.running import Running
from outlast.worker.service import Nudge

READ_SECONDS = 3.5  # since the last look or peek, which shows the version, and was due before
RECALL_SECONDS = 0.05  # between two looks whether the runners have answered a recall
STOP_REASON = "pause"


Row = tuple[int, str | None]  # id and registration of a worker's row, at any epoch


class PauseKeeper:
    """The duty that reads what is paused, acts on it, and acknowledges it."""

    name = "pauses"

    def __init__(
        self, owner: Owner, store: Store, ledger: Ledger, nudge: Nudge, clock: Clock
    ) -> None:
        self._owner = owner
        self._ledger = ledger
        self._store = store
        self._nudge = nudge
        self._clock = clock
        self._known: Row | None = None  # the registration that has read what is paused
        self._told: tuple[Row, str] | None = None  # what its row says
        self._seen: str | None = None  # the version that the last look has shown
        self._seen_at = clock.boot()
        self._soon = False  # something has changed: no look is waited for
        self.pauses = NO_PAUSES

    def is_known(self) -> bool:
        """Whether this registration has read what is paused."""
        return self._known == _row_of(self._owner.me)

    def take_look(self, version: str | None) -> None:
        """Note the version that a look at the store has shown."""
        if version is None:
            return
        self._seen, self._seen_at = version, self._clock.boot()
        if version != self.pauses.version:
            self._nudge.give()

    def read_soon(self) -> None:
        """Read it now, without waiting for a look: it may have changed, or the row is another."""
        self._soon = True
        self._nudge.give()

    async def run_once(self) -> float:
        """Read what is paused, unless a look has just shown that nothing has changed."""
        if not self._is_due():
            return max(0.001, self._seen_at + READ_SECONDS - self._clock.boot())
        row, asked_at, self._soon = _row_of(self._owner.me), self._clock.boot(), False
        pauses = Pauses(await self._store.inspector.pauses())
        if row != _row_of(self._owner.me):
            return 0.001  # registered again meanwhile: what was read may be older than that
        self._apply(pauses)
        if self._seen_at <= asked_at:  # otherwise a look came meanwhile, and may be newer
            self._seen, self._seen_at = pauses.version, asked_at
        if self._known != row:
            self._known = row
            self._owner.look_for_work()
        if self._told != (row, pauses.version) and not self._recall():
            return RECALL_SECONDS
        await self._acknowledge(row, pauses.version)
        return 0.001 if self._is_due() else READ_SECONDS

    def _is_due(self) -> bool:
        changed = self._soon or self._seen not in {None, self.pauses.version}
        late = self._clock.boot() >= self._seen_at + READ_SECONDS
        told = self._told == (self._known, self.pauses.version)
        return changed or late or not told or not self.is_known()

    async def _acknowledge(self, row: Row, version: str) -> None:
        if self._told != (row, version):
            await self._store.acknowledge_pauses(self._owner.me, version)
            self._told = row, version

    def _apply(self, pauses: Pauses) -> None:
        """Act on it: from here on nothing of it is given to a runner."""
        before, self.pauses = self.pauses, pauses
        if before.version == pauses.version:
            return
        emit("pauses_changed", worker_id=self._owner.me.worker_id, pauses=len(pauses.listed))
        known = {pause.id for pause in before.listed}
        stops = Pauses(pause for pause in pauses.listed if pause.stop and pause.id not in known)
        for token, running in list(self._ledger.running.items()):
            if _is_under(stops, running.claimed):
                self._owner.pool.control.stop(token, STOP_REASON)
        self._owner.look_for_work()  # of what was resumed

    def _recall(self) -> bool:
        """Take back what is paused and has not begun; return whether that is done."""
        control = self._owner.pool.control
        return control.recall(STOP_REASON, lambda claimed: not self.may_start(claimed))

    def may_start(self, claimed: Claimed) -> bool:
        """Whether no pause is on this job."""
        return not _is_under(self.pauses, claimed)

    def narrow(self, requests: Sequence[ClaimRequest]) -> list[ClaimRequest]:
        """Return claim requests without what is paused."""
        if not self.pauses.listed:
            return list(requests)
        narrowed = (self._narrow(request) for request in requests)
        return [request for request in narrowed if request.tasks and not self.pauses.has_all]

    def _narrow(self, request: ClaimRequest) -> ClaimRequest:
        return msgspec.structs.replace(
            request,
            tasks=[task for task in request.tasks if task not in self.pauses.tasks],
            not_queues=tuple(sorted(self.pauses.queues)),
            not_tenants=tuple(sorted(self.pauses.tenants)),
        )

    def choose(self, attempts: Iterable[Running]) -> list[Running]:
        """Return those that may start."""
        return [each for each in attempts if self.may_start(each.claimed)]


def _is_under(pauses: Pauses, claimed: Claimed) -> bool:
    return pauses.find(claimed.queue, claimed.task, claimed.tenant) is not None


def _row_of(me: WorkerRef) -> Row:
    return me.worker_id, me.registration
