"""Watches running attempts: the lease's trust, their limits, and stops that they ignore.

Limits count an attempt's own time: from the report that its code begins to the end of its function,
without time in which another attempt kept it from running, or in which neither this worker nor the
runner ran (``model/standstill.py``). An attempt that reaches the deadline on its row by time that
was not its own is given back, uncharged.

The watchdog acts on a limit once the attempt's runner has answered after it, or once the stacks
name the attempt as the one that blocks the runner: an attempt that only waits behind another's
blocking call is never charged. The blocking attempt is stopped at its own limits. If it has none,
or makes another wait ``PATIENCE_SECONDS`` above that one's limit, the waiting attempt's limit
counts for the runner. If no attempt can be named, the runner is killed at that point and all are
bystanders.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from outlast.base.clock import Clock
from outlast.events import emit
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.model.standstill import Standstill
from outlast.store.values import Claimed
from outlast.worker.base import AttemptControl, AttemptStarter, Owner, Running
from outlast.worker.claims.in_flight import InFlight
from outlast.worker.runners.responsiveness import (
    BLOCKED_SECONDS,
    CREDIT_SECONDS_MAX,
    Responsiveness,
)
from outlast.worker.service import Nudge

if TYPE_CHECKING:
    from outlast.worker.runners.control import RunnersControl

LOOK_SECONDS = 0.25
LOOK_SOON_SECONDS = 0.05  # while an answer or stacks are awaited to judge a limit
LOOK_IDLE_SECONDS = 0.5  # while nothing runs
UNRESPONSIVE_SECONDS = 1.0  # of silence; a runner that receives no request gets no longer grace
UNHELD_SECONDS = 5.0  # after which an attempt that no runner has is given back
PATIENCE_SECONDS = 5.0  # less than what reapers add to a deadline: they must not come first

UNHELD = "its worker held it, but no runner ran it"
HELD_SECONDS = 5.0  # for which all slots are held before it is reported, once each time


class Watchdog:
    """The duty that stops attempts: it asks first, and kills after the attempt's own grace. Without
    ``loops``, attempts run in the worker's own loop."""

    name = "watchdog"

    def __init__(
        self,
        owner: Owner,
        in_flight: InFlight,
        starter: AttemptStarter,
        control: AttemptControl,
        loops: RunnersControl | None,
        clock: Clock,
    ) -> None:
        self.nudge = Nudge()
        self._owner = owner
        self._in_flight = in_flight
        self._control = control
        self._loops = loops
        self._clock = clock
        self._still = Standstill()
        self._pending = False
        self._waits = Waits(in_flight, starter, clock)
        self._next_look_at = clock.boot()

    async def run_once(self) -> float:
        """Check all running attempts once."""
        now = self._clock.boot()
        self._owner.check_lease()
        self._pending = False
        if self._loops is not None:
            self._still.tick(now)
            self._loops.look_at_loops(self._still.spans)
        elif self._in_flight.running:
            self._credit_lateness(now)
        self._next_look_at = now + LOOK_SECONDS  # even if idle: attempts may begin meanwhile
        self._waits.look()
        return self._look_at_attempts(now) if self._in_flight.running else LOOK_IDLE_SECONDS

    def _look_at_attempts(self, now: float) -> float:
        self._control.recall("expired", lambda claimed: _has_expired(claimed, now))
        for running in list(self._in_flight.running.values()):
            self._judge(running, now)
        return LOOK_SOON_SECONDS if self._pending else LOOK_SECONDS

    def _credit_lateness(self, now: float) -> None:
        """Leave out the lateness of this check, which shares its loop with the attempts: one of
        them has kept the others from running, and no check can show which one."""
        late = now - self._next_look_at
        if late > LOOK_SECONDS and len(self._in_flight.held()) > 1:  # one may have ended just now
            for running in self._in_flight.running.values():
                running.credit(late, now, CREDIT_SECONDS_MAX)

    def _judge(self, running: Running, now: float) -> None:
        if not self._control.has(running.token):
            self._let_go(running, now)
            return
        if running.stopped_at is None and not _has_limit(running):
            return  # most attempts: each is checked four times a second
        loop = None if self._loops is None else self._loops.responsiveness_of(running.token)
        if loop is not None and loop.ending:
            return
        if running.stopped_at is not None:
            if self._loops is not None and now - running.stopped_at >= _grace(running, loop):
                self._loops.kill(running.token)
            return
        if loop is not None and self._is_unresponsive(running, loop):
            self._stop(running, "unresponsive")
            return
        reason, at = find_limit(running)
        if now < at:
            return
        if loop is not None and not loop.has_turned_since(at):
            self._judge_unheard(running, reason, at, loop)
        elif running.began_at is not None:
            self._stop(running, reason)
        elif now >= at + CREDIT_SECONDS_MAX:
            self._stop(running, "blocked")

    def _let_go(self, running: Running, now: float) -> None:
        """Give back an attempt that nothing runs: no lost frame or bug may hold it forever."""
        if now - running.started_at < UNHELD_SECONDS:
            return
        emit("attempt_unheld", job_id=running.claimed.job_id, token=running.token)
        self._in_flight.end(running.token, Outcome(kind=OutcomeKind.RELEASED, message=UNHELD))

    def _is_unresponsive(self, running: Running, loop: Responsiveness) -> bool:
        limit = running.claimed.policy.unresponsive_timeout
        if limit is None or loop.silent < max(limit, UNRESPONSIVE_SECONDS):
            return False
        self._pending = True
        if not loop.knows_blocker() or not loop.is_blocked_by(running.token):
            return False
        loop.tell()
        return True

    def _judge_unheard(
        self, running: Running, reason: str, at: float, loop: Responsiveness
    ) -> None:
        self._pending = True
        loop.ping()
        patience = BLOCKED_SECONDS if loop.may_have_stood_still else UNRESPONSIVE_SECONDS
        if loop.silent < patience or not loop.knows_blocker():
            return
        if loop.is_blocked_by(running.token):
            loop.tell()
            self._stop(running, reason)
        elif loop.silent >= BLOCKED_SECONDS:
            self._judge_blocker(loop, self._clock.boot() - at)

    def _judge_blocker(self, loop: Responsiveness, overdue: float) -> None:
        loop.tell()
        blocker = None if loop.named is None else self._in_flight.running.get(loop.named)
        if blocker is None:
            loop.give_up()
        elif blocker.stopped_at is None and (
            overdue >= PATIENCE_SECONDS or not _has_limit(blocker)
        ):
            self._stop(blocker, "unresponsive")

    def _stop(self, running: Running, reason: str) -> None:
        emit("attempt_stopping", token=running.token, reason=reason)
        self._control.stop(running.token, reason)


def _has_expired(claimed: Claimed, now: float) -> bool:
    return claimed.begin_by is not None and now >= claimed.begin_by


def _grace(running: Running, loop: Responsiveness | None) -> float:
    grace = running.claimed.policy.cancel_grace
    if loop is None or running.stopped_at is None or loop.has_turned_since(running.stopped_at):
        return grace
    return min(grace, UNRESPONSIVE_SECONDS) if loop.silent >= UNRESPONSIVE_SECONDS else grace


def find_limit(running: Running) -> tuple[str, float]:
    """Return the limit reached first, and its boot time; an unreported begin is at once."""
    policy, began = running.claimed.policy, running.began_at
    given_at = running.started_at + running.still
    ends: list[tuple[float, str]] = []
    if policy.timeout is not None:
        own = (given_at if began is None else began) + policy.timeout
        last = given_at + policy.timeout + CREDIT_SECONDS_MAX  # reapers allow for that
        if running.is_over:
            ends.append((last, "timeout"))
        else:
            ends.append((own, "timeout") if own <= last else (last, "blocked"))
    if policy.stall_timeout is not None and running.saving is None:
        ends.append((running.last_sign_at + policy.stall_timeout, "stalled"))
    at, reason = min(ends, default=(inf, ""))
    return reason, at


def _has_limit(running: Running) -> bool:
    policy = running.claimed.policy
    return not (
        policy.timeout is None
        and policy.stall_timeout is None
        and policy.unresponsive_timeout is None
    )


def _waits(running: Running) -> bool:
    return running.progress is not None and running.progress.waits_for is not None


class Waits:
    """Checks whether all attempts wait for other jobs and no slot is free. A task that waits for a
    job's result holds its slot: if all do, no such job begins here and, without another worker,
    they wait forever. The worker cannot fix that; it emits an event."""

    def __init__(self, in_flight: InFlight, starter: AttemptStarter, clock: Clock) -> None:
        self._in_flight = in_flight
        self._starter = starter
        self._clock = clock
        self._since: float | None = None
        self._told = False

    def look(self) -> None:
        """Check once."""
        running = list(self._in_flight.running.values())
        if not running or not all(map(_waits, running)) or self._has_free_slot():
            self._since = None
            return
        now = self._clock.boot()
        if self._since is None:
            self._since, self._told = now, False
        if not self._told and now - self._since >= HELD_SECONDS:
            self._told = True
            one = min(running, key=lambda each: each.claimed.job_id)
            emit(
                "slots_held_by_waiting",
                running=len(running),
                job_id=one.claimed.job_id,
                waits_for=one.progress and one.progress.waits_for,
            )

    def _has_free_slot(self) -> bool:
        """Whether a task like the waiting ones could begin. A crowded-out spare takes only a plain
        function, which may not be the job that they wait for."""
        waiting = {each.claimed.task for each in self._in_flight.running.values()}
        requests = self._starter.make_requests(0)
        return any(not request.solo and waiting & {*request.tasks} for request in requests)
