"""A worker's life: register, serve, drain, leave; and, should it lose its lease, come back.

The lease is trusted only inside the window of ``model.lease.Trust``. When that window closes,
or the store says that the lease is lost, every attempt is stopped and then killed; what they
still say is handed in and refused wherever somebody else took over. Only when nothing runs any
more does the worker register anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Iterator

import msgspec

from outlast.clock import Clock
from outlast.config import WorkerSettings
from outlast.errors import StoreError
from outlast.events import emit
from outlast.model.lease import Trust
from outlast.model.lifecycle import Transition
from outlast.store.base import OUTCOMES_MAX, Beat, Look, NewWorker, Store, WorkerRef
from outlast.store.presence import PresenceLock
from outlast.store.reads import WorkerStatus
from outlast.wakeup.base import Wakeup
from outlast.worker.base import KILL_SECONDS, Pool
from outlast.worker.deadlines import Deadlines
from outlast.worker.exchange import RECONCILE_SECONDS, Exchange
from outlast.worker.heartbeat import Heartbeat
from outlast.worker.herald import Herald
from outlast.worker.isolation import Isolation
from outlast.worker.ledger import Ledger
from outlast.worker.presence import Presence
from outlast.worker.pruner import Pruner
from outlast.worker.reaper import Reaper
from outlast.worker.savings import Savings
from outlast.worker.service import Duty, Service
from outlast.worker.watchdog import Watchdog

STOP_GRACE_SECONDS = 2.0  # for attempts that a drain asks to stop
LEAVE_SECONDS = 5.0  # for the last ends to be handed in
PATIENCE_SECONDS_MAX = 30.0  # for one answer of the store
REVIVE_PAUSE_SECONDS = 0.2
_TO_WORKERS = ("cancel:", "drain:")  # wake-ups for one worker, with its id
LOST = "the store says that it is lost"

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
    ) -> None:
        self._new = new
        self.settings = settings
        self.terms = settings.terms()
        self._store = store
        self._open_beating_store = open_beating_store
        self._wakeup = wakeup
        self._clock = clock
        self._hold_until = hold_until
        self._presence = presence
        self._keeper: Presence | None = None
        self.me = WorkerRef(0, 0)
        self._herald = Herald(wakeup, store, new, lambda: self.me, poll=settings.poll, clock=clock)
        self.trust = Trust(self.terms, clock.boot())
        self.ledger = Ledger(
            clock,
            on_end=self._on_end,
            worker=new.name,
            host=new.host,
            release=new.release,
            redact=settings.redact,
        )
        self.savings = Savings(store, self.ledger, on_pending=lambda: self._nudge("savings"))
        self.draining = False
        self.has_left = True  # no row in the store says that this worker lives
        self._fenced = False
        self._isolation = Isolation(self.ledger, keep=False)
        self._registering = asyncio.Lock()
        self._stop_asked = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._failure: BaseException | None = None
        self._reviving: asyncio.Task[None] | None = None
        self._services: dict[str, Service] = {}
        self._asked: NewWorker | None = None  # a registration whose answer is unknown
        self._announced: tuple[list[str], dict[str, list[str]]] = ([], {})

    # -- the story -----------------------------------------------------------------------------

    def attach(self, pool: Pool, *more: Duty) -> None:
        """Give the worker what runs its attempts, and duties of its place. Once, before ``run``."""
        self.pool = pool
        self._exchange = Exchange(
            self._store,
            self.ledger,
            pool,
            self,
            clock=self._clock,
            poll=self.settings.poll,
            look_every=self.terms.heartbeat,
            reconcile_every=max(RECONCILE_SECONDS, self.terms.heartbeat),
            patience=min(PATIENCE_SECONDS_MAX, self.terms.lease / 3),
            inbox=self._herald.inbox,
        )
        self._herald.serve(pool.tasks)
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
        await self._register()
        self._heartbeat = Heartbeat(
            self._open_beating_store,
            self.me,
            self.terms,
            clock=self._clock,
            on_beat=self._on_beat,
        )
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

    def fail(self, error: BaseException) -> None:
        """Stop at once because of this error, which ``run`` will raise."""
        self._failure = self._failure or error
        self._stop_now.set()
        self._stop_asked.set()

    async def leave(self) -> None:
        """End everything, the registration last."""
        if self._wakeup is not None and self._herald.inbox is None:
            await self._wakeup.close()
        if self._reviving is not None:
            self._reviving.cancel()
        await self._services["pool"].stop()
        await self.pool.close()
        await self._hand_in_the_rest()
        for service in self._services.values():
            await service.stop()
        self.savings.close()
        await self._heartbeat.stop()
        self.has_left = await self._set_status(WorkerStatus.STOPPED)
        if self._presence is not None:  # not before: a live row without presence looks like a death
            await self._presence.release()
        await self._herald.leave()
        emit("worker_stopped", worker=self._new.name, worker_id=self.me.worker_id)

    def _duties(self) -> Iterator[Duty]:
        yield self.pool
        yield self._exchange
        yield _Announcer(self)
        yield self.savings
        yield Watchdog(
            self.ledger,
            self.pool,
            trust=lambda: self.trust,
            on_lapse=lambda: self.lose_lease("it could not be renewed in time", keep=True),
            clock=self._clock,
        )
        if self._presence is not None:
            self._presence.on_lost = lambda: self._nudge("presence")
            self._keeper = Presence(
                self._presence, self._store, lambda: self.me, self.terms, clock=self._clock
            )
            yield self._keeper
        yield Reaper(
            self._store,
            lambda: self.me.worker_id,
            self._on_reclaimed,
            clock=self._clock,
            on_reaped=self._herald.reaped,
            on_look=self._on_look,
            deadlines=Deadlines(self._store, lambda: self._on_wake(""), clock=self._clock),
        )
        yield from self._herald.duties()
        yield Pruner(
            self._store,
            keep_jobs=self.settings.keep_completed_seconds,
            keep_workers=self.settings.keep_workers_seconds,
        )

    # -- registration and lease ----------------------------------------------------------------

    def may_claim(self) -> bool:
        """Whether new jobs may be taken."""
        return not (self.draining or self._fenced) and self.trusted()

    def trusted(self) -> bool:
        """Whether attempts may go on under the present lease."""
        return not self._fenced and self.trust.holds(self._clock.boot())

    async def reconnect(self) -> bool:
        """Raise the epoch of the registration. False: the lease is lost."""
        async with self._registering:
            if self._fenced:
                return False
            me = await self._store.reconnect(self.me, self.ledger.token_seen)
            if me is None:
                self.lose_lease(LOST, STOP_GRACE_SECONDS)
                return False
            self._stands(me)  # no beat, and so no more trust: only a beat is seen by others
            return True

    async def _register(self) -> None:
        asked_at = self._clock.boot()
        new = self._asked = self._asked or self._to_ask(asked_at)
        self.has_left = False
        registered = await self._store.register(new)
        self._asked = None
        # from now on a row of this instance that is not our own may be that of a successor
        self._new = msgspec.structs.replace(self._new, succeeds=False)
        self._stands(WorkerRef(registered.worker_id, registered.epoch))
        self._announced = new.tasks, new.lacks
        self._nudge("announcer")
        self.trust = Trust(self.terms, asked_at)
        self._hold_until(self.trust.kill_at)
        emit(
            "worker_registered",
            worker=new.name,
            worker_id=registered.worker_id,
            replaced=registered.replaced,
        )

    def _to_ask(self, now: float) -> NewWorker:
        """Return a registration under a key of its own. It is asked for again as it is while its
        answer is unknown: else the row that was made without our knowing would live beside ours."""
        who = self._new
        return msgspec.structs.replace(
            who,
            tasks=self.pool.tasks(),
            lacks=self.pool.lacks(),
            token_seen=self.ledger.token_seen,
            registration=f"{who.name}/{who.boot_id}/{who.pid}/{now:.9f}/{self.me.worker_id}",
        )

    def _stands(self, me: WorkerRef) -> None:
        self.me = me
        self.pool.registered(me.worker_id)
        self._nudge("presence")
        if hasattr(self, "_heartbeat"):
            self._heartbeat.me = me

    def _on_beat(self, asked_at: float, me: WorkerRef, beat: Beat) -> None:
        if me.worker_id != self.me.worker_id:
            return
        if self._fenced:
            self._isolation.heard(asked_at, renewed=beat.renewed)
            return
        if not beat.renewed:
            self.lose_lease(LOST, STOP_GRACE_SECONDS)
            return
        self.trust.renewed(asked_at)
        status = WorkerStatus.DRAINING if self.draining else WorkerStatus.ACTIVE
        self._herald.tell("heartbeat", status=status.value, running=len(self.ledger.running))
        if self.trusted():
            self._hold_until(self.trust.kill_at)
        for _, token in beat.cancels:
            self.pool.stop(token, "cancel")
        if beat.drain:
            self.request_drain()  # said again with each beat

    def lose_lease(self, why: str, grace: float = math.inf, *, keep: bool = False) -> None:
        """Stop every attempt, kill those that go on, then register anew.

        They get ``grace`` seconds to stop, and never longer than the lease was trusted for: where
        the store says that the lease is lost, somebody else may run them already. With ``keep``,
        attempts that may be done twice go on, and with them this registration, until the store
        says whether it still stands.
        """
        if self._fenced:
            return
        self._fenced = True
        emit(
            "lease_lost", worker_id=self.me.worker_id, reason=why, running=len(self.ledger.running)
        )
        self.pool.give_back("lease_lost")
        self._isolation = Isolation(self.ledger, keep=keep)
        for token in self._isolation.others():
            self.pool.stop(token, "lease_lost")
        kill_at = min(self.trust.kill_at, self._clock.boot() + grace)
        if self._isolation.kept():  # before the end of the tether, which spares nobody
            kill_at = min(kill_at, (self.trust.stop_at + self.trust.kill_at) / 2)
        self._reviving = asyncio.create_task(self._revive(kill_at), name="outlast-revive")

    async def _revive(self, kill_at: float) -> None:
        await self._end_all_but_kept(kill_at)
        self._hold_until(math.inf)  # idle runners harm nobody, however long the store is away
        if self._isolation.kept():
            if await self._still_stands():
                return
            await self._end_all_but_kept(self._clock.boot() + STOP_GRACE_SECONDS)
        while not (await self._told_ends() and await self._came_back()):
            await self._clock.sleep(REVIVE_PAUSE_SECONDS)
        self._on_wake("")

    async def _end_all_but_kept(self, kill_at: float) -> None:
        while self._isolation.others() and self._clock.boot() < kill_at:
            await self._clock.sleep(0.01)
        self.pool.kill_all("lease_lost", spare=self._isolation.kept())
        given_up_at = self._clock.boot() + KILL_SECONDS
        while others := self._isolation.others():
            if self._clock.boot() >= given_up_at:  # as in a system call that does not return
                self.pool.give_up(others)
                return
            await self._clock.sleep(0.01)

    async def _still_stands(self) -> bool:
        """Wait for a beat that is answered. If the lease still stands, nobody has taken anything
        over: go on under it, trusting from that beat. Else stop what was kept, too."""
        asked_at = await self._isolation.answer(self._clock.boot())
        if asked_at is None:
            self._isolation.keep = False
            for token in self._isolation.others():
                self.pool.stop(token, "lease_lost")
            return False
        self.trust = Trust(self.terms, asked_at)
        self._hold_until(self.trust.kill_at)
        self._fenced = False
        emit("lease_kept", worker_id=self.me.worker_id, running=len(self.ledger.running))
        self._on_wake("")
        return True

    async def _told_ends(self) -> bool:
        """Hand in, while the old row still stands, what ended before the lease was lost.

        Once that row says ``stopped``, whoever looks calls its jobs orphans, and what was done
        would be done again. Return whether the store is there at all.
        """
        try:
            async with asyncio.timeout(PATIENCE_SECONDS_MAX):
                await self._store.observe()
        except Exception as error:
            await self._failed_to_come_back(error)
            return False
        await self._hand_in_the_rest()
        return True

    async def _came_back(self) -> bool:
        try:
            async with self._registering, asyncio.timeout(PATIENCE_SECONDS_MAX):
                # the old row must not stay alive beside the new one: its lock file is the same
                await self._store.set_status(self.me, WorkerStatus.STOPPED)
                await self._register()
        except Exception as error:
            await self._failed_to_come_back(error)
            return False
        self._fenced = False
        return True

    async def _failed_to_come_back(self, error: Exception) -> None:
        """Get ready to try again, whatever it was: else the worker would stay fenced for ever."""
        if not isinstance(error, (StoreError, TimeoutError)):
            emit("duty_failed", duty="registration", error=f"{type(error).__name__}: {error}")
        with contextlib.suppress(Exception):
            await self._store.drop_connections()

    # -- what happens meanwhile ----------------------------------------------------------------

    def on_change(self) -> None:
        """The pool has changed: tell the store which tasks are known, and look for work."""
        self._nudge("announcer")
        self._nudge("pool")
        self._on_wake("")

    async def announce(self) -> None:
        """Write the known tasks to the worker's row, if they have changed."""
        known = tasks, lacks = self.pool.tasks(), self.pool.lacks()
        if (tasks or lacks) and known != self._announced:
            await self._store.announce(self.me, tasks, lacks)
            self._announced = known

    def _on_end(self) -> None:
        if not self._exchange.gathering or len(self.ledger.ended) >= OUTCOMES_MAX:
            self._nudge("exchange")

    def _on_wake(self, payload: str) -> None:
        if payload.startswith(_TO_WORKERS):
            if payload.partition(":")[2] == str(self.me.worker_id):
                self._heartbeat.nudge()  # its answer says what is asked
            return
        self._exchange.hint()
        self._nudge("exchange")

    def _on_look(self, look: Look) -> None:
        """Take up what a look at the store has shown: new work, or a presence that is not there."""
        if self._exchange.shown(look):
            self._nudge("exchange")
        if self._keeper is not None and self._keeper.is_lost(look.workers):
            self._nudge("presence")

    def _on_reclaimed(self, applied: list[Transition]) -> None:
        """Look for what was given back here, and tell other workers of it."""
        self._on_wake("")
        self._herald.reclaimed(applied)
        self._nudge("sweeper")

    def _nudge(self, name: str) -> None:
        service = self._services.get(name)
        if service is not None:
            service.nudge()

    # -- the end -------------------------------------------------------------------------------

    async def _drain(self) -> None:
        self.draining = True
        self.pool.give_back("the worker is stopping")
        emit("worker_draining", worker_id=self.me.worker_id, running=len(self.ledger.running))
        await self._set_status(WorkerStatus.DRAINING)
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

    async def _set_status(self, status: WorkerStatus) -> bool:
        """Return whether the store has answered."""
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._store.set_status(self.me, status)
        except (StoreError, TimeoutError) as error:
            emit("store_unavailable", duty="status", error=str(error))
            return False
        return True


class _Announcer:
    """The duty that writes the known tasks when they change."""

    name = "announcer"

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def run_once(self) -> None:
        await self._worker.announce()
