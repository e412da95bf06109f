"""Watches what runs: the lease's trust, each attempt's limits, and stops that are not obeyed.

A limit counts once the attempt's runner has answered after it, or once the stacks name the attempt
as the one that keeps the runner from answering. So an attempt that only waits behind another one's
blocking call is never charged. The one that blocks is stopped at its own limits; if it has none, or
lets another wait ``PATIENCE_SECONDS`` above its limit, that other's limit counts for the runner. If
none can be named, the runner is killed at that point and all are bystanders.
"""

from __future__ import annotations

from collections.abc import Callable

from outlast.clock import Clock
from outlast.events import emit
from outlast.model.lease import Trust
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.worker.base import Pool
from outlast.worker.claims.ledger import Ledger, Running
from outlast.worker.runners.responsiveness import BLOCKED_SECONDS, Responsiveness
from outlast.worker.runners.waits import Waits

LOOK_SECONDS = 0.25
LOOK_SOON_SECONDS = 0.05  # while an answer or stacks are awaited to judge a limit
DEAF_SECONDS = 1.0  # of silence; a runner that cannot receive the request gets no longer grace
UNHELD_SECONDS = 5.0  # after which an attempt that nothing runs is given back
PATIENCE_SECONDS = 5.0  # less than what reapers add to a deadline: they must not come first

UNHELD = "its worker had it on its books, but nothing ran it"


class Watchdog:
    """The duty that stops attempts: first asked, then, after their own grace, killed."""

    name = "watchdog"

    def __init__(
        self,
        ledger: Ledger,
        pool: Pool,
        *,
        trust: Callable[[], Trust],
        on_lapse: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._pool = pool
        self._trust = trust
        self._on_lapse = on_lapse
        self._clock = clock
        self._pending = False
        self._waits = Waits(ledger, pool, clock)

    async def run_once(self) -> float:
        """Look at everything that runs, once."""
        now = self._clock.boot()
        if not self._trust().holds(now):
            self._on_lapse()
        self._pending = False
        self._pool.listen()
        for running in list(self._ledger.running.values()):
            self._judge(running, now)
        self._waits.look()
        return LOOK_SOON_SECONDS if self._pending else LOOK_SECONDS

    def _judge(self, running: Running, now: float) -> None:
        if not self._pool.runs(running.token):
            self._let_go(running, now)
            return
        if running.stopped_at is None and not _has_limit(running):
            return  # most attempts, and this is done for each four times a second
        loop = self._pool.responsiveness_of(running.token)
        if loop is not None and loop.ending:
            return
        if running.stopped_at is not None:
            if now - running.stopped_at >= _grace(running, loop):
                self._pool.kill(running.token)
            return
        if loop is not None and self._is_unresponsive(running, loop):
            self._stop(running, "unresponsive")
            return
        reason, at = _limit(running)
        if now < at:
            return
        if loop is None or loop.turned_since(at):
            self._stop(running, reason)
        else:
            self._judge_unheard(running, reason, at, loop)

    def _let_go(self, running: Running, now: float) -> None:
        """Give back what nothing runs: no lost frame, no fault of ours may hold it for ever."""
        if now - running.started_at < UNHELD_SECONDS:
            return
        emit("attempt_unheld", job_id=running.claimed.job_id, token=running.token)
        self._ledger.end(running.token, Outcome(kind=OutcomeKind.RELEASED, message=UNHELD))

    def _is_unresponsive(self, running: Running, loop: Responsiveness) -> bool:
        limit = running.claimed.policy.unresponsive_timeout
        if limit is None or loop.silent < max(limit, DEAF_SECONDS):
            return False
        self._pending = True
        if not loop.knows_blocker() or loop.named != running.token:
            return False
        loop.tell()
        return True

    def _judge_unheard(
        self, running: Running, reason: str, at: float, loop: Responsiveness
    ) -> None:
        self._pending = True
        loop.ping()
        if loop.silent < DEAF_SECONDS or not loop.knows_blocker():
            return
        if loop.named == running.token:
            loop.tell()
            self._stop(running, reason)
        elif loop.silent >= BLOCKED_SECONDS:
            self._judge_blocker(loop, self._clock.boot() - at)

    def _judge_blocker(self, loop: Responsiveness, overdue: float) -> None:
        loop.tell()
        blocker = None if loop.named is None else self._ledger.running.get(loop.named)
        if blocker is None:
            loop.give_up()
        elif blocker.stopped_at is None and (
            overdue >= PATIENCE_SECONDS or not _has_limit(blocker)
        ):
            self._stop(blocker, "unresponsive")

    def _stop(self, running: Running, reason: str) -> None:
        emit("attempt_stopping", token=running.token, reason=reason)
        self._pool.stop(running.token, reason)


def _grace(running: Running, loop: Responsiveness | None) -> float:
    grace = running.claimed.policy.cancel_grace
    if loop is None or running.stopped_at is None or loop.turned_since(running.stopped_at):
        return grace
    return min(grace, DEAF_SECONDS) if loop.silent >= DEAF_SECONDS else grace


def _limit(running: Running) -> tuple[str, float]:
    """Return the limit that is reached first, and when, on the boot clock."""
    policy = running.claimed.policy
    limits = (
        ("timeout", running.started_at, policy.timeout),
        ("stalled", running.last_sign_at, policy.stall_timeout),
    )
    ends = [
        (since + running.blocked + limit, reason)
        for reason, since, limit in limits
        if limit is not None
    ]
    at, reason = min(ends, default=(float("inf"), ""))
    return reason, at


def _has_limit(running: Running) -> bool:
    policy = running.claimed.policy
    return not (
        policy.timeout is None
        and policy.stall_timeout is None
        and policy.unresponsive_timeout is None
    )
