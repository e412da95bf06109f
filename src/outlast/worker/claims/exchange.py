"""Reports ended attempts and claims the next jobs in one round trip: the hot path.

Attempts that end during an exchange are reported by the next one. The outcome of a trip that breaks
off is unknown: the connection is dropped, the epoch is raised (which waits for a server still busy
with the old trip), the ends are handed in again, and every job that the store assigned to this
worker without its knowledge is given back.

A job that lost two workers in a row runs alone in its worker. An empty worker asks for one before
all others. A busy worker asks now and then, unless an attempt has run for long; it gives the job
back, and takes no jobs for a moment to become empty, so that a stream of short jobs cannot starve
it. With hours-long jobs in every worker it waits for the first one that becomes empty.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from outlast.base.clock import Clock
from outlast.base.text import escape
from outlast.errors import BadData, StoreError, StoreUnavailable, text_of
from outlast.events import emit
from outlast.model.crash import Crash, CrashKind, rewrite
from outlast.model.job import State
from outlast.model.lease import patience
from outlast.model.lifecycle import Outcome, OutcomeKind, Transition
from outlast.model.pause import Pauses
from outlast.store.batches import bisecting
from outlast.store.protocol import OUTCOMES_MAX, Store
from outlast.store.rows import JobFilter, Part
from outlast.store.values import TRIP_BYTES, Answer, Claimed, ClaimRequest, Exchanged, WorkerRef
from outlast.worker.base import Lease, Pool, Running
from outlast.worker.claims.checkpoints import CheckpointWriter
from outlast.worker.claims.in_flight import (
    InFlight,
    TripBytes,
    size_of,
    size_of_all,
    size_of_claimed,
)
from outlast.worker.claims.pacing import TripPlan
from outlast.worker.claims.pauses import PauseKeeper
from outlast.worker.claims.prefetch import WAIT_SECONDS_MAX
from outlast.worker.claims.units import Units
from outlast.worker.claims.until_empty import UntilEmpty

T = TypeVar("T")
Asked = tuple[WorkerRef, Pauses]

RECONCILE_SECONDS = 30.0  # between two reconciliations, if no reply was lost
LEFT_OPEN_SECONDS = 60.0  # then the open transaction of an ended attempt counts as forgotten
CLEARING_SECONDS = 10.0  # in which a busy worker takes no jobs, to become empty
CLEARING_EVERY_SECONDS = 60.0  # between two such times, at least
_TURNS = itertools.count()  # lets each task be the first one
ASK_EVERY_SECONDS = 10.0  # between two requests of a busy worker for a job that needs all of it


class AloneInWorker:
    """Decides when a worker asks for a job that needs all of it (``solo`` of ``least`` or more),
    and makes room for one."""

    def __init__(self, in_flight: InFlight, clock: Clock, least: int) -> None:
        self._in_flight = in_flight
        self._clock = clock
        self._least = least
        self.asked = False  # whether the last requests were for one, too
        self._clearing_until = self._asks_at = clock.boot()

    def may_claim(self) -> bool:
        """Whether the worker may take jobs: none has it to itself, or is to have it."""
        running = self._in_flight.running
        if len(running) == 1 and self._is_alone(next(iter(running.values()))):
            return False
        return self._clock.boot() >= self._clearing_until or self._in_flight.is_empty()

    def may_ask(self) -> bool:
        """Whether the worker is empty, or may be in a moment."""
        if self._in_flight.is_empty():
            return True
        now, running = self._clock.boot(), self._in_flight.running.values()
        return now >= self._asks_at and all(now - e.started_at < CLEARING_SECONDS for e in running)

    def note_asked(self, requests: Sequence[ClaimRequest]) -> None:
        """Note whether a trip requests such a job."""
        self.asked = bool(requests) and requests[0].solo >= self._least
        if self.asked:
            self._asks_at = self._clock.boot() + ASK_EVERY_SECONDS

    def may_start(self, attempts: Sequence[Running]) -> bool:
        """Whether the attempts of a reply may start. If one needs the whole worker while others are
        in flight, the worker begins to become empty."""
        if not any(map(self._is_alone, attempts)) or len(self._in_flight.running) == 1:
            return True
        now = self._clock.boot()
        self._clearing_until = now + CLEARING_SECONDS
        self._asks_at = now + CLEARING_EVERY_SECONDS
        return False

    def is_wanted(self) -> bool:
        """Whether the worker has become empty for such a job, and has not asked for it since."""
        is_clearing = self._clock.boot() < self._clearing_until
        return is_clearing and not self.asked and self._in_flight.is_empty()

    def _is_alone(self, running: Running) -> bool:
        return running.claimed.solo >= self._least


class Exchange:
    """The duty that hands in ends to the store and fills the pool from it."""

    name = "exchange"

    def __init__(
        self,
        store: Store,
        in_flight: InFlight,
        pool: Pool,
        lease: Lease,
        checkpoints: CheckpointWriter,
        plan: TripPlan,
        pauses: PauseKeeper,
        *,
        clock: Clock,
        units: Units | None = None,
    ) -> None:
        self.nudge = plan.nudge
        self._store = store
        self._in_flight = in_flight
        self._starter = pool.starter
        self._control = pool.control
        self._lease = lease
        self._checkpoints = checkpoints
        self._clock = clock
        self._turns = plan.turns
        self._inbox = plan.inbox
        self._pauses = pauses
        self._plan = plan
        self._look_every = lease.terms.heartbeat
        self.claimed_at = float("-inf")  # when the last answered claim was requested
        self._reconcile_every = max(RECONCILE_SECONDS, self._look_every)
        self._patience = patience(lease.terms.lease)
        self._bytes = TripBytes(self._patience)
        self._broken = False
        self._reconciled_at = clock.boot()
        self._looked_at = clock.boot()
        self._superseded: set[int] = set()  # attempts asked to stop; killed at the next check
        self._alone = AloneInWorker(in_flight, clock, pool.starter.exclusive_from)
        self._units = units
        self._until_empty: UntilEmpty | None = None  # for a worker that leaves then

    def stop_when_empty(self, until: UntilEmpty) -> None:
        """Narrow the requests from now on, and ask for a stop, as this decides."""
        self._until_empty = until

    async def run_once(self) -> float:
        """Make one trip if there is an end to report or a slot to fill."""
        self._plan.begin()
        self._starter.give_back_late()
        pause = await self._look()
        return min(pause, WAIT_SECONDS_MAX) if self._starter.count_waiting() else pause

    async def _look(self) -> float:
        if self._broken:
            await self._reconnect()
        if self._units is not None and (tasks := self._units.find_unfit()):
            await self._keep_units(self._units, tasks)
        now = self._clock.boot()
        if now - self._looked_at >= self._look_every:
            self._looked_at = now
            await self._stop_superseded()
            now = self._clock.boot()
        ended = [] if self._bytes.doubts else self._in_flight.take(OUTCOMES_MAX, self._bytes.limit)
        alone = self._bytes.is_alone(ended)
        requests = [] if alone else self._choose_requests(ended, now)
        if not (ended or requests or self._bytes.doubts):
            if self._inbox is not None and not self._plan.may_wait():
                self._inbox.refuse()
                self._inbox.offer(0)
            await self._reconcile_when_due()
            return self._plan.rest(len(self._in_flight.ended))
        asked_as = self._lease.me, self._pauses.pauses
        reply = await self._trip(ended, requests, now)
        if alone:  # it carried no claim requests
            self._plan.hint()
        try:
            return await self._take_reply(ended, requests, reply, asked_as)
        except BaseException:
            self._broken = True  # a partly processed reply counts as lost
            raise

    async def _stop_superseded(self) -> None:
        """Stop attempts that another worker has closed: ask them, and kill those found before. The
        watchdog may be stuck, which is why the other worker closed them."""
        held = [(each.claimed.job_id, each.token) for each in self._in_flight.running.values()]
        lost = await self._guard(self._store.superseded(held)) if held else []
        for token in lost:
            running = self._in_flight.running.get(token)
            if token in self._superseded:
                self._control.kill(token)
            elif running is not None:
                emit("attempt_superseded", job_id=running.claimed.job_id, token=token)
                self._control.stop(token, "lease_lost")
        self._superseded = set(lost)

    async def _keep_units(self, units: Units, tasks: tuple[str, ...]) -> None:
        """Keep the units that these tasks need at once, if a job of them may wait."""
        look = self._store.inspector.jobs
        for task in tasks:
            for part in (Part.LINE, Part.STREAMS):
                queued = JobFilter(state=State.QUEUED, task=task, part=part, limit=1)
                if await self._guard(look(queued)):
                    units.keep_for(tasks)
                    return

    def _choose_requests(self, ended: list[Transition], now: float) -> list[ClaimRequest]:
        if not self._lease.may_claim() or (not ended and self._plan.may_wait()):
            return []
        if not (self._pauses.are_known() and self._alone.may_claim()):
            return []
        alone = self._starter.make_alone_requests() if self._alone.may_ask() else []
        requests = self._starter.make_requests(len(self._in_flight.ended))
        wanted = bool(alone or requests)
        alone, requests = self._pauses.narrow(alone), self._pauses.narrow(requests)
        if self._units is not None:
            requests = self._units.narrow(requests, is_hinted=self._plan.is_hinted)
        requests = [*alone, *requests]
        if self._until_empty is not None:
            requests = self._until_empty.narrow(requests)
            if wanted and not requests and self._in_flight.is_empty():  # all is paused
                self._until_empty.stop()
        if self._plan.is_poll_due(now):
            return requests
        if ended:
            return [] if self._may_hand_in_alone(ended, now) else requests
        return [] if all(each.solo for each in requests) else requests

    def _may_hand_in_alone(self, ended: list[Transition], now: float) -> bool:
        """Whether a trip for these ends need not look for jobs: none of them lets another run."""
        return (
            self._plan.may_hand_in_alone(now)
            and self._units is None
            and self._until_empty is None
            and self._in_flight.are_plain(ended)
        )

    async def _trip(
        self, ended: list[Transition], requests: list[ClaimRequest], now: float
    ) -> Exchanged:
        was_at_rest = now < self._plan.rests_until
        self._plan.note_asked(now, len(self._in_flight.ended), has_ends=bool(ended))
        if self._inbox is not None:
            self._inbox.hand_over(requests)
        if (most := self._bytes.limit) != TRIP_BYTES:
            requests = [msgspec.structs.replace(each, bytes_max=most) for each in requests]
        self._alone.note_asked(requests)
        if requests:
            requests = self._follow_wakeups(ended, requests, was_at_rest=was_at_rest)
            self._turns.note_claim(now)
        try:
            if ended and not (self._checkpoints.rests and self._checkpoints.logs.rests):
                await self._checkpoints.report_last(each.token for each in ended)
            async with asyncio.timeout(self._patience):
                reply = await exchange_bisecting(
                    self._store, self._lease.me, ended, requests, self._in_flight.reject
                )
        except TimeoutError:
            if self._bytes.note_timeout(ended):
                size = size_of(ended[0])
                message = f"{size:,} bytes did not reach the store in {self._patience:g} s"
                ended = [self._in_flight.reject(ended[0], message)]
            self._note_break(ended)
            raise self._say_late() from None
        except BaseException:
            self._note_break(ended)
            raise
        asked_at = self._plan.asked_at
        self.claimed_at = asked_at if requests else self.claimed_at
        took = self._clock.boot() - asked_at
        if requests and not ended:
            self._turns.note_trip(took)
        self._bytes.note_answer(max(size_of_claimed(reply.claimed), size_of_all(ended)), took)
        return reply

    def _follow_wakeups(
        self, ended: list[Transition], requests: list[ClaimRequest], *, was_at_rest: bool
    ) -> list[ClaimRequest]:
        """Return the requests with the followed wake-ups, of which the store notifies others. A
        busy worker makes the trip for its ends anyway, and notifies none with each commit."""
        followed = self._turns.follow(requests)
        if followed is None or (ended and not was_at_rest):
            return requests
        first = msgspec.structs.replace(requests[0], followed=followed)
        return [first, *requests[1:]]

    def _say_late(self) -> StoreUnavailable:
        why = self._store.why_late()
        return StoreUnavailable(f"no answer within {self._patience:g} s{why and f': {why}'}")

    def _note_break(self, ended: list[Transition]) -> None:
        self._broken = True
        self._bytes.note_break()
        self._free_the_file()
        if self._inbox is not None:
            self._inbox.settle(answered=False)
        self._in_flight.give_back(ended)

    async def _take_reply(
        self,
        ended: list[Transition],
        requests: list[ClaimRequest],
        reply: Exchanged,
        asked_as: Asked,
    ) -> float:
        if ended:
            self._in_flight.take_answers(ended, reply.answers)
        if self._inbox is not None:
            self._inbox.settle(answered=True, claimed=reply.claimed)
        self._close_what_was_left_open()
        if reply.claimed:
            self._start(reply.claimed, asked_as)
        if reply.expired:
            emit("jobs_expired", rows=reply.expired)
        for _, token in reply.cancels:
            self._control.stop(token, "cancel")
        if not reply.valid:
            requests = []  # they were not considered
            if self._lease.may_claim():
                self._broken = True
                return 0.0
        again = self._alone.is_wanted()
        if self._units is not None and self._units.take_reply(reply):
            again = True
        if self._until_empty is not None:
            is_empty = self._in_flight.is_empty()
            again = again or (is_empty and bool(requests) and not self._alone.asked)
            is_idle = is_empty and not again
            if self._until_empty.take_reply(requests, reply, is_idle=is_idle):
                again = True
        if not reply.claimed:
            await self._reconcile_when_due()
        if again:
            return 0.0
        return self._plan.take_reply(
            requests,
            reply,
            len(self._in_flight.ended),
            tasks={*self._starter.tasks()} - self._pauses.pauses.tasks,
            is_running=bool(self._in_flight.running),
            ahead=self._starter.count_ahead(),
        )

    def _close_what_was_left_open(self) -> None:
        """End a runner whose ended attempt has left its own transaction, with its row lock, open:
        the database closes the transactions of an ended process."""
        for transition, seconds in self._in_flight.find_left_open(LEFT_OPEN_SECONDS):
            _tell_left_open(transition.job_id, transition.token, transition.pid, seconds)
            if transition.pid is not None:
                self._control.kill_process(transition.pid, "transaction_left_open")

    def _free_the_file(self) -> None:
        """End a runner that keeps all writers of a SQLite file waiting, while an attempt in it has
        ended or saves: a task has forgotten to commit, or saves in its own transaction. Another
        attempt in it may hold the transaction, so only an empty runner is ended at once; the
        attempts in another become suspects."""
        writer = self._store.find_writer()
        first = None if writer is None else self._in_flight.find_first_waiting(writer)
        if writer is not None and first is not None:
            running, since = first
            job_id, seconds = running.claimed.job_id, self._clock.boot() - since
            _tell_left_open(job_id, running.token, writer, seconds)
            waits = job_id if seconds >= LEFT_OPEN_SECONDS else None
            self._control.kill_locking(writer, waits)

    def _start(self, claimed: list[Claimed], asked_as: Asked) -> None:
        """Start the claimed attempts; give back attempts that may no longer begin."""
        asked_at = self._plan.asked_at
        attempts = self._in_flight.claim(
            [each if each.expires_in is None else _expiring(each, asked_at) for each in claimed]
        )
        # if a row cannot be read, its limits here are not the job's own
        starts = [
            each
            for each in self._choose_starts(attempts, asked_as)
            if each.claimed.malformed is None
        ]
        self._starter.start(starts)
        if len(starts) < len(attempts):
            for running in attempts:
                if running not in starts:
                    self._in_flight.end(running.token, _end_unbegun(running.claimed))
        self._in_flight.tell_begun()

    def _choose_starts(self, attempts: list[Running], asked_as: Asked) -> list[Running]:
        """Return the attempts that may start: none if the right to them ended while the reply came.
        One with a timeout must begin within the patience (``Deadlines`` in the reaper), even if
        this process was stopped meanwhile."""
        me, paused = asked_as
        if not self._lease.may_claim() or self._lease.me != me:
            return []
        if self._pauses.pauses is not paused:  # changed meanwhile
            attempts = self._pauses.choose(attempts)
        if not self._alone.may_start(attempts):
            return []
        if self._clock.boot() - self._plan.asked_at <= self._patience:
            return attempts
        return [each for each in attempts if each.claimed.policy.timeout is None]

    async def _reconcile_when_due(self) -> None:
        if self._clock.boot() - self._reconciled_at >= self._reconcile_every:
            await self._reconcile()

    async def _reconcile(self) -> None:
        released = await self._guard(self._store.reconcile(self._lease.me, self._in_flight.held()))
        self._reconciled_at = self._clock.boot()
        for job_id, token in released:
            emit("claim_reconciled", job_id=job_id, token=token)
        if released:
            self._plan.hint()

    async def _reconnect(self) -> None:
        await self._store.drop_connections()
        if await self._guard(self._lease.reconnect()):
            await self._reconcile()
        self._broken = False

    async def _guard(self, call: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._patience):
                return await call
        except (TimeoutError, StoreError) as error:
            self._broken = True
            self._free_the_file()
            if isinstance(error, TimeoutError):
                raise self._say_late() from None
            raise


async def exchange_bisecting(
    store: Store,
    me: WorkerRef,
    ended: Sequence[Transition],
    requests: Sequence[ClaimRequest],
    reject: Callable[[Transition, str], Transition],
) -> Exchanged:
    """Exchange; ``reject`` gets an end that the store refuses, and why; it returns the one to write
    instead.

    Answers are in the order of ``ended``; an end that is refused in both forms, such as by a
    trigger of the user's, is busy. After a refusal the requests are sent last and alone, lowered by
    the number of busy ends. Raises BadData if the store refuses the requests for each task.
    """
    try:
        return await store.exchange(me, ended, requests)
    except BadData:
        if not ended:
            return await _claim(store, me, requests)

    async def hand_in(some: Sequence[Transition]) -> Sequence[Answer | Transition]:
        return (await store.exchange(me, some, [])).answers

    def refuse(end: Transition, error: BadData) -> Transition:
        return reject(end, f"the store refused the result: {text_of(error)}")

    found = await bisecting(hand_in, ended, refuse, _with_escapes)
    answers = [each if isinstance(each, Answer) else await _end(store, me, each) for each in found]
    busy = answers.count(Answer.BUSY)
    left = [
        msgspec.structs.replace(request, limit=max(0, request.limit - busy)) for request in requests
    ]
    reply = await _claim(store, me, left)
    return msgspec.structs.replace(reply, answers=answers)


async def _end(store: Store, me: WorkerRef, end: Transition) -> Answer:
    try:
        return (await store.exchange(me, [end], [])).answers[0]
    except BadData:
        return Answer.BUSY


async def _claim(store: Store, me: WorkerRef, requests: Sequence[ClaimRequest]) -> Exchanged:
    """Claim; where a trigger of the user's refuses the start of a job, claim by one task after the
    other until some jobs are claimed: only the jobs of its task wait behind it. If none were
    claimed, raise an error that names a task."""
    try:
        return await store.exchange(me, [], requests)
    except BadData as error:
        refused = error
    tasks = sorted({task for request in requests for task in request.tasks})
    turn = next(_TURNS) % max(1, len(tasks))
    for task in tasks[turn:] + tasks[:turn]:
        of_task = [
            msgspec.structs.replace(each, tasks=[task]) for each in requests if task in each.tasks
        ]
        try:
            reply = await store.exchange(me, [], of_task)
        except BadData as error:
            refused = BadData(f"no job of {task} can start: {text_of(error)}")
            continue
        if reply.claimed:
            return reply
    raise refused


def _with_escapes(end: Transition) -> Transition:
    return msgspec.structs.replace(
        end,
        result=end.result and escape(end.result),
        message=escape(end.message),
        crash=end.crash and rewrite(end.crash, escape),
    )


def _tell_left_open(job_id: int, token: int, pid: int | None, seconds: float) -> None:
    seconds = round(seconds, 3)
    emit("transaction_left_open", job_id=job_id, token=token, pid=pid, seconds=seconds)


def _expiring(claimed: Claimed, asked_at: float) -> Claimed:
    """Return the job with the boot time by which it has to begin, counted from the request, which
    came before the claim: no two clocks are compared."""
    begin_by = asked_at + (claimed.expires_in or 0.0)
    return msgspec.structs.replace(claimed, begin_by=begin_by)


def _end_unbegun(claimed: Claimed) -> Outcome:
    """Return the end of an attempt that does not begin: back to the queue, or dead, until it is
    fixed, if no release can read its row."""
    if claimed.malformed is None:
        return Outcome(kind=OutcomeKind.RELEASED, began=False)
    crash = Crash(kind=CrashKind.UNDECODABLE, message=claimed.malformed)
    return Outcome(kind=OutcomeKind.DEAD, crash=crash, message=claimed.malformed)
