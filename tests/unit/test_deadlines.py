"""Whoever looks ends what is far above its timeout, and no step of a clock ends anything."""

from __future__ import annotations

import pytest

from outlast.errors import StoreUnavailable
from outlast.model.job import JobFacts, Policy
from outlast.model.lease import STEADY_GAP_SECONDS, STEP_SECONDS, SteadyClock
from outlast.model.lifecycle import Transition
from outlast.store.values import Late, Look, Orphan
from outlast.testing import ManualClock
from outlast.worker.deadlines import SLACK_SECONDS, Deadlines
from outlast.worker.reaper import LOOK_SECONDS, Reaper
from tests.unit.worker_kit import heard

HOUR = 3600.0


class Shop:
    """A store with a clock of its own and one running attempt, claimed at its own time."""

    def __init__(self) -> None:
        self.clock = ManualClock(boot=1_000.0)
        self.ahead = 1e9  # of the boot clock
        self.policy = Policy(timeout=10.0)
        self.deadline: float | None = None
        self.broken = False
        self.closed: list[Transition] = []
        self.told = 0
        self.looked_closer = 0
        deadlines = Deadlines(self, self._on_reclaimed, clock=self.clock)  # type: ignore[arg-type]
        self.duty = Reaper(
            self,  # type: ignore[arg-type]
            lambda: 1,
            lambda applied: None,
            clock=self.clock,
            deadlines=deadlines,
        )

    def _on_reclaimed(self) -> None:
        self.told += 1

    @property
    def now(self) -> float:
        return self.clock.boot() + self.ahead

    def claim(self, **policy) -> None:
        self.policy = Policy(**policy)
        self.deadline = self.now + (self.policy.timeout or 0.0)

    async def observe(self, slack: float) -> Look:
        if self.broken:
            raise StoreUnavailable("gone")
        late = self.deadline is not None and self.now - self.deadline > slack
        return Look(workers=[], orphans=False, overdue=late, now=self.now)

    async def overdue(self, slack: float) -> list[Late]:
        self.looked_closer += 1
        late = [] if self.deadline is None else [Late(1, 7, self.now - self.deadline, self.policy)]
        return [one for one in late if one.seconds > slack]

    async def reclaim(self, decide, *, only=None) -> list[Transition]:
        if only is None:
            return []
        assert only == [(1, 7)]
        facts = JobFacts(job_id=1, token=7, policy=self.policy)
        self.deadline = None
        self.closed.append(decide(Orphan(facts=facts, worker_id=3, worker="w3", host="h3")))
        return self.closed[-1:]

    async def after(self, seconds: float, step: float = LOOK_SECONDS) -> None:
        while seconds > 0:
            self.clock.advance(min(step, seconds))
            seconds -= step
            assert await self.duty.run_once() == LOOK_SECONDS


@pytest.fixture
def shop():
    return Shop()


async def test_what_is_far_above_its_timeout_is_closed_once(shop):
    await shop.after(100)
    shop.claim(timeout=10.0, cancel_grace=5.0)
    await shop.after(10 + SLACK_SECONDS)
    assert (shop.closed, shop.looked_closer) == ([], 0), "the look has told that nobody is"
    await shop.after(5 - 1)
    assert shop.closed == []
    with heard() as names:
        await shop.after(4)
    (closed,) = shop.closed
    assert (closed.outcome, closed.token) == ("timeout", 7)
    assert "far above its limit of 10 s" in closed.message
    assert names == ["attempt_overdue"]
    assert shop.told == 1


async def test_who_has_just_begun_to_look_waits_for_as_long_as_the_attempt_may_run(shop):
    shop.claim(timeout=100.0)
    shop.clock.advance(1000)
    await shop.after(100)
    assert shop.closed == []
    await shop.after(1 + SLACK_SECONDS + 4)
    assert len(shop.closed) == 1


@pytest.mark.parametrize("step", [HOUR, -HOUR, STEP_SECONDS, 10.0, -10.0])
async def test_a_step_of_the_clock_ends_no_healthy_attempt(shop, step):
    await shop.after(200)
    shop.claim(timeout=100.0)
    await shop.after(40)
    shop.ahead += step
    await shop.after(60)  # and here it ends, at its timeout
    assert shop.closed == []


async def test_a_claim_while_the_clock_was_wrong_is_not_late_when_it_is_right_again(shop):
    await shop.after(200)
    shop.ahead -= HOUR
    await shop.after(10)
    shop.claim(timeout=100.0)  # an hour too early
    await shop.after(10)
    shop.ahead += HOUR
    await shop.after(90)
    assert shop.closed == []


async def test_a_clock_that_creeps_is_not_in_step(shop):
    shop.claim(timeout=100.0)
    for _ in range(100):
        shop.ahead += 1.5  # less than a step, again and again
        await shop.after(LOOK_SECONDS)
    assert shop.closed == []


async def test_after_a_step_the_attempt_is_closed_all_the_same_only_later(shop):
    await shop.after(200)
    shop.claim(timeout=50.0)
    shop.ahead += HOUR
    await shop.after(50 + 1 + SLACK_SECONDS + 4)
    assert len(shop.closed) == 1


async def test_an_outage_and_a_gap_between_looks_start_anew(shop):
    await shop.after(200)
    shop.claim(timeout=50.0)
    shop.clock.advance(STEADY_GAP_SECONDS + 100)
    await shop.duty.run_once()
    assert shop.closed == []
    await shop.after(40)
    shop.broken = True
    with pytest.raises(StoreUnavailable):
        await shop.duty.run_once()
    shop.broken = False
    await shop.after(50)
    assert shop.closed == []
    await shop.after(20)
    assert len(shop.closed) == 1


def test_the_slack_is_more_than_a_clock_in_step_may_be_wrong():
    assert SLACK_SECONDS > 2 * STEP_SECONDS


def test_a_steady_clock_covers_the_time_since_it_was_first_seen():
    steady = SteadyClock()
    assert not steady.covers(0.0)
    steady.look(5.0, 100.0)
    assert steady.covers(0.0)
    steady.look(15.0, 110.5)
    assert steady.covers(10.0)
    assert not steady.covers(10.1)
