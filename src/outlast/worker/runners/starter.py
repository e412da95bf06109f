"""Starts attempts in runners: makes claim requests, lets attempts wait, sends them to runners."""

from __future__ import annotations

from outlast.base.clock import Clock
from outlast.errors import text_of
from outlast.model.crash import CrashKind
from outlast.model.job import ALONE_IN_RUNNER, ALONE_IN_WORKER
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.runner.protocol import FrameError, Run, in_batches
from outlast.store.values import ClaimRequest
from outlast.worker.base import Declared, Owner, Running
from outlast.worker.claims.in_flight import InFlight
from outlast.worker.claims.prefetch import BACK_SECONDS, WAIT_SECONDS_MAX, Ahead
from outlast.worker.runners.assignment import Assignment
from outlast.worker.runners.exits import make_crash
from outlast.worker.runners.process import RunnerProcess
from outlast.worker.runners.supervisor import RunnerSupervisor

_NO_PLACE = Outcome(
    kind=OutcomeKind.RELEASED,
    message="no runner that knows it was free",  # one of them died, or has older code
    delay=BACK_SECONDS,
    began=False,
)


class RunnerStarter:
    """The ``AttemptStarter`` of a pool of runners."""

    exclusive_from = ALONE_IN_WORKER

    def __init__(
        self,
        owner: Owner,
        in_flight: InFlight,
        supervisor: RunnerSupervisor,
        assignment: Assignment,
        ahead: Ahead,
        clock: Clock,
    ) -> None:
        self._owner = owner
        self._in_flight = in_flight
        self._supervisor = supervisor
        self._assignment = assignment
        self._ahead = ahead
        self._clock = clock

    def tasks(self) -> list[str]:
        return sorted({name for runner in self._assignment.active() for name in runner.tasks})

    def lacks(self) -> dict[str, list[str]]:
        active = self._assignment.active()
        return {name: runner.lacks[name] for runner in active for name in sorted(runner.lacks)}

    def declared(self) -> Declared:
        active = self._assignment.active()
        return active[-1].declared if active else Declared()

    # -- requests ------------------------------------------------------------------------------

    def make_requests(self, unanswered: int) -> list[ClaimRequest]:
        return self._assignment.make_requests(unanswered)

    def make_alone_requests(self) -> list[ClaimRequest]:
        tasks, queues = self.tasks(), self._assignment.queues
        kinds = [ALONE_IN_WORKER]
        if self._assignment.is_idle_without_spare():
            kinds.append(ALONE_IN_RUNNER)
        return [ClaimRequest(tasks, 1, queues, solo) for solo in kinds] if tasks else []

    # -- claimed attempts ----------------------------------------------------------------------

    def start(self, attempts: list[Running]) -> None:
        """Send attempts to runners; attempts that fit nowhere yet wait, or are released."""
        if left := self._send_all(attempts):
            self._keep_waiting(left)
        suspects = any(running.claimed.solo == ALONE_IN_RUNNER for running in attempts)
        self._replace_spare(is_taken=suspects)
        self._supervisor.retire_worn()

    def _replace_spare(self, *, is_taken: bool = False) -> None:
        if is_taken or self._assignment.is_overfull():
            self._owner.note_pool_change()

    def _send_all(self, attempts: list[Running]) -> list[Running]:
        if not attempts:
            return []
        plan = self._assignment.place(attempts)
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
            ahead = self._ahead.alone if alone else self._ahead.shared
            if alone is None or running.claimed.solo or not ahead.has_rate():
                self._in_flight.end(running.token, _NO_PLACE)
            else:
                ahead.line_up([running])

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
        if not self._ahead:
            return
        if self._supervisor.closing or not self._owner.registration.may_claim():
            self.give_back("the worker takes no more")
            return
        left: list[Running] = []
        if self._ahead.alone:
            idle = self._assignment.count_idle()
            left += self._send_all(self._ahead.alone.take(idle))
            if idle:
                self._replace_spare()
        if self._ahead.shared:
            places = self._assignment.places_to_share()
            left += self._send_all(self._ahead.shared.take(places))
        for running in left:
            self._in_flight.end(running.token, _NO_PLACE)
        self._supervisor.retire_worn()

    def count_ahead(self) -> int:
        return self._ahead.count_ahead()

    def count_waiting(self) -> int:
        most = self._assignment.concurrency
        stocks = (len(runner.find_stock(most)) for runner in self._assignment.runners)
        return len(self._ahead) + sum(stocks)

    def give_back(self, reason: str) -> None:
        self._ahead.give_back(reason)

    def give_back_late(self) -> None:
        """Start attempts that have a slot by now; give back others that have waited too long."""
        self.refill()
        self._ahead.give_back_late()
        # a runner whose loop is blocked begins none of the attempts that wait in it
        since, running = self._clock.boot() - WAIT_SECONDS_MAX, self._in_flight.running
        for runner in self._assignment.runners:
            waiting = runner.find_stock(self._assignment.concurrency)
            held = (running[token] for token in waiting if token in running)
            runner.recall([each.token for each in held if each.started_at <= since])
