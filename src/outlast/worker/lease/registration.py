"""Keeps a worker's registration and its lease: takes it, renews it, loses it and retakes it.

When the window of ``model.lease.Trust`` closes, or the store says that the lease is lost, every
attempt is stopped and then killed; their last ends are handed in, and refused if another worker
took over. They cost nothing if the store did not take the heartbeats; they count a loss if the
worker sent none, since an attempt may have caused that. The worker registers again only when no
attempt runs any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable

import msgspec

from outlast.base.clock import Clock
from outlast.errors import StoreError, StoreUnavailable, describe, text_of
from outlast.events import emit
from outlast.model.lease import PATIENCE_SECONDS_MAX, DeathCause, LeaseTerms, Trust
from outlast.store.protocol import Store
from outlast.store.rows import WorkerStatus
from outlast.store.values import Beat, NewWorker, WorkerRef
from outlast.store.wakeup import Wakeup
from outlast.worker.base import KILL_SECONDS, Lease, Owner, Pool
from outlast.worker.claims.in_flight import InFlight
from outlast.worker.service import GIVE_UP_SECONDS, Nudge

STOP_GRACE_SECONDS = 2.0  # for attempts that are asked to stop
LEAVE_SECONDS = 5.0  # for the last ends to be handed in
REVIVE_PAUSE_SECONDS = 0.2
HEALTH_SECONDS = 2.0  # between two checks of the wake-up's health
LOST = "the store says that it is lost"


class Registration(Lease):
    """The row of one worker, and its right to run the jobs that it has claimed. As a duty it writes
    the known tasks, and the health of the current wake-up, to the row. ``hold_until`` sets until
    when runners may live."""

    name = "registration"

    def __init__(
        self,
        owner: Owner,
        new: NewWorker,
        terms: LeaseTerms,
        *,
        store: Store,
        in_flight: InFlight,
        pool: Pool,
        clock: Clock,
        hold_until: Callable[[float], None],
        wakeup: Wakeup | None = None,
    ) -> None:
        super().__init__(terms, clock)
        self.nudge = Nudge()
        self._owner = owner
        self._wakeup = wakeup
        # on which row, in which words; None: unknown, since the last write was refused
        self._told_health: tuple[int, str] | None = (0, "")
        self._new = new
        self._store = store
        self._in_flight = in_flight
        self._pool = pool
        self._hold_until = hold_until
        self._refused_at: float | None = None  # when the store first refused a new row
        self._has_missed = False  # whether the store has not taken the last heartbeat
        self.has_left = True  # whether no row in the store says that this worker lives
        self._isolation = Isolation(in_flight, keep=False)
        self._registering = asyncio.Lock()
        self._reviving: asyncio.Task[None] | None = None
        self._asked: NewWorker | None = None  # a registration without an answer yet
        self._announced: tuple[list[str], dict[str, list[str]]] | None = ([], {})

    def drain(self) -> None:
        """Take no more jobs from now on."""
        self.draining = True

    def check(self) -> None:
        """Give up the lease if it is no longer trusted; attempts that may run twice continue."""
        if self._clock.boot() >= self.trust.stop_at:
            self.lose("it could not be renewed in time", keep=True)

    async def reconnect(self) -> bool:
        """Raise the epoch of the registration. Return False if the lease is lost."""
        async with self._registering:
            if self._fenced:
                return False
            me = await self._store.reconnect(self.me, self._in_flight.token_seen)
            if me is None:
                self.lose(LOST, STOP_GRACE_SECONDS)
                return False
            self._take_row(me)  # adds no trust: other workers only see beats
            return True

    async def register(self) -> None:
        """Make a row for this worker; raises the store's errors."""
        asked_at = self._clock.boot()
        new = self._asked = self._asked or self._make_registration(asked_at)
        self.has_left = False
        registered = await self._store.register(new)
        self._asked = self._refused_at = None
        # from now on another row of this instance may belong to a successor
        self._new = msgspec.structs.replace(self._new, succeeds=False)
        self._announced = new.tasks, new.lacks
        self._take_row(WorkerRef(registered.worker_id, registered.epoch, registered.registration))
        self.trust = Trust(self.terms, asked_at)
        self._has_missed = False
        self._hold_until(self.trust.kill_at)
        self._in_flight.counters.note_death(DeathCause.RESTARTED, registered.replaced)
        emit(
            "worker_registered",
            worker=new.name,
            worker_id=registered.worker_id,
            replaced=registered.replaced,
        )

    def _make_registration(self, now: float) -> NewWorker:
        """Return a registration under a new key, or the same again while its answer is unknown:
        otherwise a row that this worker does not know of would live beside its own."""
        who = self._new
        return msgspec.structs.replace(
            who,
            tasks=self._pool.starter.tasks(),
            lacks=self._pool.starter.lacks(),
            token_seen=self._in_flight.token_seen,
            registration=f"{who.name}/{who.boot_id}/{who.pid}/{now:.9f}/{self.me.worker_id}",
        )

    async def run_once(self) -> float | None:
        """Write the known tasks and the health of the wake-up to the row, if they have changed."""
        known = tasks, lacks = self._pool.starter.tasks(), self._pool.starter.lacks()
        if (tasks or lacks or self._announced is None) and known != self._announced:
            self._announced = None
            await self._store.announce(self.me, tasks, lacks)
            self._announced = known
        if self._wakeup is None:
            return None
        me, health = self.me, self._wakeup.health
        told = me.worker_id, str(health)
        if health.known and told != self._told_health:
            self._told_health = None
            await self._store.tell_wakeup(me, str(health))
            self._told_health = told
        return HEALTH_SECONDS

    def _take_row(self, me: WorkerRef) -> None:
        self.me = me
        self._owner.note_registration()

    def take_beat(self, asked_at: float, me: WorkerRef, beat: Beat) -> bool:
        """Take the answer to a beat requested at this boot time; return whether it renewed."""
        if (me.worker_id, me.registration) != (self.me.worker_id, self.me.registration):
            return False
        if self._fenced:
            self._isolation.take_beat(asked_at, renewed=beat.renewed)
            return False
        if not beat.renewed:
            self.lose(LOST, STOP_GRACE_SECONDS)
            return False
        self._has_missed = False
        self.trust.renewed(asked_at)
        if self.is_trusted():
            self._hold_until(self.trust.kill_at)
        return True

    def note_miss(self) -> None:
        """Note a heartbeat that the store has not taken."""
        self._has_missed = True

    def lose(self, why: str, grace: float = math.inf, *, keep: bool = False) -> None:
        """Stop every attempt, kill attempts that do not stop, then register again.

        Attempts get ``grace`` seconds, but never longer than the lease was trusted for: another
        worker may run them already. With ``keep``, attempts that may run twice continue, as does
        this registration, until the store says whether it still stands.
        """
        if self._fenced:
            return
        self._fenced = True
        self._in_flight.excuse_lost_leases(yes=keep and self._has_missed)
        emit(
            "lease_lost",
            worker_id=self.me.worker_id,
            reason=why,
            running=len(self._in_flight.running),
        )
        self._pool.starter.give_back("lease_lost")
        self._isolation = Isolation(self._in_flight, keep=keep)
        for token in self._isolation.others():
            self._pool.control.stop(token, "lease_lost")
        kill_at = min(self.trust.kill_at, self._clock.boot() + grace)
        if self._isolation.kept():  # before the tether ends, which spares no runner
            kill_at = min(kill_at, (self.trust.stop_at + self.trust.kill_at) / 2)
        self._reviving = asyncio.create_task(self._revive(kill_at), name="outlast-revive")

    async def _revive(self, kill_at: float) -> None:
        await self._end_all_but_kept(kill_at)
        self._hold_until(math.inf)  # idle runners do no harm, however long the store is away
        if self._isolation.kept():
            if await self._resume_if_kept():
                return
            await self._end_all_but_kept(self._clock.boot() + STOP_GRACE_SECONDS)
        while not (await self._hand_in_ends() and await self._come_back()):
            await self._clock.sleep(REVIVE_PAUSE_SECONDS)
        self._owner.look_for_work()

    async def _end_all_but_kept(self, kill_at: float) -> None:
        while self._isolation.others() and self._clock.boot() < kill_at:
            await self._clock.sleep(0.01)
        self._pool.control.end_all("lease_lost", spare=self._isolation.kept())
        given_up_at = self._clock.boot() + KILL_SECONDS
        while others := self._isolation.others():
            if self._clock.boot() >= given_up_at:  # perhaps in a system call that does not return
                self._pool.control.give_up(others)
                return
            await self._clock.sleep(0.01)

    async def _resume_if_kept(self) -> bool:
        """Wait for an answered beat. If the lease still stands, continue under it, trusting from
        that beat. Else stop the kept attempts, too."""
        asked_at = await self._isolation.wait_for_beat(self._clock.boot())
        if asked_at is None:
            self._isolation.keep_none()
            for token in self._isolation.others():
                self._pool.control.stop(token, "lease_lost")
            return False
        self.trust = Trust(self.terms, asked_at)
        self._hold_until(self.trust.kill_at)
        self._end_fence()
        emit("lease_kept", worker_id=self.me.worker_id, running=len(self._in_flight.running))
        self._owner.look_for_work()
        return True

    async def _hand_in_ends(self) -> bool:
        """Hand in the attempts that ended before the lease was lost, while the old row stands: once
        it says ``stopped``, they are orphans, finished work runs again, and the rest counts a loss.
        Return whether the store answers, and takes them."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS_MAX):
                await self._store.observe()
        except Exception as error:
            await self._note_failed_return(error)
            return False
        return await self._owner.hand_in_the_rest()

    async def _come_back(self) -> bool:
        try:
            async with self._registering, asyncio.timeout(PATIENCE_SECONDS_MAX):
                # the new row has the same lock file, which would keep the old one alive
                await self._store.set_status(self.me, WorkerStatus.STOPPED)
                await self.register()
        except Exception as error:
            await self._note_failed_return(error)
            return False
        self._end_fence()
        return True

    def _end_fence(self) -> None:
        self._fenced = False
        self._in_flight.excuse_lost_leases(yes=False)

    async def _note_failed_return(self, error: Exception) -> None:
        """Prepare another try after any error: without it the worker would stay fenced."""
        now = self._clock.boot()
        if isinstance(error, (StoreUnavailable, TimeoutError)):
            self._refused_at = None
        elif self._refused_at is None:
            self._refused_at = now
            emit("duty_failed", duty="registration", error=describe(error))
        elif now - self._refused_at >= GIVE_UP_SECONDS:
            self._owner.give_up(error, now - self._refused_at)
        with contextlib.suppress(Exception):
            await self._store.drop_connections()

    def stop_reviving(self) -> None:
        """Do not register again if the lease is lost: the worker leaves."""
        if self._reviving is not None:
            self._reviving.cancel()

    async def set_status(self, status: WorkerStatus, *, asleep: float | None = None) -> None:
        """Write the status to the row, if the store answers; ``asleep``: for how many seconds."""
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._store.set_status(self.me, status, asleep=asleep)
        except (StoreError, TimeoutError) as error:
            emit("store_unavailable", duty="status", error=text_of(error), count=1)
        else:
            self.has_left = status is WorkerStatus.STOPPED


class Isolation:
    """A period in which the worker cannot renew its lease. Attempts stop before that ends, but
    those with ``keep_running_when_isolated`` continue, unless ``keep`` is off; an answered beat
    shows whether they are still the current ones."""

    def __init__(self, in_flight: InFlight, *, keep: bool) -> None:
        self._in_flight = in_flight
        self._keep = keep
        self._since = float("inf")
        self._answered = asyncio.Event()
        self._asked_at: float | None = None

    def kept(self) -> set[int]:
        """Return the tokens that continue."""
        return {
            running.token
            for running in self._in_flight.running.values()
            if self._keep and running.claimed.policy.keep_running_when_isolated
        }

    def keep_none(self) -> None:
        """Let no attempt continue: the lease is lost."""
        self._keep = False

    def others(self) -> set[int]:
        """Return the tokens that must end."""
        return self._in_flight.running.keys() - self.kept()

    def take_beat(self, asked_at: float, *, renewed: bool) -> None:
        """Take the answer to a beat. A beat requested before the others had ended is too old."""
        if asked_at >= self._since and not self._answered.is_set():
            self._asked_at = asked_at if renewed else None
            self._answered.set()

    async def wait_for_beat(self, since: float) -> float | None:
        """Wait for the answer to a beat requested after ``since``; return the boot time of its
        request, or None if the lease is lost."""
        self._since = since
        await self._answered.wait()
        return self._asked_at
