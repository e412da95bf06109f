"""A worker's registration and the lease on it: taken, renewed, lost, and taken again.

The lease is trusted only inside the window of ``model.lease.Trust``. When that window closes,
or the store says that the lease is lost, every attempt is stopped and then killed; what they
still report is handed in and refused where another worker took over. Only when nothing runs any
more does the worker register again.
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
from outlast.worker.base import KILL_SECONDS, Owner, Pool
from outlast.worker.claims.ledger import Ledger
from outlast.worker.condition import GIVE_UP_SECONDS

STOP_GRACE_SECONDS = 2.0  # for attempts that are asked to stop
LEAVE_SECONDS = 5.0  # for the last ends to be handed in
REVIVE_PAUSE_SECONDS = 0.2
LOST = "the store says that it is lost"


class Registration:
    """The row of one worker, and its right to run what it has claimed.

    ``hold_until`` says until when runners may live. It is also the duty that writes the known tasks
    to the row.
    """

    name = "registration"

    def __init__(
        self,
        owner: Owner,
        new: NewWorker,
        terms: LeaseTerms,
        *,
        store: Store,
        ledger: Ledger,
        pool: Pool,
        clock: Clock,
        hold_until: Callable[[float], None],
    ) -> None:
        self._owner = owner
        self._new = new
        self._store = store
        self._ledger = ledger
        self._pool = pool
        self._clock = clock
        self._hold_until = hold_until
        self._refused_at: float | None = None  # since then the store refuses a new row
        self.me = WorkerRef(0, 0)
        self.terms = terms
        self.trust = Trust(terms, clock.boot())
        self.draining = False
        self.has_left = True  # no row in the store says that this worker lives
        self._fenced = False
        self._isolation = Isolation(ledger, keep=False)
        self._registering = asyncio.Lock()
        self._reviving: asyncio.Task[None] | None = None
        self._asked: NewWorker | None = None  # a registration whose answer is unknown
        self._announced: tuple[list[str], dict[str, list[str]]] = ([], {})

    def may_claim(self) -> bool:
        """Whether new jobs may be taken."""
        if self.draining or self._fenced:
            return False
        return self.trust.holds(self._clock.boot())

    def drain(self) -> None:
        """Take no more jobs from now on."""
        self.draining = True

    def is_trusted(self) -> bool:
        """Whether attempts may go on under the present lease."""
        return not self._fenced and self.trust.holds(self._clock.boot())

    def check(self) -> None:
        """Give up the lease if it is no longer trusted; what may be done twice goes on."""
        if not self.trust.holds(self._clock.boot()):
            self.lose("it could not be renewed in time", keep=True)

    async def reconnect(self) -> bool:
        """Raise the epoch of the registration. False: the lease is lost."""
        async with self._registering:
            if self._fenced:
                return False
            me = await self._store.reconnect(self.me, self._ledger.token_seen)
            if me is None:
                self.lose(LOST, STOP_GRACE_SECONDS)
                return False
            self._take_row(me)  # no beat, and so no more trust: only a beat is seen by others
            return True

    async def register(self) -> None:
        """Make a row for this worker; raises what the store raises."""
        asked_at = self._clock.boot()
        new = self._asked = self._asked or self._make_registration(asked_at)
        self.has_left = False
        registered = await self._store.register(new)
        self._asked = self._refused_at = None
        # from now on a row of this instance that is not our own may be that of a successor
        self._new = msgspec.structs.replace(self._new, succeeds=False)
        self._announced = new.tasks, new.lacks
        self._take_row(WorkerRef(registered.worker_id, registered.epoch, registered.registration))
        self.trust = Trust(self.terms, asked_at)
        self._hold_until(self.trust.kill_at)
        self._ledger.counters.note_death(DeathCause.RESTARTED, registered.replaced)
        emit(
            "worker_registered",
            worker=new.name,
            worker_id=registered.worker_id,
            replaced=registered.replaced,
        )

    def _make_registration(self, now: float) -> NewWorker:
        """Return a registration under a key of its own. It is asked for again as it is while its
        answer is unknown: otherwise a row made without our knowledge would live beside ours."""
        who = self._new
        return msgspec.structs.replace(
            who,
            tasks=self._pool.starter.tasks(),
            lacks=self._pool.starter.lacks(),
            token_seen=self._ledger.token_seen,
            registration=f"{who.name}/{who.boot_id}/{who.pid}/{now:.9f}/{self.me.worker_id}",
        )

    async def run_once(self) -> None:
        """Write the known tasks to the row, if they have changed."""
        known = tasks, lacks = self._pool.starter.tasks(), self._pool.starter.lacks()
        if (tasks or lacks) and known != self._announced:
            await self._store.announce(self.me, tasks, lacks)
            self._announced = known

    def _take_row(self, me: WorkerRef) -> None:
        self.me = me
        self._pool.note_registration(me.worker_id)
        self._owner.note_registration()

    def take_beat(self, asked_at: float, me: WorkerRef, beat: Beat) -> bool:
        """Take the answer to a beat that was asked at that boot time; return whether it renewed."""
        if (me.worker_id, me.registration) != (self.me.worker_id, self.me.registration):
            return False
        if self._fenced:
            self._isolation.take_beat(asked_at, renewed=beat.renewed)
            return False
        if not beat.renewed:
            self.lose(LOST, STOP_GRACE_SECONDS)
            return False
        self.trust.renewed(asked_at)
        if self.is_trusted():
            self._hold_until(self.trust.kill_at)
        return True

    def lose(self, why: str, grace: float = math.inf, *, keep: bool = False) -> None:
        """Stop every attempt, kill those that go on, then register again.

        They get ``grace`` seconds to stop, and never longer than the lease was trusted for: where
        the store says that the lease is lost, another worker may run them already. With ``keep``,
        attempts that may be done twice go on, and with them this registration, until the store
        says whether it still stands.
        """
        if self._fenced:
            return
        self._fenced = True
        emit(
            "lease_lost", worker_id=self.me.worker_id, reason=why, running=len(self._ledger.running)
        )
        self._pool.starter.give_back("lease_lost")
        self._isolation = Isolation(self._ledger, keep=keep)
        for token in self._isolation.others():
            self._pool.control.stop(token, "lease_lost")
        kill_at = min(self.trust.kill_at, self._clock.boot() + grace)
        if self._isolation.kept():  # before the end of the tether, which spares no runner
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
            if self._clock.boot() >= given_up_at:  # as in a system call that does not return
                if self._pool.runner_control is not None:
                    self._pool.runner_control.give_up(others)
                return
            await self._clock.sleep(0.01)

    async def _resume_if_kept(self) -> bool:
        """Wait for a beat that is answered. If the lease still stands, no worker has taken anything
        over: go on under it, trusting from that beat. Else stop what was kept, too."""
        asked_at = await self._isolation.wait_for_beat(self._clock.boot())
        if asked_at is None:
            self._isolation.keep_none()
            for token in self._isolation.others():
                self._pool.control.stop(token, "lease_lost")
            return False
        self.trust = Trust(self.terms, asked_at)
        self._hold_until(self.trust.kill_at)
        self._fenced = False
        emit("lease_kept", worker_id=self.me.worker_id, running=len(self._ledger.running))
        self._owner.look_for_work()
        return True

    async def _hand_in_ends(self) -> bool:
        """Hand in, while the old row still stands, what ended before the lease was lost.

        Once that row says ``stopped``, any look calls its jobs orphans, and what was done
        would be done again. Return whether the store is there at all.
        """
        try:
            async with asyncio.timeout(PATIENCE_SECONDS_MAX):
                await self._store.observe()
        except Exception as error:
            await self._note_failed_return(error)
            return False
        await self._owner.hand_in_the_rest()
        return True

    async def _come_back(self) -> bool:
        try:
            async with self._registering, asyncio.timeout(PATIENCE_SECONDS_MAX):
                # the old row must not stay alive beside the new one: its lock file is the same
                await self._store.set_status(self.me, WorkerStatus.STOPPED)
                await self.register()
        except Exception as error:
            await self._note_failed_return(error)
            return False
        self._fenced = False
        return True

    async def _note_failed_return(self, error: Exception) -> None:
        """Get ready to try again after any error: without it the worker would stay fenced."""
        if isinstance(error, (StoreUnavailable, TimeoutError)):
            self._refused_at = None
        else:
            self._note_refusal(error)
        with contextlib.suppress(Exception):
            await self._store.drop_connections()

    def _note_refusal(self, error: Exception) -> None:
        now = self._clock.boot()
        if self._refused_at is None:
            self._refused_at = now
            emit("duty_failed", duty="registration", error=describe(error))
        if now - self._refused_at >= GIVE_UP_SECONDS:
            self._owner.give_up(error, now - self._refused_at)

    def stop_coming_back(self) -> None:
        """Stay as it is, should the lease be lost: the worker leaves."""
        if self._reviving is not None:
            self._reviving.cancel()

    async def leave(self) -> None:
        """Say on the row that the worker has stopped."""
        self.has_left = await self.set_status(WorkerStatus.STOPPED)

    async def set_status(self, status: WorkerStatus) -> bool:
        """Say on the row what the worker does; return whether the store has answered."""
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._store.set_status(self.me, status)
        except (StoreError, TimeoutError) as error:
            emit("store_unavailable", duty="status", error=text_of(error), count=1)
            return False
        return True


class Isolation:
    """One span in which the worker cannot renew its lease, and which attempts go on in it.

    Another worker may take over what this one holds once its lease has ended, so attempts are
    stopped before. Those with ``keep_running_when_isolated`` go on, at their author's wish;
    whether they are still the current ones is known when a beat is answered again. ``keep``:
    whether any attempt may go on at all.
    """

    def __init__(self, ledger: Ledger, *, keep: bool) -> None:
        self._ledger = ledger
        self._keep = keep
        self._since = float("inf")
        self._answered = asyncio.Event()
        self._asked_at: float | None = None

    def kept(self) -> set[int]:
        """Return the tokens that go on."""
        return {
            running.token
            for running in self._ledger.running.values()
            if self._keep and running.claimed.policy.keep_running_when_isolated
        }

    def keep_none(self) -> None:
        """Let no attempt go on: the lease is lost."""
        self._keep = False

    def others(self) -> set[int]:
        """Return the tokens that are to end."""
        return self._ledger.running.keys() - self.kept()

    def take_beat(self, asked_at: float, *, renewed: bool) -> None:
        """Take the answer to a beat. One that was asked before the others had ended is too old."""
        if asked_at >= self._since and not self._answered.is_set():
            self._asked_at = asked_at if renewed else None
            self._answered.set()

    async def wait_for_beat(self, since: float) -> float | None:
        """Wait for the answer to a beat that was asked since then; return when it was asked, on
        the boot clock, or None: the lease is lost."""
        self._since = since
        await self._answered.wait()
        return self._asked_at
