"""Finds workers that are gone and puts their jobs back. Any worker does this for all.

A few workers at a time scan all workers each second (``OwnLooks``). One statement reads all
workers, and whether there are any orphans, or attempts past their hard deadline (``Deadlines``):
further statements follow only if there are.

Two kinds of evidence show a death. Either the host-local lock file is free (the kernel released it
when the last process that held it died), as seen here or, on another host, by the worker's own
tether, which notes it on the row; or its presence in the database is gone, and its next beat is
overdue. Without such evidence the observer's rule decides (``model/lease.py``). The observers start
over after a failed scan, after one that another incarnation of the database answers, and while the
store takes no heartbeat of this worker either: neither an outage of the store, nor one of writes
alone, nor the loss of beats in a failover counts as silence of a worker.

The consequences of a scan are tried one by one, and again after a failure: a row that stays locked
does not delay the rescue of other workers' jobs.
"""

from __future__ import annotations

import msgspec

from outlast.base.clock import Clock
from outlast.base.throttle import Throttle
from outlast.errors import BadData, StoreError, text_of
from outlast.events import emit
from outlast.model.crash import CrashKind
from outlast.model.lease import (
    LOOK_FRACTION,
    LOOK_SECONDS,
    Beating,
    DeathCause,
    Observer,
    PresenceObserver,
    SteadyClock,
    patience,
)
from outlast.model.lifecycle import Outcome, OutcomeKind, Transition, decide
from outlast.model.watch import WatchPart
from outlast.store import lockfile
from outlast.store.lockfile import Probe, probe
from outlast.store.protocol import ORPHANS_MAX, Store
from outlast.store.values import Orphan, OverdueAttempt, Peek, Snapshot, WorkerSeen
from outlast.worker.base import Lease, Owner
from outlast.worker.claims.counters import Counters
from outlast.worker.claims.dead_jobs import reclaim_and_tell
from outlast.worker.claims.pacing import WakeTurns
from outlast.worker.claims.prefetch import BEGIN_SECONDS
from outlast.worker.service import Nudge

UNKNOWN = "it is no longer registered as alive"
EASED_SECONDS = 2.25  # between two rare peeks: a heartbeat is 2 s by default
SLACK_SECONDS = 15.0  # above timeout and grace: its own worker, and a blocked loop, act first
SLACK_BEATS = 3  # heartbeats of the attempt's worker, if these are longer


class Reaper:
    """The duty that cleans up after workers that are gone, but its ``own``. It scans at each run,
    or when ``looks`` decides."""

    name = "reaper"

    def __init__(
        self,
        owner: Owner,
        store: Store,
        *,
        clock: Clock,
        own: Lease | None = None,
        deadlines: Deadlines | None = None,
        looks: OwnLooks | None = None,
        counters: Counters | None = None,
    ) -> None:
        self._owner = owner
        self._counters = counters or Counters()
        self.nudge = Nudge()
        self._looks = looks
        self._deadlines = deadlines
        self._store = store
        self._own = own
        self._clock = clock
        self._observer = Observer()
        self._presence = PresenceObserver()
        self._incarnation: str | None = None  # of the database, in the last scan
        self._failing: dict[int, Throttle] = {}  # worker that cannot be reaped -> its reports
        self._first = True  # whether nothing has been reconciled yet

    async def run_once(self) -> float:
        """Scan all workers, reap the workers that are gone, and reclaim their jobs; or only
        peek."""
        if self._looks is not None and not await self._has_to_look(self._looks):
            return self._looks.pause()
        asked_at = self._clock.boot()
        look = await self._look()
        reaped = await self._reap(look.workers, asked_at)
        failed: StoreError | None = None
        try:
            if reaped or look.orphans or self._first:
                await self._reconcile()
        except StoreError as error:
            failed = error
        try:
            if self._deadlines is not None and await self._deadlines.take_look(look):
                self._owner.look_for_work()
        except StoreError as error:
            failed = failed or error
        self._owner.take_look(look)
        is_done = failed is None or isinstance(failed, BadData)  # all but the named job was handled
        if self._looks is not None and is_done:
            await self._looks.leave_mark()
        if failed is not None:
            raise failed
        soon = self._presence.pause or LOOK_SECONDS
        return min([LOOK_SECONDS, soon, *[each.lease * LOOK_FRACTION for each in look.workers]])

    def take_peek(self, peek: Peek) -> None:
        """Take a peek that came with a beat."""
        self._owner.take_peek(peek)
        if self._looks is not None and self._looks.take(peek):
            self.nudge.give()

    async def _has_to_look(self, looks: OwnLooks) -> bool:
        try:
            peek = await looks.peek()
        except StoreError:
            self._forget()
            raise
        if peek is not None:
            self._owner.take_peek(peek)
        return self._first or looks.are_wanted()

    async def _look(self) -> Snapshot:
        try:
            look = await self._store.observe(SLACK_SECONDS)
        except StoreError:
            self._forget()
            raise
        if look.incarnation != self._incarnation:
            self._forget()
            self._incarnation = look.incarnation
        if self._own is not None and not self._own.is_renewed():
            self._observer.forget()
            self._presence.forget()
        return look

    def _forget(self) -> None:
        if self._looks is not None:
            self._looks.forget()
        self._observer.forget()
        self._presence.forget()
        if self._deadlines is not None:
            self._deadlines.forget()

    async def _reap(self, seen: list[WorkerSeen], asked_at: float) -> int:
        now, own_id = self._clock.boot(), None if self._own is None else self._own.me.worker_id
        others = [each for each in seen if each.worker_id != own_id]
        self._failing = {
            each.worker_id: self._failing[each.worker_id]
            for each in others
            if each.worker_id in self._failing
        }
        silent = {sign.worker_id for sign in self._observer.look(now, others)}
        absent = {sign.worker_id for sign in self._presence.look(asked_at, now, others)}
        count, here = 0, self._incarnation or ""
        for each in others:
            cause = self._cause_of_death(each, silent, absent)
            gone = each
            if cause is DeathCause.LOCK_FILE:  # the note in that file is final
                begun = lockfile.read_begun(each.lock_path, each.lock_device, each.lock_inode)
                gone = msgspec.structs.replace(each, begun=begun)
            if cause and await self._try_to_reap(gone, cause):
                count += 1
                emit(
                    "worker_reaped",
                    worker=each.name,
                    worker_id=each.worker_id,
                    cause=cause.value,
                    age=None if each.age is None else round(each.age, 3),
                )
                self._counters.note_death(cause)
                self._owner.note_reaped(each, cause)
                # and not in the original; the role follows in the row
                is_here = (each.incarnation or here).startswith(here)
                if cause is DeathCause.LOCK_FILE and is_here:
                    lockfile.remove(each.lock_path, each.lock_device, each.lock_inode)
        if count:
            emit("workers_deactivated", count=count)
        return count

    async def _try_to_reap(self, gone: WorkerSeen, cause: DeathCause) -> bool:
        """Try once. After a failure the next scan tries again; other workers are not affected."""
        try:
            reaped = await self._store.reap(gone, cause)
        except StoreError as error:
            # from the second failure in a row on: a row may be locked for an instant
            throttle = self._failing.get(gone.worker_id)
            if throttle is None:
                self._failing[gone.worker_id] = Throttle(self._clock)
            elif throttle.count():
                said = text_of(error)
                emit("reap_failed", worker=gone.name, worker_id=gone.worker_id, error=said)
            return False
        self._failing.pop(gone.worker_id, None)
        return reaped

    @staticmethod
    def _cause_of_death(each: WorkerSeen, silent: set[int], absent: set[int]) -> DeathCause | None:
        lock = probe(each.lock_path, each.lock_device, each.lock_inode, each.boot_id)
        if lock is Probe.FREE:
            return DeathCause.LOCK_FILE
        if lock is not Probe.HELD:  # held: its processes still live
            if each.told_gone:
                return DeathCause.TETHER
            if each.worker_id in absent:
                return DeathCause.PRESENCE
        return DeathCause.SILENCE if each.worker_id in silent else None

    async def _reconcile(self) -> None:
        """Reclaim orphans; the first call handles orphans from before the worker's start."""
        count, is_full, refused = 0, True, None
        while is_full:
            applied, refused = await reclaim_and_tell(self._store, self._decide, self._counters)
            count += len(applied)
            if applied and self._first:
                emit("orphaned_jobs_detected", count=len(applied))
            elif applied:
                emit("stale_jobs_detected", count=len(applied))
            for transition in applied:
                emit(
                    "job_reenqueued",
                    job_id=transition.job_id,
                    token=transition.token,
                    state=transition.state.value,
                    reason=transition.message,
                )
            if applied:
                self._owner.note_reclaimed(applied)
            is_full = len(applied) >= ORPHANS_MAX
        if self._first:
            self._first = False
            emit("reconciliation_complete", orphaned_count=count)
        if refused is not None:
            raise refused

    def _decide(self, orphan: Orphan) -> Transition:
        why = UNKNOWN if orphan.cause is None else orphan.cause.sentence
        message = f"worker {orphan.worker or orphan.worker_id} is gone: {why}"
        if not orphan.began:
            idle = Outcome(
                kind=OutcomeKind.RELEASED,
                message=f"{message}; it ran none of this",
                began=orphan.handed_back,
            )
            return decide(orphan.facts, idle, self._clock.random)
        outcome = Outcome(
            kind=OutcomeKind.CRASHED,
            crash=orphan.crash(CrashKind.LOST_WORKER, message),
            message=message,
            proven=orphan.cause is not None and orphan.cause.proven,
        )
        return decide(orphan.facts, outcome, self._clock.random)


class OwnLooks:
    """Decides on the scans of one worker, whose host has ``boot_id``: at its start, while it keeps
    a watch (``model.watch``), and when it finds the lock file of a neighbour free, which only a
    worker of the same host can see.

    Peeks show the marks and those files. They come with beats; without one for a second a worker
    peeks by itself, unless it hears of new work at once, enough others of its kind (``turns``) peek
    as well, and no peek shows that a watcher may be gone.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease,
        boot_id: str,
        *,
        clock: Clock,
        turns: WakeTurns | None = None,
    ) -> None:
        self._store = store
        self._lease = lease
        self._boot_id = boot_id
        self._clock = clock
        self._turns = turns
        self._watch = WatchPart()
        self._peek = Peek()
        self._peeked_at = float("-inf")
        self._has_stepped_in = False

    async def peek(self) -> Peek | None:
        """Peek, unless that was done lately, and leave a mark if a watch was free; return the new
        peek, if any."""
        peek = None
        is_rare = self._may_peek_rarely() and not self._watch.doubts()
        if self._clock.boot() - self._peeked_at >= (EASED_SECONDS if is_rare else LOOK_SECONDS / 2):
            peek = await self._store.peek(self._lease.me)
            self.take(peek)
        if self._has_stepped_in:
            self._has_stepped_in = False
            await self.leave_mark()
        return peek

    def take(self, peek: Peek) -> bool:
        """Take a peek; return whether this worker steps in for a watcher."""
        self._peek, self._peeked_at = peek, self._clock.boot()
        if self._watch.take_peek(self._peeked_at, self._lease.me.worker_id, peek.watches):
            self._has_stepped_in = True
        return self._has_stepped_in

    def pause(self) -> float:
        """Return the seconds to wait if no scan is wanted."""
        return (
            LOOK_SECONDS / 2 if self._may_peek_rarely() and self._watch.doubts() else LOOK_SECONDS
        )

    def _may_peek_rarely(self) -> bool:
        if self._watch.is_on or self._turns is None:
            return False
        return self._turns.are_among_many()

    def are_wanted(self) -> bool:
        """Whether this worker should scan all workers, after the last peek."""
        return (
            not self._peek.watches
            or self._watch.is_on
            or any(
                probe(each.lock_path, each.lock_device, each.lock_inode, self._boot_id)
                is Probe.FREE
                for each in self._peek.neighbours
            )
        )

    async def leave_mark(self) -> None:
        """Leave a mark, if this worker keeps a watch: also after each successful scan."""
        if self._watch.place is not None:
            await self._store.keep_watch(self._watch.place, self._watch.next_mark())

    def forget(self) -> None:
        """Start over: a peek or a scan has failed."""
        self._watch.forget()


class Deadlines:
    """The part of the reaper that closes overdue attempts, by their token, if their own worker's
    watchdog is stuck while its heartbeats continue. Three rules protect healthy attempts.

    - The hard deadline is the claim plus the timeout, but an attempt's clock starts when it begins:
      its worker gives it back if it has not begun within the patience plus BEGIN_SECONDS after the
      request, and that much time is allowed on top.
    - The worker must have been seen to beat without a pause for as long as the slack, all of it
      after the limit: a stopped one could neither end the attempt nor hand in its end.
    - The store's clock is trusted only while it runs in step (``SteadyClock``).
    """

    def __init__(self, store: Store, clock: Clock, counters: Counters | None = None) -> None:
        self._store = store
        self._counters = counters or Counters()
        self._clock = clock
        self._steady = SteadyClock()
        self._beating = Beating()

    def forget(self) -> None:
        """Start over: a scan has failed."""
        self._steady.forget()
        self._beating.forget()

    async def take_look(self, look: Snapshot) -> bool:
        """Take a snapshot made with a slack of SLACK_SECONDS; close attempts that are certainly
        overdue. Return whether any was closed."""
        now = self._clock.boot()
        self._steady.look(now, look.now)
        self._beating.look(now, look.workers)
        if not look.overdue:
            return False
        seen = await self._store.overdue(SLACK_SECONDS)
        workers = {worker.worker_id: worker for worker in look.workers}
        due = [
            (late.job_id, late.token)
            for late in seen
            if late.worker_id in workers and self._is_due(late, workers[late.worker_id])
        ]
        if not due:
            return False
        closed, refused = await reclaim_and_tell(
            self._store, self._decide, self._counters, only=due
        )
        for transition in closed:
            emit(
                "attempt_overdue",
                job_id=transition.job_id,
                token=transition.token,
                state=transition.state.value,
                reason=transition.message,
            )
        if refused is not None:
            raise refused
        return bool(closed)

    def _is_due(self, late: OverdueAttempt, worker: WorkerSeen) -> bool:
        if late.policy.timeout is None:
            return False
        slack = max(SLACK_SECONDS, SLACK_BEATS * worker.heartbeat)
        above = late.policy.cancel_grace + patience(worker.lease) + BEGIN_SECONDS + slack
        unseen = self._clock.boot() - self._beating.last_beat(worker.worker_id, after=slack)
        return late.seconds - unseen >= above and self._steady.covers(late.policy.timeout + above)

    def _decide(self, orphan: Orphan) -> Transition:
        message = (
            f"far above its limit of {orphan.facts.policy.timeout:g} s, and its own worker"
            f" ({orphan.worker or orphan.worker_id}) has not ended it"
        )
        crash = orphan.crash(CrashKind.TIMEOUT, message)
        outcome = Outcome(kind=OutcomeKind.CRASHED, crash=crash, message=message)
        return decide(orphan.facts, outcome, self._clock.random)
