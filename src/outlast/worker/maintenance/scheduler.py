"""Fires due schedules, and declares the schedules and limits of this worker's code.

Every worker fires all schedules that were put at run time, and the code's schedules that it
declares itself. It does not matter which is first: a firing is a compare-and-set
(``store.schedules``). Peeks and scans show when the next schedule is due; until then no statement
is sent.
"""

from __future__ import annotations

import asyncio
import math

import msgspec

from outlast.base.clock import Clock
from outlast.base.throttle import Throttle
from outlast.errors import ConfigError, describe
from outlast.events import emit
from outlast.model.job import TICKS_KEY
from outlast.model.schedule import Spec
from outlast.model.schedule_plan import CatchUp, Overlap, TickPlan, count_owed, plan
from outlast.store.batches import bisecting, split
from outlast.store.limits import CodeLimits
from outlast.store.protocol import Store
from outlast.store.schedules import (
    DECLARED_SECONDS,
    DUE_MAX,
    FIRST_PAGE,
    DueSchedule,
    DueSchedules,
    FireAnswer,
    Firing,
    NewSchedule,
    Origin,
    Put,
)
from outlast.store.values import NewJob, Peek, Snapshot
from outlast.worker.base import AttemptStarter, Owner
from outlast.worker.service import Nudge

DECLARE_SECONDS = DECLARED_SECONDS / 3  # between two declarations of the code's schedules
HELD_SECONDS = 1.0  # the same, if another transaction held one of them
SPREAD_SECONDS = 0.01  # within which workers wake for the same tick
WAIT_SECONDS = 1.0  # for a trusted lease
_BAD = (ConfigError, msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError)


class Scheduler:
    """The duty that fires schedules, and declares the schedules and limits of ``code``."""

    name = "scheduler"

    def __init__(
        self,
        owner: Owner,
        store: Store,
        code: AttemptStarter,
        clock: Clock,
    ) -> None:
        self._owner = owner
        self._store = store
        self._code = code
        self.nudge = Nudge()
        self._clock = clock
        self._due_at = math.inf  # on the boot clock
        self._has_looked = False
        self._declare_at = 0.0
        self._declared: list[NewSchedule] = []  # the last ones
        self._versions: dict[str, str] = {}  # of these, by name
        self._limits = CodeLimits()  # the last ones that were declared
        self._limits_at = 0.0  # when they are declared again, on the boot clock
        self._answers: dict[str, Put] = {}
        self._throttles: dict[tuple[str, str], Throttle] = {}  # by event and schedule
        self._cleaning = Throttle(clock)  # of those, once a minute

    def take_look(self, look: Snapshot | Peek) -> None:
        """Note when the next schedule is due, and wait no longer than that."""
        self._has_looked = True
        self._due_at = math.inf if look.next_tick is None else self._at(look.next_tick)
        if look.next_tick is not None:
            self.nudge.give()

    def is_settled(self) -> bool:
        """Whether all that the code declares is declared, and all that was due has been fired."""
        code = self._code.declared()
        declared = code.limits == self._limits and code.schedules == self._declared
        return self._has_looked and declared and self._clock.boot() < self._due_at

    async def run_once(self) -> float | None:
        """Fire due schedules, and declare the code's; return the seconds until the next run."""
        if not self._owner.registration.may_claim():
            return WAIT_SECONDS
        if self._clock.boot() >= self._due_at:
            self._due_at = math.inf  # unless this run finds a later one, the next scan sets it
            await self._fire_due()
        await self._declare_limits()
        await self._declare()
        return self._pause()

    def _at(self, seconds: float) -> float:
        spread = SPREAD_SECONDS * self._clock.random() if seconds > 0 else 0.0
        return self._clock.boot() + max(0.0, seconds) + spread

    def _pause(self) -> float | None:
        until = min(self._due_at, self._declare_at if self._versions else math.inf, self._limits_at)
        return None if until == math.inf else max(0.001, until - self._clock.boot())

    # -- declared schedules --------------------------------------------------------------------

    async def _declare_limits(self) -> None:
        """Declare limits and tasks. The newest declaration is in use, so those that hold jobs up
        are declared again, as another release may have declared others meanwhile."""
        code = self._code.declared().limits
        if code == self._limits and self._clock.boot() < self._limits_at:
            return
        pause = HELD_SECONDS
        if await self._store.declare_limits(code.limits, code.tasks):
            self._limits = code
            is_needed = code.limits or any(task.is_in_streams for task in code.tasks)
            pause = DECLARE_SECONDS if is_needed else math.inf
        self._limits_at = self._clock.boot() + pause

    async def _declare(self) -> None:
        declared = self._code.declared().schedules
        same = declared == self._declared
        if same and (not declared or self._clock.boot() < self._declare_at):
            return
        answers = await bisecting(
            lambda some: self._store.put_schedules(some, Origin.CODE),
            declared,
            lambda one, error: self._refuse(one.name, error),
        )
        for each, answer in zip(declared, answers, strict=True):
            if answer is not None:
                self._tell_declared(each.name, answer)
        if not same:
            self._declared = declared
            self._versions = {each.name: each.version for each in declared}
        pause = HELD_SECONDS if Put.HELD in answers else DECLARE_SECONDS
        self._declare_at = self._clock.boot() + pause

    def _tell_declared(self, name: str, answer: Put) -> None:
        before, self._answers[name] = self._answers.get(name), answer
        if answer in {Put.CREATED, Put.CHANGED}:
            self._due_at = self._clock.boot()  # a new schedule has to be planned
            emit("schedule_declared", schedule=name, what=answer.value)
        elif answer is not before and answer is not Put.SAME:
            emit("schedule_not_declared", schedule=name, reason=answer.value)

    # -- due schedules -------------------------------------------------------------------------

    async def _fire_due(self) -> None:
        """Fire all due schedules, page by page; schedules that fall due meanwhile wait."""
        page = await self._store.due_schedules(DUE_MAX, FIRST_PAGE)
        until = page.now
        await self._fire_page(page)
        while len(page.schedules) == DUE_MAX and page.schedules[-1].next_tick <= until:
            last = page.schedules[-1]
            page = await self._store.due_schedules(DUE_MAX, (last.next_tick, last.name))
            await self._fire_page(page)
        if page.next_tick is not None:
            self._expect(page.next_tick - page.now)

    def _expect(self, seconds: float) -> None:
        self._due_at = min(self._due_at, self._at(seconds))

    async def _fire_page(self, page: DueSchedules) -> None:
        firings: list[tuple[DueSchedule, Firing]] = []
        for each in filter(self._is_ours, page.schedules):
            await asyncio.sleep(0)  # after an outage a schedule may have hundreds of ticks to count
            try:
                firings.append((each, firing_of(each, page.now)))
            except _BAD as error:
                # perhaps of a later release: another worker may be able to read it
                self._refuse(each.name, error)
        for part in split(firings, _weigh):
            answers = await bisecting(
                lambda some: self._store.fire([firing for _, firing in some]),
                part,
                lambda one, error: self._refuse(one[0].name, error),
            )
            for (due, firing), answer in zip(part, answers, strict=True):
                if answer is not None and answer.won:
                    self._take_answer(due, firing, answer, page.now)
        stale = [each.name for each in page.schedules if self._is_stale(each, page.now)]
        if stale and (count := await self._store.note_undeclared(stale)):
            emit("schedules_asleep", count=count)

    def _is_ours(self, due: DueSchedule) -> bool:
        return due.declared_at is None or self._versions.get(due.name) == due.version

    def _is_stale(self, due: DueSchedule, now: float) -> bool:
        if due.declared_at is None or self._is_ours(due):
            return False
        return abs(now - due.declared_at) > DECLARED_SECONDS

    def _refuse(self, name: str, error: BaseException) -> None:
        if self._count("failed", name):
            emit("schedule_failed", schedule=name, error=describe(error))

    def _take_answer(
        self, due: DueSchedule, firing: Firing, answer: FireAnswer, now: float
    ) -> None:
        if firing.then is not None:
            self._expect(firing.then - now)
        if firing.missed:
            emit("schedule_missed", schedule=due.name, ticks=firing.missed, until=firing.since)
        for job, job_id in zip(firing.jobs, answer.jobs, strict=True):
            tick = job.policy.tick or 0.0
            if job_id is None:
                self._tell_skipped(due.name, tick, answer.in_the_way)
            else:
                late = round(now - tick, 3)
                emit("schedule_fired", schedule=due.name, tick=tick, job_id=job_id, late=late)
        if any(job_id is not None for job_id in answer.jobs):
            self._owner.look_for_work()

    def _count(self, event: str, name: str) -> int:
        if self._cleaning.count():
            kept = [(key, each) for key, each in self._throttles.items() if not each.is_like_new]
            self._throttles = dict(kept)
        return self._throttles.setdefault((event, name), Throttle(self._clock)).count()

    def _tell_skipped(self, name: str, tick: float, in_the_way: int | None) -> None:
        if ticks := self._count("skipped", name):
            emit("schedule_skipped", schedule=name, tick=tick, in_the_way=in_the_way, ticks=ticks)


def _weigh(fired: tuple[DueSchedule, Firing]) -> tuple[int, int]:
    jobs = fired[1].jobs
    return len(jobs), sum(len(job.args) for job in jobs)


def firing_of(due: DueSchedule, now: float) -> Firing:
    """Return the firing of a due schedule, by the store's clock. An unreadable text raises."""
    spec = _spec_of(due.spec)
    owed, left = count_owed(due.owed, _spec_of)
    if left:
        # count a part of the owed ticks, and leave the rest to the next run: it is due at once,
        # with a new next_tick, so that no other worker counts the part again
        return Firing(
            name=due.name,
            revision=due.revision,
            next_tick=due.next_tick,
            since=due.since,
            then=math.nextafter(due.next_tick, math.inf),
            missed=owed,
            owed=left,
        )
    call = msgspec.json.decode(due.call, type=NewJob)
    what: TickPlan = plan(spec, due.since, now, CatchUp(due.catch_up), due.grace)
    overlap = Overlap(due.overlap)
    return Firing(
        name=due.name,
        revision=due.revision,
        next_tick=due.next_tick,
        since=what.since,
        then=what.then,
        jobs=[_job_of(due.name, call, spec, tick, overlap) for tick in what.ticks],
        missed=owed + what.missed,
    )


def _spec_of(text: str) -> Spec:
    return msgspec.json.decode(text, type=Spec)


def _job_of(name: str, call: NewJob, spec: Spec, tick: float, overlap: Overlap) -> NewJob:
    return msgspec.structs.replace(
        call,
        policy=msgspec.structs.replace(call.policy, schedule=name, tick=tick),
        key=f"{TICKS_KEY}{name}" if overlap is Overlap.SKIP else call.key,
        run_at=spec.due(name, tick),
    )
