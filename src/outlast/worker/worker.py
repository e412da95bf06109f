"""Runs a worker's life (register, serve, drain, leave), and makes and connects all its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from outlast.base.clock import Clock
from outlast.base.config import WorkerSettings, lease_terms
from outlast.base.credentials import hide_logins
from outlast.errors import StoreUnavailable, describe
from outlast.events import emit
from outlast.model.lease import DeathCause
from outlast.model.lifecycle import Transition
from outlast.store.lockfile import LockFile
from outlast.store.protocol import PresenceLock, ServerStore, Store
from outlast.store.rows import WorkerStatus
from outlast.store.values import Beat, NewWorker, Peek, Snapshot, WorkerRef, WorkerSeen
from outlast.store.wakeup import Wakeup
from outlast.wakeup.messenger import Messenger
from outlast.worker.base import Pool, no_tether
from outlast.worker.claims.checkpoints import CheckpointWriter
from outlast.worker.claims.counters import MinuteWriter
from outlast.worker.claims.evidence import Evidence
from outlast.worker.claims.exchange import Exchange
from outlast.worker.claims.in_flight import InFlight
from outlast.worker.claims.pacing import PeerCount, TripPlan, WakeTurns, is_request
from outlast.worker.claims.pauses import PauseKeeper
from outlast.worker.claims.stacks import StackShower
from outlast.worker.claims.units import Units
from outlast.worker.claims.until_empty import UntilEmpty
from outlast.worker.lease.heartbeat import Heartbeat
from outlast.worker.lease.presence import PresenceKeeper
from outlast.worker.lease.registration import LEAVE_SECONDS, STOP_GRACE_SECONDS, Registration
from outlast.worker.maintenance.announcer import Announcer, Passed
from outlast.worker.maintenance.pruner import Expirer, Pruner
from outlast.worker.maintenance.reaper import Deadlines, OwnLooks, Reaper
from outlast.worker.maintenance.scheduler import Scheduler
from outlast.worker.service import VITAL, Condition, Duty, Service

OpenStore = Callable[[], Awaitable[Store]]


class Worker:
    """One worker: ``run`` it until ``request_stop``. It makes its parts, which report to it
    (``Owner``). ``make_pool`` is called when the worker has its InFlight and checkpoints."""

    def __init__(
        self,
        new: NewWorker,
        settings: WorkerSettings,
        make_pool: Callable[[Worker], Pool],
        *,
        store: Store,
        open_beating_store: OpenStore,
        wakeup: Wakeup | None,
        clock: Clock,
        hold_until: Callable[[float], None] = no_tether,
        presence: PresenceLock | None = None,
        lock: LockFile | None = None,
        hide_secrets: Callable[[str], str] = hide_logins,
    ) -> None:
        self._new, self.settings, self._clock = new, settings, clock
        self._store, self._wakeup, self._presence, self._lock = store, wakeup, presence, lock
        self._stop_asked, self._stop_now = asyncio.Event(), asyncio.Event()
        self._failure: BaseException | None = None
        self.rest: float | None = None  # seconds that it is to sleep, once it has left
        terms = lease_terms(settings)
        evidence = Evidence(
            clock,
            worker=new.name,
            host=new.host,
            release=new.release,
            redact=settings.redact,
            hide_secrets=hide_secrets,
        )
        self._condition = Condition(clock, terms.lease / 2, evidence.hide)
        self._turns = WakeTurns(self, new.queues, clock, wakeup)
        messenger = wakeup if isinstance(wakeup, Messenger) else None
        self.plan = TripPlan(
            clock,
            poll=settings.poll,
            look_every=terms.heartbeat,
            turns=self._turns,
            wakeup=wakeup,
            inbox=messenger.inbox if messenger and isinstance(store, ServerStore) else None,
        )
        self.in_flight = InFlight(clock, self.plan, evidence)
        self.checkpoints = CheckpointWriter(store, self.in_flight)
        self.pool = make_pool(self)
        self.registration = Registration(
            self,
            new,
            terms,
            store=store,
            in_flight=self.in_flight,
            pool=self.pool,
            clock=clock,
            hold_until=hold_until,
            wakeup=wakeup,
        )
        self.heartbeat = Heartbeat(
            open_beating_store,
            self.me,
            terms,
            clock=clock,
            on_beat=self._take_beat,
            on_miss=self.registration.note_miss,
            lock=lock,
        )
        self.services: dict[str, Service] = {}
        for duty in self._make_duties():
            self.take_on(duty)

    def take_on(self, duty: Duty) -> None:
        """Let the worker do this as well, from its start on."""
        self.services[duty.name] = Service(duty, self._clock, self.fail)

    def _make_duties(self) -> Iterator[Duty]:
        store, clock, settings = self._store, self._clock, self.settings
        pool, in_flight, lease = self.pool, self.in_flight, self.registration
        if pool.keeper is not None:
            yield pool.keeper
        self._pauses = PauseKeeper(self, store, in_flight, clock)
        yield self._pauses
        units = Units(settings.has, pool.starter, in_flight, clock) if settings.has else None
        self._exchange = Exchange(
            store,
            in_flight,
            pool,
            lease,
            self.checkpoints,
            self.plan,
            self._pauses,
            clock=clock,
            units=units,
        )
        yield self._exchange
        yield self._turns
        if isinstance(store, ServerStore):
            yield PeerCount(store, lease, self._turns)
        yield lease
        yield self.checkpoints
        yield self.checkpoints.logs
        self._shower = StackShower(store, in_flight, pool, clock)
        yield self._shower
        yield pool.watchdog
        self._keeper: PresenceKeeper | None = None
        if self._presence is not None:
            self._keeper = PresenceKeeper(self._presence, store, lease, clock=clock)
            yield self._keeper
        deadlines = Deadlines(store, clock, in_flight.counters)
        looks = OwnLooks(store, lease, self._new.boot_id, clock=clock, turns=self._turns)
        self._reaper = Reaper(
            self,
            store,
            clock=clock,
            own=lease,
            deadlines=deadlines,
            looks=looks,
            counters=in_flight.counters,
        )
        yield self._reaper
        self._announcer: Announcer | None = None
        if isinstance(self._wakeup, Messenger) and isinstance(store, ServerStore):
            self._wakeup.leave_others(pool.starter.tasks)
            self._announcer = Announcer(
                self._wakeup, store, self._new, lease, poll=settings.poll, clock=clock
            )
            yield self._announcer
            if self.plan.inbox is not None:
                yield Passed(store, self.plan.inbox, lease)
        self._scheduler = Scheduler(self, store, pool.starter, clock)
        yield self._scheduler
        yield Expirer(store, self._exchange, clock, self._turns)
        yield Pruner(
            store,
            keep_jobs=settings.keep_completed,
            keep_workers=settings.keep_workers,
            keep_dead=settings.keep_dead,
            clock=clock,
            kind=self._turns,
        )
        self._minutes = MinuteWriter(store, in_flight.counters, lease, clock)
        yield self._minutes

    @property
    def me(self) -> WorkerRef:
        """The current registration, which is part of each call of the store."""
        return self.registration.me

    # -- its life ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until a stop is requested; then drain, and end everything. Raises the error that
        made it impossible to continue, such as ApplicationError."""
        await self.start()
        try:
            await self._stop_asked.wait()
            await self._drain()
        finally:
            await self.leave()
        if self._failure is not None:
            raise self._failure

    async def start(self) -> None:
        """Register, begin to beat, and start all duties; after an error, undo all of it."""
        await self.registration.register()
        self.heartbeat.start()
        try:
            for service in self.services.values():
                service.start()
            if self._wakeup is not None:
                await self._wakeup.start(self._take_wakeup)
        except BaseException:  # cancelled, too: further beats would keep its jobs from others
            await self.leave()
            raise
        emit("worker_started", worker=self._new.name, worker_id=self.me.worker_id)

    def request_stop(self) -> None:
        """First call: drain. Second call: stop at once."""
        if self._stop_asked.is_set():
            self._stop_now.set()
        self._stop_asked.set()

    def stop_when_empty(self, most: int | None = None) -> None:
        """Drain once there is nothing left to claim, or ``most`` attempts were claimed."""
        knows = self._scheduler.is_settled
        self.watch_claims(UntilEmpty(self.request_drain, most, knows=knows))

    def watch_claims(self, until: UntilEmpty) -> None:
        """Let ``until`` see all requests and replies, and decide when to stop."""
        self._exchange.stop_when_empty(until)

    def sleep(self, seconds: float) -> None:
        """Drain, and tell people that it is to be back after ``seconds``."""
        self.rest = seconds
        self.request_drain()

    def request_drain(self) -> None:
        """Drain. Further calls change nothing: they do not stop the worker at once."""
        self._stop_asked.set()

    def give_up(self, error: Exception, seconds: float) -> None:
        """Drain, and leave with this error, with which a vital duty has failed for too long."""
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
        if self._wakeup is not None and self._announcer is None:
            await self._wakeup.close()
        self.registration.stop_reviving()
        if self.pool.keeper is not None:
            await self.services[self.pool.keeper.name].stop()
        await self.pool.close()
        await self.hand_in_the_rest()
        for service in self.services.values():
            await service.stop()
        self.checkpoints.close()
        await self._minutes.write_last()
        await self.heartbeat.stop()
        asleep = None if self.rest is None else self.rest + self.settings.lease
        await self.registration.set_status(WorkerStatus.STOPPED, asleep=asleep)
        if self._lock is not None:
            self._lock.end_all()
        if self._presence is not None:  # only now: a live row without presence looks like a death
            await self._presence.release()
        if self._announcer is not None:
            await self._announcer.leave()
        emit("worker_stopped", worker=self._new.name, worker_id=self.me.worker_id)

    # -- its registration and its beats --------------------------------------------------------

    def note_registration(self) -> None:
        """Beat, and hold the presence, for the current row."""
        if self._keeper is not None:
            self._keeper.nudge.give()
        self.registration.nudge.give()
        self._pauses.read_soon()
        self.heartbeat.note_registration(self.me)

    def _take_beat(self, asked_at: float, me: WorkerRef, beat: Beat) -> None:
        if beat.drain:  # before the row is given up: each beat requests it again
            self.request_drain()
        if not self.registration.take_beat(asked_at, me, beat):
            return
        if self._announcer is not None:
            status = WorkerStatus.DRAINING if self.registration.draining else WorkerStatus.ACTIVE
            running = len(self.in_flight.running)
            self._announcer.tell("heartbeat", status=status.value, running=running)
        for _, token in beat.cancels:
            self.pool.control.stop(token, "cancel")
        self._shower.take(beat.stacks)
        if beat.peek is not None:
            self._reaper.take_peek(beat.peek)
        self._condition.note_beat()
        self.services[VITAL].note_late(self._store.why_late())
        failing = [each for each in self.services.values() if each.failure is not None]
        failures = {each.name: each.find_failure() for each in failing}
        self.heartbeat.report(self._condition.find_trouble(failures))
        if (end := self._condition.find_end(failures)) is not None:
            self.give_up(end.error, self._clock.boot() - end.since)

    def check_lease(self) -> None:
        """Stop all attempts if the lease is no longer trusted."""
        self.registration.check()

    # -- for its pool --------------------------------------------------------------------------

    def note_begin(self, token: int) -> None:
        """Note in the lock file that attempts begin: a worker that finds this one dead reads it."""
        if self._lock is not None:
            self._lock.begin(token)

    def note_pool_change(self) -> None:
        """Write the known tasks to the store, have runners started, and look for work."""
        self.registration.nudge.give()
        self._scheduler.nudge.give()
        if self.pool.keeper is not None:
            self.pool.keeper.nudge.give()
        self.look_for_work()

    # -- where work comes from -----------------------------------------------------------------

    def look_for_work(self) -> None:
        """Let the exchange check the store for work."""
        self.plan.hint()
        self.plan.nudge.give()

    def _take_wakeup(self, payload: str) -> None:
        if is_request(payload, self.me.worker_id):
            self.heartbeat.nudge()  # its answer brings the request
        elif payload.partition(":")[0] == "pause":
            self._pauses.read_soon()
        elif payload.partition(":")[0] == "gone":
            self._reaper.nudge.give()
        elif self._turns.hear(payload):
            self.look_for_work()

    def take_peek(self, peek: Peek) -> None:
        """Act on a peek at the store: new work, a due schedule, or a pause."""
        if peek.watches:
            self._scheduler.take_look(peek)
            self._pauses.take_look(peek.pauses)
        if self.plan.take_peek(peek):
            self.plan.nudge.give()

    def take_look(self, look: Snapshot) -> None:
        """Act on the reaper's snapshot: a due schedule, a pause, or a loss of its own presence."""
        self._scheduler.take_look(look)
        self._pauses.take_look(look.pauses)
        if self._keeper is not None and self._keeper.is_lost(look.workers):
            self._keeper.nudge.give()

    def note_reclaimed(self, applied: list[Transition]) -> None:
        """Look for reclaimed jobs here, and announce them to other workers."""
        self.look_for_work()
        if self._announcer is not None:
            self._announcer.note_reclaimed(applied)
            self._announcer.nudge.give()

    def note_reaped(self, gone: WorkerSeen, cause: DeathCause) -> None:
        """Tell watchers of a worker that is gone."""
        if self._announcer is not None:
            self._announcer.tell_reaped(gone, cause)

    # -- the end -------------------------------------------------------------------------------

    async def _drain(self) -> None:
        self.registration.drain()
        self.pool.control.recall("the worker is stopping")
        emit("worker_draining", worker_id=self.me.worker_id, running=len(self.in_flight.running))
        await self.registration.set_status(WorkerStatus.DRAINING)
        seconds = self.settings.drain_timeout
        await self._until_empty(seconds)
        left = list(self.in_flight.running)
        if left and not self._stop_now.is_set():
            emit(
                "drain_timed_out",
                worker_id=self.me.worker_id,
                seconds=seconds,
                running=len(left),
            )
        for token in left:
            self.pool.control.stop(token, "drain")
        await self._until_empty(STOP_GRACE_SECONDS)
        self.pool.control.end_all("drain")

    async def _until_empty(self, seconds: float) -> None:
        deadline = self._clock.boot() + seconds
        while not self.in_flight.is_empty() and self._clock.boot() < deadline:
            if self._stop_now.is_set():
                return
            await self._clock.sleep(0.02)

    async def hand_in_the_rest(self) -> bool:
        """Let the exchange hand in all ended attempts, within LEAVE_SECONDS. Return False if some
        wait for a store that does not take them."""
        deadline = self._clock.boot() + LEAVE_SECONDS
        while not self.in_flight.is_empty() and self._clock.boot() < deadline:
            self.plan.nudge.give()
            await self._clock.sleep(0.01)
        failure = self.services[VITAL].find_failure()
        is_away = failure is not None and isinstance(failure.error, StoreUnavailable)
        return self.in_flight.is_empty() or not is_away
