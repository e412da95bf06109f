"""Decides which runner takes which attempt.

Ordinary attempts use the pool's runners: plain functions have a runner to themselves, async tasks
share. A cohort of suspects takes the spare, the idle runner that is ready beyond the pool's size,
so that it waits for no other attempt: even the longest job cannot starve it. That runner takes no
other attempt until the cohort has ended, and at most one cohort runs at a time. One plain function
at a time takes the spare in the same way if async tasks fill all runners: a stream of async tasks
that end at different moments would never leave a runner idle.

If attempts end quickly, a full runner gets a *line* of further attempts: they begin as slots come
free, without a round trip to the worker. They can be recalled, and a runner's death does not affect
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import inf
from typing import NamedTuple

from outlast.model.job import ALONE_IN_RUNNER, ALONE_IN_WORKER
from outlast.store.protocol import CLAIMS_MAX
from outlast.store.values import ClaimRequest
from outlast.worker.runners.process import RunnerProcess
from outlast.worker.running import Running

Plan = dict[RunnerProcess, list[Running]]


class Line(NamedTuple):
    """The number of attempts that may wait in a full runner, if one has ended there after
    ``since``, on the boot clock."""

    places: int
    since: float


NO_LINE = Line(0, inf)


class Assignment:
    """The rules of one pool, for any list of its runners."""

    def __init__(self, *, size: int, concurrency: int, queues: list[str]) -> None:
        self._size = size
        self._concurrency = concurrency
        self._queues = queues
        self._cohort: RunnerProcess | None = None

    def active(self, runners: Sequence[RunnerProcess]) -> list[RunnerProcess]:
        """Return the runners that take ordinary work: busy ones stay, additional ones wait."""
        return self._fit(runners)[: self._size]

    def runner_of_suspects(self, runners: Sequence[RunnerProcess]) -> RunnerProcess | None:
        """Return the runner in which suspects run now."""
        runner = self._cohort
        return runner if runner is not None and runner in runners and runner.tokens else None

    def make_requests(
        self,
        runners: Sequence[RunnerProcess],
        unanswered: int,
        alone: int = 0,
        shared: int = 0,
        part: int = CLAIMS_MAX,
        *,
        spare: bool = False,
    ) -> list[ClaimRequest]:
        """Return requests for what fits: idle runners take any attempt, the others only shared
        ones. ``alone`` and ``shared`` more attempts of each kind may wait for a place, but at most
        ``part`` shared ones are requested. ``spare``: a plain function may take that runner if
        async tasks fill the others."""
        fit = self._fit(runners)
        active = fit[: self._size]
        own = _own(active)
        sharing = {name for runner in active for name in runner.tasks} - own
        idle, slots = self._free(active, own)
        alone += spare * (len(self._idle(fit)) - idle)
        to_share = min(slots + shared, unanswered + part)
        places = [(own | sharing, idle), (own, alone), (sharing, to_share)]
        ordinary = [
            ClaimRequest(sorted(tasks), min(limit - unanswered, CLAIMS_MAX), self._queues)
            for tasks, limit in (places if own else places[2:])
            if tasks and limit > unanswered
        ]
        if self.runner_of_suspects(runners) is None:
            spares = [runner for runner in fit[self._size :] if not runner.tokens]
            ordinary += self._make_suspects_request(spares)
        return ordinary

    def count_idle(self, runners: Sequence[RunnerProcess]) -> int:
        """Return the number of plain functions that may begin now."""
        return len(self._idle(self._fit(runners)))

    def _idle(self, fit: Sequence[RunnerProcess]) -> list[RunnerProcess]:
        """Return the runners in which plain functions may begin: the idle ones or the spare, if
        async tasks fill all the others."""
        active, spares = fit[: self._size], fit[self._size :]
        if _is_crowded(active):
            return [runner for runner in spares[:1] if not runner.tokens]
        return [runner for runner in active if not runner.tokens]

    def _free(self, active: Sequence[RunnerProcess], own: set[str]) -> tuple[int, int]:
        slots = (
            self._concurrency - len(runner.tokens)
            for runner in active
            if not runner.exclusive and (runner.tokens or not own)
        )
        return sum(not runner.tokens for runner in active), sum(slots)

    def places_to_share(self, runners: Sequence[RunnerProcess], line: Line = NO_LINE) -> int:
        """Return the number of attempts that could share a runner with others, idle runners
        included. A line is filled once half of it is empty, so that many attempts are sent
        together."""
        places = 0
        for runner in self.active(runners):
            if not runner.exclusive:
                free = self._concurrency - len(runner.tokens)
                room = free + line.places * (runner.ended_at >= line.since)
                places += room if free > 0 or 2 * room >= line.places else 0
        return max(0, places)

    def find_line(self, runner: RunnerProcess) -> list[int]:
        """Return the attempts that wait in a runner for one of its slots."""
        return runner.find_line(self._concurrency)

    def crowds_out(self, runners: Sequence[RunnerProcess]) -> bool:
        """Whether async tasks leave no runner to plain functions: no runner is idle or runs one."""
        active = self.active(runners)
        return bool(_own(active)) and _is_crowded(active)

    def is_overfull(self, runners: Sequence[RunnerProcess]) -> bool:
        """Whether a plain function runs beyond the pool's size."""
        return any(runner.tokens for runner in self._fit(runners)[self._size :])

    def has_own_runner(self, runners: Sequence[RunnerProcess], task: str) -> bool | None:
        """Whether attempts of this task have a runner to themselves; None if no runner knows it."""
        active = self.active(runners)
        if not any(task in runner.tasks for runner in active):
            return None
        return task in _own(active)

    def make_exclusive_request(self, runners: Sequence[RunnerProcess]) -> ClaimRequest | None:
        """Return the request for one job that needs the whole worker."""
        tasks = {name for runner in self.active(runners) for name in runner.tasks}
        return ClaimRequest(sorted(tasks), 1, self._queues, ALONE_IN_WORKER) if tasks else None

    def place(
        self,
        runners: Sequence[RunnerProcess],
        attempts: Sequence[Running],
        line: Line = NO_LINE,
    ) -> Plan:
        """Assign attempts to runners, which hold their tokens from now on; some may fit nowhere."""
        suspects = [each for each in attempts if each.claimed.solo == ALONE_IN_RUNNER]
        others = [each for each in attempts if each.claimed.solo != ALONE_IN_RUNNER]
        plan: Plan = {}
        fit = self._fit(runners)
        active, idle = fit[: self._size], self._idle(fit)
        own = _own(active)
        if own:
            alone = [each for each in others if each.claimed.task in own]
            others = [each for each in others if each.claimed.task not in own]
            for running in alone:
                self._put(plan, self._choose_idle(idle, running.claimed.task), running)
        rest = self._share_out(plan, active, others, self._concurrency, packed=bool(own))
        if rest and line.places:
            full = [each for each in active if len(each.tokens) >= self._concurrency]
            quick = [each for each in full if each.ended_at >= line.since]
            self._share_out(plan, quick, rest, self._concurrency + line.places, packed=False)
        if suspects:
            self._cohort = next(
                (each for each in self._fit(runners)[::-1] if not each.tokens), None
            )
        for running in suspects:
            self._put(plan, self._cohort, running)
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
        """Assign shared attempts to the runners that know them and have fewer than ``most``: to as
        few runners as possible, so that others stay idle for plain functions, or evenly to all.
        Return the attempts that fit nowhere."""
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
        """Assign attempts to runners that know all of them: the fullest runner first, or so that
        all become equally full. Return how many of the first attempts have a place."""
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
            if alone:
                runner.reserve()
            plan.setdefault(runner, []).append(running)

    def _make_suspects_request(self, spare: Sequence[RunnerProcess]) -> list[ClaimRequest]:
        if not spare or not spare[0].tasks:
            return []
        limit = min(self._concurrency, CLAIMS_MAX)
        return [ClaimRequest(sorted(spare[0].tasks), limit, self._queues, ALONE_IN_RUNNER)]

    def _fit(self, runners: Sequence[RunnerProcess]) -> list[RunnerProcess]:
        cohort = self.runner_of_suspects(runners)
        ready = [
            each
            for each in runners
            if each.ready
            and each is not cohort
            and not (each.kill_reason or each.retiring or each.gone)
        ]
        return sorted(ready, key=lambda runner: (not runner.tokens, runner.exclusive))

    @staticmethod
    def _choose_idle(active: Sequence[RunnerProcess], task: str) -> RunnerProcess | None:
        idle = (runner for runner in active if task in runner.tasks and not runner.tokens)
        return next(idle, None)


def _is_crowded(active: Sequence[RunnerProcess]) -> bool:
    """Whether async tasks fill all runners: none is idle, or runs a plain function."""
    return bool(active) and all(each.tokens and not each.exclusive for each in active)


def _own(active: Sequence[RunnerProcess]) -> set[str]:
    """Return the tasks that have a runner to themselves."""
    return {name for runner in active for name, alone in runner.tasks.items() if alone}
