"""A worker's life: register, serve, drain, leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from outlast.clock import Clock
from outlast.config import WorkerSettings, lease_terms
from outlast.credentials import hide_logins
from outlast.errors import describe
from outlast.events import emit
from outlast.model.crash import hiding
from outlast.model.lease import patience
from outlast.model.lifecycle import Transition
from outlast.store.lockfile import LockFile
from outlast.store.presence import PresenceLock
from outlast.store.protocol import OUTCOMES_MAX, Store
from outlast.store.rows import WorkerStatus
from outlast.store.values import Beat, NewWorker, Snapshot, WorkerRef
from outlast.store.wakeup import Wakeup
from outlast.worker.base import Pool
from outlast.worker.claims.checkpoints import CheckpointWriter
from outlast.worker.claims.exchange import RECONCILE_SECONDS, Exchange
from outlast.worker.claims.ledger import Ledger
from outlast.worker.condition import Condition
from outlast.worker.lease.heartbeat import Heartbeat
from outlast.worker.lease.presence import PresenceKeeper
from outlast.worker.lease.registration import LEAVE_SECONDS, STOP_GRACE_SECONDS, Registration
from outlast.worker.maintenance.announcer import Announcer
from outlast.worker.maintenance.deadlines import Deadlines
from outlast.worker.maintenance.pruner import Pruner
from outlast.worker.maintenance.reaper import Reaper
from outlast.worker.runners.watchdog import Watchdog
from outlast.worker.service import Duty, Service

_TO_WORKERS = ("cancel", "drain")  # kinds of wake-ups for one worker, with its id

OpenStore = Callable[[], Awaitable[Store]]


def _no_tether(boottime: float) -> None:
    """Do nothing: there are no processes to hold."""


class Worker:
    """One worker. ``attach`` a pool, then ``run`` it until ``request_stop``."""

    def __init__(
        self,
        new: NewWorker,
        settings: WorkerSettings,
        *,
        store: Store,
        open_beating_store: OpenStore,
        wakeup: Wakeup | None,
        clock: Clock,
        hold_until: Callable[[float], None] = _no_tether,
        presence: PresenceLock | None = None,
        lock: LockFile | None = None,
        hide_secrets: Callable[[str], str] = hide_logins,
    ) -> None:
        self._new = new
        self.settings = settings
        self._store = store
        self._wakeup = wakeup
        self._clock = clock
        self._presence = presence
        self._lock = lock
        self._keeper: PresenceKeeper | None = None
        self.ledger = Ledger(
            clock,
            on_end=self._on_end,
            worker=new.name,
            host=new.host,
            release=new.release,
            redact=settings.redact,
            hide_secrets=hide_secrets,
        )
        self.registration = Registration(
            new,
            lease_terms(settings),
            store=store,
            ledger=self.ledger,
            clock=clock,
            hold_until=hold_until,
            on_stands=self._on_stands,
            on_back=self._look_for_work,
            hand_in=self._hand_in_the_rest,
            on_refused=self.give_up,
        )
        self._heartbeat = Heartbeat(
            open_beating_store,
            self.me,
            self.registration.terms,
            clock=clock,
            on_beat=self._on_beat,
            lock=lock,
        )
        self._announcer = Announcer(
            wakeup, store, new, lambda: self.me, poll=settings.poll, clock=clock
        )
        self.checkpoints = CheckpointWriter(
            store, self.ledger, on_pending=lambda: self._nudge("checkpoints")
        )
        hide = hiding(settings.redact)
        self._condition = Condition(
            clock, self.registration.terms.lease / 2, lambda text: hide_secrets(hide(text))
        )
        self._stop_asked = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._failure: BaseException | None = None
        self._services: dict[str, Service] = {}

    @property
    def me(self) -> WorkerRef:
        """The registration under which everything is asked of the store."""
        return self.registration.me

    # -- the story -----------------------------------------------------------------------------

    def attach(self, pool: Pool, *more: Duty) -> None:
        """Give the worker what runs its attempts, and duties of its place. Once, before ``run``."""
        self.pool = pool
        self.registration.attach(pool)
        terms = self.registration.terms
        self._exchange = Exchange(
            self._store,
            self.ledger,
            pool,
            self.registration,
            self.checkpoints,
            clock=self._clock,
            poll=self.settings.poll,
            look_every=terms.heartbeat,
            reconcile_every=max(RECONCILE_SECONDS, terms.heartbeat),
            patience=patience(terms.lease),
            inbox=self._announcer.inbox,
        )
        self._announcer.serve(pool.tasks)
        self._services = {
            duty.name: Service(duty, self._clock, self.fail) for duty in (*self._duties(), *more)
        }

    async def run(self) -> None:
        """Live until a stop is asked for, and leave nothing behind.

        Raises what made it impossible to go on, such as ApplicationError.
        """
        await self.start()
        try:
            await self._stop_asked.wait()
            await self._drain()
        finally:
            await self.leave()
        if self._failure is not None:
            raise self._failure

    async def start(self) -> None:
        """Register, begin to beat, and take up all duties; or leave nothing of it behind."""
        await self.registration.register()
        self._heartbeat.start()
        try:
            await self._take_up_duties()
        except BaseException:  # cancelled, too: a beat that goes on would keep its jobs from others
            await self.leave()
            raise
        emit("worker_started", worker=self._new.name, worker_id=self.me.worker_id)

    async def _take_up_duties(self) -> None:
        for service in self._services.values():
            service.start()
        if self._wakeup is not None:
            await self._wakeup.start(self._on_wake)

    def request_stop(self) -> None:
        """First call: drain. Second call: stop at once."""
        if self._stop_asked.is_set():
            self._stop_now.set()
        self._stop_asked.set()

    def request_drain(self) -> None:
        """Drain. However often it is said, it never means to stop at once."""
        self._stop_asked.set()

    def give_up(self, error: Exception, seconds: float) -> None:
        """Drain, and leave with this error, by which a vital duty has failed for too long."""
        if self._failure is None:
            emit(
                "worker_gave_up",
                worker=self._new.name,
                worker_id=self.me.worker_id,
                error=describe(error),
                seconds=round(seconds, 3),
            )
        self._failure = self._failure or error
        self.request_drain()

    def fail(self, error: BaseException) -> None:
        """Stop at once because of this error, which ``run`` will raise."""
        self._failure = self._failure or error
        self._stop_now.set()
        self._stop_asked.set()

    async def leave(self) -> None:
        """End everything, the registration last."""
        if self._wakeup is not None and self._announcer.inbox is None:
            await self._wakeup.close()
        self.registration.stop_coming_back()
        await self._services["pool"].stop()
        await self.pool.close()
        await self._hand_in_the_rest()
        for service in self._services.values():
            await service.stop()
        self.checkpoints.close()
        await self._heartbeat.stop()
        await self.registration.leave()
        if self._lock is not None:
            self._lock.end_all()
        if self._presence is not None:  # not before: a live row without presence looks like a death
            await self._presence.release()
        await self._announcer.leave()
        emit("worker_stopped", worker=self._new.name, worker_id=self.me.worker_id)

    def _duties(self) -> Iterator[Duty]:
        yield self.pool
        yield self._exchange
        yield self.registration
        yield self.checkpoints
        yield Watchdog(
            self.ledger,
            self.pool,
            trust=lambda: self.registration.trust,
            on_lapse=lambda: self.registration.lose("it could not be renewed in time", keep=True),
            clock=self._clock,
        )
        if self._presence is not None:
            self._presence.on_lost = lambda: self._nudge("presence")
            terms = self.registration.terms
            self._keeper = PresenceKeeper(
                self._presence, self._store, lambda: self.me, terms, clock=self._clock
            )
            yield self._keeper
        yield Reaper(
            self._store,
            lambda: self.me.worker_id,
            self._on_reclaimed,
            clock=self._clock,
            on_reaped=self._announcer.reaped,
            on_look=self._on_look,
            deadlines=Deadlines(self._store, self._look_for_work, clock=self._clock),
        )
        yield from self._announcer.duties()
        yield Pruner(
            self._store,
            keep_jobs=self.settings.keep_completed_seconds,
            keep_workers=self.settings.keep_workers_seconds,
            clock=self._clock,
        )

    # -- what happens meanwhile ----------------------------------------------------------------

    def _on_stands(self) -> None:
        self._nudge("presence")
        self._nudge("registration")
        self._heartbeat.registered(self.me)

    def _on_beat(self, asked_at: float, me: WorkerRef, beat: Beat) -> None:
        if not self.registration.heard(asked_at, me, beat):
            return
        status = WorkerStatus.DRAINING if self.registration.draining else WorkerStatus.ACTIVE
        self._announcer.tell("heartbeat", status=status.value, running=len(self.ledger.running))
        for _, token in beat.cancels:
            self.pool.stop(token, "cancel")
        if beat.drain:
            self.request_drain()  # said again with each beat
        self._look_at_duties()

    def _look_at_duties(self) -> None:
        """Let the next beat tell which duty fails; leave where that has lasted too long."""
        self._condition.heard()
        self._heartbeat.trouble = self._condition.trouble(self._services.values())
        end = self._condition.end(self._services.values())
        if end is not None:
            self.give_up(end.error, self._clock.boot() - end.since)

    def on_begin(self, token: int) -> None:
        """The pool lets an attempt begin: note it where others look who find this worker dead."""
        if self._lock is not None:
            self._lock.begin(token)

    def on_change(self) -> None:
        """The pool has changed: tell the store which tasks are known, and look for work."""
        self._nudge("registration")
        self._nudge("pool")
        self._look_for_work()

    def _on_end(self) -> None:
        if not self._exchange.gathering or len(self.ledger.ended) >= OUTCOMES_MAX:
            self._nudge("exchange")

    def _on_wake(self, payload: str) -> None:
        kind, _, subject = payload.partition(":")
        if kind in _TO_WORKERS:
            if subject == str(self.me.worker_id):
                self._heartbeat.nudge()  # its answer says what is asked
        elif not payload or (kind == "queue" and self._serves(subject)):
            self._look_for_work()

    def _serves(self, queue: str) -> bool:
        return not self._new.queues or queue in self._new.queues

    def _look_for_work(self) -> None:
        self._exchange.hint()
        self._nudge("exchange")

    def _on_look(self, look: Snapshot) -> None:
        """Take up what a look at the store has shown: new work, or a presence that is not there."""
        if self._exchange.shown(look):
            self._nudge("exchange")
        if self._keeper is not None and self._keeper.is_lost(look.workers):
            self._nudge("presence")

    def _on_reclaimed(self, applied: list[Transition]) -> None:
        """Look for what was given back here, and tell other workers of it."""
        self._look_for_work()
        self._announcer.reclaimed(applied)
        self._nudge("sweeper")

    def _nudge(self, name: str) -> None:
        service = self._services.get(name)
        if service is not None:
            service.nudge()

    # -- the end -------------------------------------------------------------------------------

    async def _drain(self) -> None:
        self.registration.draining = True
        self.pool.give_back("the worker is stopping")
        emit("worker_draining", worker_id=self.me.worker_id, running=len(self.ledger.running))
        await self.registration.set_status(WorkerStatus.DRAINING)
        await self._until_empty(self.settings.drain_timeout)
        for token in list(self.ledger.running):
            self.pool.stop(token, "drain")
        await self._until_empty(STOP_GRACE_SECONDS)
        self.pool.kill_all("drain")

    async def _until_empty(self, seconds: float) -> None:
        deadline = self._clock.boot() + seconds
        while not self.ledger.is_empty() and self._clock.boot() < deadline:
            if self._stop_now.is_set():
                return
            await self._clock.sleep(0.02)

    async def _hand_in_the_rest(self) -> None:
        deadline = self._clock.boot() + LEAVE_SECONDS
        while not self.ledger.is_empty() and self._clock.boot() < deadline:
            self._nudge("exchange")
            await self._clock.sleep(0.01)
