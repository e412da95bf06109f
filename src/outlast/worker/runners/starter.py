"""Starts attempts in runners: makes claim requests, lets attempts wait, sends them to runners.

``worker/runners/assignment.py`` decides which runner takes which attempt.
"""

from __future__ import annotations

from typing import NamedTuple

from outlast.base.clock import Clock
from outlast.errors import text_of
from outlast.model.crash import CrashKind
from outlast.model.job import ALONE_IN_RUNNER, ALONE_IN_WORKER
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.runner.protocol import FrameError, Run, in_batches
from outlast.store.values import ClaimRequest
from outlast.worker.base import Declared, Owner, Running
from outlast.worker.claims.in_flight import InFlight
from outlast.worker.claims.prefetch import (
    CROWDED_EVERY_SECONDS,
    WAIT_SECONDS_MAX,
    Prefetch,
    count_ahead,
)
from outlast.worker.runners.assignment import NO_STOCK, Assignment, Stock
from outlast.worker.runners.exits import make_crash
from outlast.worker.runners.process import RunnerProcess
from outlast.worker.runners.supervisor import RunnerSupervisor

STOCK_MAX = 100  # attempts that wait in a runner for one of its slots
STOCK_SECONDS = 0.01  # within which they will begin, at the current rate
QUICK_SECONDS = 0.02  # a runner in which no attempt has ended for longer gets no stock

_NO_PLACE = Outcome(
    kind=OutcomeKind.RELEASED,
    message="no runner that knows it was free",  # one of them died, or has older code
    delay=1.0,  # seconds, so that it is not claimed again at once, again and again
    began=False,
)


class Prefetches(NamedTuple):
    """The attempts that wait for a slot: those with a runner to themselves, and shared ones."""

    alone: Prefetch
    shared: Prefetch

    def of(self, runner: RunnerProcess) -> Prefetch:
        """Return the waiting attempts that could take a place in this runner."""
        return self.alone if runner.exclusive else self.shared


class RunnerStarter:
    """The ``AttemptStarter`` of a pool of runners, which ``slots`` attempts fill."""

    exclusive_from = ALONE_IN_WORKER

    def __init__(
        self,
        owner: Owner,
        in_flight: InFlight,
        supervisor: RunnerSupervisor,
        assignment: Assignment,
        prefetches: Prefetches,
        *,
        stock_max: int,
        clock: Clock,
    ) -> None:
        self._owner = owner
        self._in_flight = in_flight
        self._supervisor = supervisor
        self._assignment = assignment
        self._prefetches = prefetches
        self._slots = assignment.size * assignment.concurrency
        self._stock_max = stock_max if assignment.concurrency < stock_max else 0
        self._clock = clock
        self._next_crowded_at = clock.boot() + CROWDED_EVERY_SECONDS

    def tasks(self) -> list[str]:
        """Return the names that the active runners have announced, less those in ``lacks``."""
        return sorted({name for runner in self._assignment.active() for name in runner.tasks})

    def lacks(self) -> dict[str, list[str]]:
        active = self._assignment.active()
        return {name: runner.lacks[name] for runner in active for name in sorted(runner.lacks)}

    def declared(self) -> Declared:
        """Return what the newest active runner declares."""
        active = self._assignment.active()
        return active[-1].declared if active else Declared()

    # -- requests ------------------------------------------------------------------------------

    def make_requests(self, unanswered: int) -> list[ClaimRequest]:
        """Return requests for jobs that fit now or may wait, and for suspects while a spare runner
        is ready to take them."""
        alone, shared = (prefetch.grant() for prefetch in self._prefetches)
        part, now = self._prefetches.shared.part(self._slots), self._clock.boot()
        # a plain function for the spare is requested now and then: a request costs a search
        spare = now >= self._next_crowded_at and self._assignment.crowds_out()
        if spare:
            self._next_crowded_at = now + CROWDED_EVERY_SECONDS
        return self._assignment.make_requests(unanswered, alone, shared, part, spare=spare)

    def make_alone_requests(self) -> list[ClaimRequest]:
        tasks, queues = self.tasks(), self._assignment.queues
        return [ClaimRequest(tasks, 1, queues, ALONE_IN_WORKER)] if tasks else []

    # -- claimed attempts ----------------------------------------------------------------------

    def start(self, attempts: list[Running]) -> None:
        """Send attempts to runners; those that fit nowhere yet wait, or are released."""
        if left := self._send_all(attempts):
            self._keep_waiting(left)
        suspects = any(running.claimed.solo == ALONE_IN_RUNNER for running in attempts)
        self._replace_spare(is_taken=suspects)
        self._supervisor.retire_worn()

    def _replace_spare(self, *, is_taken: bool = False) -> None:
        """Let another spare be started if suspects or a plain function have taken the last one."""
        if is_taken or self._assignment.is_overfull():
            self._owner.note_pool_change()

    def _send_all(self, attempts: list[Running]) -> list[Running]:
        """Send attempts to runners; return those that fit nowhere."""
        if not attempts:
            return []
        plan = self._assignment.place(attempts, self._stock())
        for runner, its in plan.items():
            self._begin(runner, its)
        if sum(map(len, plan.values())) == len(attempts):
            return []
        placed = {running.token for its in plan.values() for running in its}
        return [running for running in attempts if running.token not in placed]

    def _keep_waiting(self, attempts: list[Running]) -> None:
        names = {running.claimed.task for running in attempts}
        own = {name: self._assignment.has_own_runner(name) for name in names}
        for running in attempts:
            alone = own[running.claimed.task]
            prefetch = self._prefetches.alone if alone else self._prefetches.shared
            if alone is None or running.claimed.solo or not prefetch.put(running):
                self._in_flight.end(running.token, _NO_PLACE)

    def _begin(self, runner: RunnerProcess, attempts: list[Running]) -> None:
        self._owner.note_begin(max([running.token for running in attempts]))  # before any can begin
        runner.taken += len(attempts)
        now, pid, release, python = self._clock.boot(), runner.pid, runner.release, runner.python
        for running in attempts:
            running.started_at = running.last_sign_at = now
            running.pid, running.release, running.python = pid, release, python
        for batch in in_batches([running.claimed for running in attempts]):
            try:
                runner.send(Run(self._owner.me.worker_id, batch))
            except FrameError as error:  # a row that another program has written
                for claimed in batch:
                    runner.let_go([claimed.token])
                    self._in_flight.end(claimed.token, make_crash(CrashKind.ERROR, text_of(error)))

    # -- waiting attempts ----------------------------------------------------------------------

    def refill(self) -> None:
        """Give free slots to waiting attempts, if attempts may begin at all."""
        if not any(self._prefetches):
            return
        if self._supervisor.closing or not self._owner.registration.may_claim():
            self.give_back("the worker takes no more")
            return
        alone, shared = self._prefetches
        left: list[Running] = []
        if alone:
            idle = self._assignment.count_idle()
            left += self._send_all(alone.take(idle))
            if idle:
                self._replace_spare()
        if shared:
            places = self._assignment.places_to_share(self._stock())
            left += self._send_all(shared.take(places))
        for running in left:
            self._in_flight.end(running.token, _NO_PLACE)
        self._supervisor.retire_worn()

    def count_ahead(self) -> int:
        return count_ahead(*self._prefetches)

    def count_waiting(self) -> int:
        most = self._assignment.concurrency
        stocks = (len(runner.find_stock(most)) for runner in self._assignment.runners)
        return sum(map(len, self._prefetches)) + sum(stocks)

    def _stock(self) -> Stock:
        """Return how many may wait in a runner: none, unless attempts end quickly."""
        if not self._stock_max:
            return NO_STOCK
        places = self._prefetches.shared.expect(STOCK_SECONDS) // self._assignment.size
        return Stock(min(places, self._stock_max), self._clock.boot() - QUICK_SECONDS)

    def give_back(self, reason: str) -> None:
        for prefetch in self._prefetches:
            prefetch.give_back(reason)

    def give_back_late(self) -> None:
        """Start attempts that have a slot by now; give back others that have waited too long."""
        self.refill()
        for prefetch in self._prefetches:
            prefetch.give_back_late()
        # a runner whose loop is blocked begins none of those that wait in it
        since, running = self._clock.boot() - WAIT_SECONDS_MAX, self._in_flight.running
        for runner in self._assignment.runners:
            waiting = runner.find_stock(self._assignment.concurrency)
            held = (running[token] for token in waiting if token in running)
            runner.recall([each.token for each in held if each.started_at <= since])
