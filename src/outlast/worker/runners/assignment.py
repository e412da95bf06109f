"""Decides which runner takes which attempt.

Ordinary attempts use the pool's runners: a plain function has a runner to itself, async tasks share
one. A suspect takes the spare, an idle runner beyond the pool's size, so that even the longest job
cannot starve it; in a pool without work and without a spare, it takes any runner. While one suspect
runs, others take the next idle runners, but at least one runner is left to other jobs. A suspect's
runner takes no other attempt until the suspect has ended. One plain function at a time takes the
spare in the same way if async tasks, which end at different moments, leave no runner idle.

Items of a batch collect in a runner of their own: the first is placed like a plain function, then
more are requested until the call is full or starts. A suspect is a call of its own.

If attempts end quickly, a full runner gets a *stock* of attempts that were claimed ahead
(``worker/claims/prefetch.py``): they begin as slots become free, without a round trip to the
worker. They can be recalled, and a runner's death does not affect them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from outlast.base.clock import Clock
from outlast.model.job import ALONE_IN_RUNNER
from outlast.store.protocol import CLAIMS_MAX
from outlast.store.values import ClaimRequest
from outlast.worker.base import Running
from outlast.worker.claims.prefetch import Ahead
from outlast.worker.runners.process import RunnerProcess

STOCK_MAX = 100  # attempts that wait in a runner for one of its slots
STOCK_SECONDS = 0.01  # within which a stock should have begun, at the current rate
QUICK_SECONDS = 0.02  # a runner in which no attempt has ended for this long gets no stock
CROWDED_EVERY_SECONDS = 0.5  # between two plain functions while async tasks fill all runners

Plan = dict[RunnerProcess, list[Running]]


class Assignment:
    """The rules of one pool, of ``size`` runners that take up to ``concurrency`` attempts each.
    ``ahead``: the attempts that wait for a place. ``stocks``: whether runners may have a stock.
    ``runners``: all runners of the pool, always the same list."""

    def __init__(
        self,
        ahead: Ahead,
        *,
        size: int,
        concurrency: int,
        queues: list[str],
        stocks: bool,
        clock: Clock,
    ) -> None:
        self.size = size
        self.concurrency = concurrency
        self.queues = queues
        self.runners: list[RunnerProcess] = []
        self._ahead = ahead
        self._has_stocks = stocks and concurrency < STOCK_MAX
        self._clock = clock
        self._next_crowded_at = clock.boot() + CROWDED_EVERY_SECONDS

    def active(self) -> list[RunnerProcess]:
        """Return the runners that take ordinary work: busy runners come first, and the runners
        beyond the pool's size are left out."""
        return self._fit()[: self.size]

    def count_suspects(self) -> int:
        """Return the number of suspects that run now, each in a runner of its own."""
        return sum(runner.has_suspect for runner in self.runners)

    # -- requests ------------------------------------------------------------------------------

    def make_requests(self, unanswered: int) -> list[ClaimRequest]:
        """Return requests for as many attempts as fit, or may wait for a place: idle runners take
        any attempt, other runners take attempts that share, and a ready spare takes suspects."""
        alone = self._ahead.alone.room()
        part = self._ahead.shared.part(self.size * self.concurrency)
        fit = self._fit()
        free = self._free_for_suspects(fit)
        if self.count_suspects():
            fit = [runner for runner in fit if runner not in free]
        active = fit[: self.size]
        own = _own(active)
        sharing = {name for runner in active for name in runner.tasks} - own
        idle = sum(not runner.tokens for runner in active)
        slots = sum(
            self.concurrency - len(runner.tokens)
            for runner in active
            if not runner.exclusive and (runner.tokens or not own)
        )
        if self._asks_for_crowded_out():
            alone += len(self._idle(fit)) - idle
        to_share = min(slots + self._ahead.shared.room(), unanswered + part)
        places = [(own | sharing, idle), (own, alone), (sharing, to_share)]
        requests = [
            ClaimRequest(sorted(tasks), min(limit - unanswered, CLAIMS_MAX), self.queues)
            for tasks, limit in (places if own else places[2:])
            if tasks and limit > unanswered
        ]
        requests += [
            ClaimRequest([runner.batch], min(more, CLAIMS_MAX), self.queues)
            for runner in fit
            if runner.batch is not None and (more := runner.places_to_gather(runner.batch))
        ]
        if free and free[0].tasks:
            tasks = sorted(free[0].tasks)
            requests.append(ClaimRequest(tasks, len(free), self.queues, ALONE_IN_RUNNER))
        return requests

    def _asks_for_crowded_out(self) -> bool:
        """Whether to request a plain function for the spare, if async tasks leave it no other
        runner: only now and then, since the request costs a search."""
        now, active = self._clock.boot(), self.active()
        if now < self._next_crowded_at or not (_own(active) and _is_crowded(active)):
            return False
        self._next_crowded_at = now + CROWDED_EVERY_SECONDS
        return True

    def _free_for_suspects(self, fit: Sequence[RunnerProcess]) -> Sequence[RunnerProcess]:
        """Return the idle runners for suspects: a spare; while suspects run, all but one."""
        if running := self.count_suspects():
            first, most = 1, max(0, self.size - running)
        else:
            first, most = self.size, 1
        return [runner for runner in fit[first:] if not runner.tokens][:most]

    def is_idle_without_spare(self) -> bool:
        """Whether no runner has work, and none is a spare. Suspects may then take any runner: a
        worker that exits once it is idle would leave them behind if they waited for a spare."""
        return len(self._fit()) <= self.size and not any(each.tokens for each in self.runners)

    def count_idle(self) -> int:
        """Return the number of plain functions that may begin now."""
        return len(self._idle(self._fit()))

    def places_to_share(self) -> int:
        """Return the number of attempts that could share a runner, idle runners included. A stock
        is filled once half of it is empty, so that many attempts are sent together."""
        places, stock = 0, self._stock()
        for runner in self.active():
            if not runner.exclusive:
                free = self.concurrency - len(runner.tokens)
                room = free + stock * self._is_quick(runner)
                places += room if free > 0 or 2 * room >= stock else 0
        return max(0, places)

    def _stock(self) -> int:
        """Return how many attempts may wait in a full runner: none, unless attempts end quickly."""
        if not self._has_stocks:
            return 0
        return min(self._ahead.shared.expect(STOCK_SECONDS) // self.size, STOCK_MAX)

    def _is_quick(self, runner: RunnerProcess) -> bool:
        """Whether an attempt has ended in this runner just now; else its loop may be blocked."""
        return runner.ended_at >= self._clock.boot() - QUICK_SECONDS

    def is_overfull(self) -> bool:
        """Whether a plain function runs beyond the pool's size."""
        return any(runner.tokens for runner in self._fit()[self.size :])

    def has_own_runner(self, task: str) -> bool | None:
        """Whether attempts of this task have a runner to themselves; None if no runner knows it."""
        active = self.active()
        if not any(task in runner.tasks for runner in active):
            return None
        return task in _own(active)

    # -- claimed attempts ----------------------------------------------------------------------

    def place(self, attempts: Sequence[Running]) -> Plan:
        """Assign attempts to runners, which hold their tokens from now on. Attempts that fit
        nowhere are left out."""
        suspects = [each for each in attempts if each.claimed.solo == ALONE_IN_RUNNER]
        others = [each for each in attempts if each.claimed.solo != ALONE_IN_RUNNER]
        plan: Plan = {}
        for running in suspects:
            last = next((each for each in self._fit()[::-1] if not each.tokens), None)
            self._put(plan, last, running)
        fit = self._fit()
        active, idle = fit[: self.size], self._idle(fit)
        if own := _own(active):
            alone = [each for each in others if each.claimed.task in own]
            others = [each for each in others if each.claimed.task not in own]
            gather = [each for each in fit if each.batches]  # mostly none
            # idle runners were requested for other jobs than items that are too late for their call
            closed = {each.batch for each in gather if not each.places_to_gather(each.batch or "")}
            alone.sort(key=lambda each: each.claimed.task in closed)
            for running in alone:
                task = running.claimed.task
                open_ = next((each for each in gather if each.places_to_gather(task)), None)
                free = (each for each in idle if task in each.tasks and not each.tokens)
                self._put(plan, open_ or next(free, None), running)
        rest = self._share_out(plan, active, others, self.concurrency, packed=bool(own))
        if rest and (stock := self._stock()):
            full = [each for each in active if len(each.tokens) >= self.concurrency]
            quick = [each for each in full if self._is_quick(each)]
            self._share_out(plan, quick, rest, self.concurrency + stock, packed=False)
        return plan

    def _share_out(
        self,
        plan: Plan,
        active: Sequence[RunnerProcess],
        attempts: Sequence[Running],
        most: int,
        *,
        packed: bool,
    ) -> Sequence[Running]:
        """Assign attempts that share runners to runners that have fewer than ``most``: ``packed``
        into as few as possible, so that others stay idle for plain functions, or evenly. Return the
        attempts that fit nowhere."""
        open_ = [runner for runner in active if not runner.exclusive and len(runner.tokens) < most]
        if not open_ or not attempts:
            return attempts
        names = {running.claimed.task for running in attempts}
        if all(names <= runner.tasks.keys() for runner in open_):
            return attempts[self._fill(plan, open_, attempts, most, packed=packed) :]
        rest: list[Running] = []
        for name, group in groupby(attempts, key=lambda each: each.claimed.task):
            known = [runner for runner in open_ if name in runner.tasks]  # releases may differ
            its = list(group)
            rest += its[self._fill(plan, known, its, most, packed=packed) :]
        return rest

    def _fill(
        self,
        plan: Plan,
        runners: Sequence[RunnerProcess],
        attempts: Sequence[Running],
        most: int,
        *,
        packed: bool,
    ) -> int:
        """Assign attempts to runners that know all their tasks: ``packed`` into the fullest first,
        or so that all become equally full. Return how many attempts have a place."""
        places = [most - len(runner.tokens) for runner in runners]
        order = sorted(range(len(runners)), key=places.__getitem__)  # the fullest first
        free = sum(places)
        placed = left = min(len(attempts), free)
        shares = dict.fromkeys(order, 0)
        for number, at in enumerate(order):
            if packed:
                shares[at] = min(places[at], left)
            else:  # leave each later runner as many free places
                rest = -(-(free - left) // (len(order) - number))
                shares[at] = max(0, places[at] - rest)
            free, left = free - places[at], left - shares[at]
        for at in order if packed else order[::-1]:
            its = attempts[left : left + shares[at]]
            left += len(its)
            if its:
                runners[at].take([running.token for running in its])
                plan.setdefault(runners[at], []).extend(its)
        return placed

    @staticmethod
    def _put(plan: Plan, runner: RunnerProcess | None, running: Running) -> None:
        if runner is not None and (alone := runner.tasks.get(running.claimed.task)) is not None:
            runner.take([running.claimed.token])
            if running.claimed.task in runner.batches:
                runner.gather(running.claimed.token, running.claimed.task)
            runner.exclusive = runner.exclusive or alone
            runner.has_suspect = running.claimed.solo == ALONE_IN_RUNNER
            plan.setdefault(runner, []).append(running)

    # -- runners -------------------------------------------------------------------------------

    def _fit(self) -> list[RunnerProcess]:
        """Return the runners that may take attempts, busy runners first; not suspects' runners."""
        ready = [
            each
            for each in self.runners
            if each.takes_attempts and not each.gone and not each.has_suspect
        ]
        return sorted(ready, key=lambda runner: (not runner.tokens, runner.exclusive))

    def _idle(self, fit: Sequence[RunnerProcess]) -> list[RunnerProcess]:
        """Return the runners in which plain functions may begin: idle ones or, if async tasks fill
        all the others, the spare."""
        active, spares = fit[: self.size], fit[self.size :]
        candidates = spares[:1] if _is_crowded(active) else active
        return [runner for runner in candidates if not runner.tokens]


def _is_crowded(active: Sequence[RunnerProcess]) -> bool:
    """Whether async tasks fill all runners: none is idle, or runs a plain function."""
    return bool(active) and all(each.tokens and not each.exclusive for each in active)


def _own(active: Sequence[RunnerProcess]) -> set[str]:
    return {name for runner in active for name, alone in runner.tasks.items() if alone}
