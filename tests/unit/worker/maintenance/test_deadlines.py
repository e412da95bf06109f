"""Any worker ends attempts far above their timeout, and a clock step ends none."""

from __future__ import annotations

import pytest

from outlast.errors import StoreUnavailable
from outlast.model.job import JobFacts, Policy
from outlast.model.lease import (
    LOOK_SECONDS,
    PAUSE_BEATS,
    PAUSE_SECONDS,
    STEADY_GAP_SECONDS,
    STEP_SECONDS,
    Beating,
    Sign,
    SteadyClock,
    patience,
)
from outlast.model.lifecycle import Transition
from outlast.store.values import Orphan, OverdueAttempt, Snapshot, WorkerSeen
from outlast.worker.claims.prefetch import BEGIN_SECONDS
from outlast.worker.maintenance.reaper import SLACK_BEATS, SLACK_SECONDS, Deadlines, Reaper
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import FakeOwner, heard, lease_of

HOUR = 3600.0
HEARTBEAT, LEASE = 2.0, 60.0
NEVER = float("-inf")
SLACK = patience(LEASE) + BEGIN_SECONDS + SLACK_SECONDS  # above timeout and grace
BEATS_MORE = HEARTBEAT + LOOK_SECONDS  # until the last beat of the slack is seen


class Shop:
    """A store with a clock of its own and one running attempt, claimed at its own time."""

    def __init__(self) -> None:
        self.clock = ManualClock(boot=1_000.0)
        self.ahead = 1e9  # of the boot clock
        self.policy = Policy(timeout=10.0)
        self.heartbeat = HEARTBEAT
        self.paused = self.gone = False
        self.beat = 0
        self._beats_at = self.clock.boot()
        self.deadline: float | None = None
        self.broken = False
        self.incarnation = "a"
        self.closed: list[Transition] = []
        self.looked_closer = 0
        self.owner = FakeOwner()
        self.duty = Reaper(
            self.owner,
            self,  # type: ignore[arg-type]
            clock=self.clock,
            own=lease_of(),
            deadlines=Deadlines(self, self.clock),  # type: ignore[arg-type]
        )

    @property
    def now(self) -> float:
        return self.clock.boot() + self.ahead

    def claim(self, **policy) -> None:
        self.policy = Policy(**policy)
        self.deadline = self.now + (self.policy.timeout or 0.0)

    async def observe(self, slack: float) -> Snapshot:
        if self.broken:
            raise StoreUnavailable("gone")
        late = self.deadline is not None and self.now - self.deadline > slack
        workers = [] if self.gone else [self.worker()]
        return Snapshot(
            workers=workers,
            orphans=False,
            overdue=late,
            now=self.now,
            incarnation=self.incarnation,
        )

    def worker(self) -> WorkerSeen:
        """The worker of the attempt, which beats unless it is paused."""
        while not self.paused and self._beats_at <= self.clock.boot():
            self.beat, self._beats_at = self.beat + 1, self._beats_at + self.heartbeat
        return WorkerSeen(
            worker_id=3,
            name="w3",
            host="h3",
            boot_id="b3",
            beat=self.beat,
            heartbeat=self.heartbeat,
            lease=LEASE,
        )

    def resume(self) -> None:
        """Let the worker go on: it beats at once."""
        self.paused, self._beats_at = False, self.clock.boot()

    async def reap(self, gone: WorkerSeen, cause: object) -> bool:
        """Do nothing: the lease is not tested here."""
        return False

    async def overdue(self, slack: float) -> list[OverdueAttempt]:
        self.looked_closer += 1
        late = (
            []
            if self.deadline is None
            else [OverdueAttempt(1, 7, 3, self.now - self.deadline, self.policy)]
        )
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


async def test_an_attempt_far_above_its_timeout_is_closed_once(shop):
    await shop.after(100)
    shop.claim(timeout=10.0, cancel_grace=5.0)
    await shop.after(10 + SLACK_SECONDS)
    assert (shop.closed, shop.looked_closer) == ([], 0), "the look has shown that none is"
    await shop.after(5 + SLACK - SLACK_SECONDS - 1)
    assert shop.closed == []
    with heard() as names:
        await shop.after(4)
    (closed,) = shop.closed
    assert (closed.outcome, closed.token) == ("timeout", 7)
    assert "far above its limit of 10 s" in closed.message
    assert names == ["attempt_overdue"]
    assert shop.owner.looks_for_work == 1


async def test_a_new_observer_waits_for_the_whole_timeout(shop):
    shop.claim(timeout=100.0)
    shop.clock.advance(1000)
    await shop.after(100)
    assert shop.closed == []
    await shop.after(1 + SLACK + 4)
    assert len(shop.closed) == 1


async def test_a_resumed_worker_has_the_slack_to_hand_in_the_end(shop):
    await shop.after(100)
    shop.claim(timeout=3.0)
    shop.paused = True
    await shop.after(55)
    assert shop.closed == [], "it does not beat: the rules of the lease apply"
    shop.resume()
    await shop.after(SLACK_SECONDS)
    assert shop.closed == [], "it beats at once, before it hands in anything"
    shop.deadline = None
    await shop.after(100)
    assert shop.closed == []


async def test_a_worker_that_is_paused_again_and_again_has_the_whole_slack_each_time(shop):
    await shop.after(100)
    shop.claim(timeout=3.0)
    await shop.after(40)
    for _ in range(5):
        shop.paused = True
        await shop.after(HEARTBEAT * PAUSE_BEATS + PAUSE_SECONDS + HEARTBEAT)
        shop.resume()
        await shop.after(SLACK_SECONDS - HEARTBEAT)
    assert shop.closed == []
    await shop.after(HEARTBEAT + BEATS_MORE)
    assert len(shop.closed) == 1, "it beats, and has not ended it"


async def test_a_worker_that_beats_rarely_has_some_of_its_beats(shop):
    shop.heartbeat = 20.0
    await shop.after(100)
    shop.claim(timeout=3.0)
    above = SLACK - SLACK_SECONDS + SLACK_BEATS * shop.heartbeat
    await shop.after(3 + 1 + above - 1)
    assert shop.closed == []
    await shop.after(1 + shop.heartbeat)
    assert len(shop.closed) == 1


async def test_attempts_without_a_live_worker_are_left_to_the_reaper(shop):
    await shop.after(100)
    shop.claim(timeout=3.0)
    await shop.after(10)
    shop.gone = True
    await shop.after(100)
    assert shop.closed == []


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


async def test_a_slowly_drifting_clock_counts_as_stepped(shop):
    shop.claim(timeout=100.0)
    for _ in range(100):
        shop.ahead += 1.5  # less than a step, again and again
        await shop.after(LOOK_SECONDS)
    assert shop.closed == []


async def test_after_a_step_the_attempt_is_closed_all_the_same_only_later(shop):
    await shop.after(200)
    shop.claim(timeout=50.0)
    shop.ahead += HOUR
    await shop.after(50 + 1 + SLACK + 4)
    assert len(shop.closed) == 1


@pytest.mark.parametrize("how", ["outage", "another incarnation"])
async def test_an_outage_or_a_gap_restarts_the_observation(shop, how):
    """A failover is one, too: the clock of the new server is another."""
    await shop.after(200)
    shop.claim(timeout=50.0)
    shop.clock.advance(STEADY_GAP_SECONDS + 100)
    await shop.duty.run_once()
    assert shop.closed == []
    await shop.after(40 + SLACK)
    if how == "outage":
        shop.broken = True
        with pytest.raises(StoreUnavailable):
            await shop.duty.run_once()
        shop.broken = False
    else:
        shop.incarnation = "b"
    await shop.after(50)
    assert shop.closed == []
    await shop.after(1 + SLACK + BEATS_MORE)
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


def sign(beat: int) -> Sign:
    return Sign(worker_id=3, beat=beat, heartbeat=HEARTBEAT, lease=LEASE)


def test_beating_counts_from_the_first_beat_that_was_seen_to_the_last():
    beating = Beating()
    assert beating.last_beat(3, 0.0) == NEVER
    for now, beat in ((0.0, 5), (1.0, 5), (2.0, 6), (4.0, 7), (5.0, 7), (6.0, 8), (7.0, 8)):
        beating.look(now, [sign(beat)])
    assert beating.last_beat(3, after=4.0) == 6.0
    assert beating.last_beat(3, after=4.1) == NEVER
    beating.forget()
    assert beating.last_beat(3, 0.0) == NEVER


def test_a_pause_between_beats_or_looks_restarts_the_observation():
    beating = Beating()
    longest = HEARTBEAT * PAUSE_BEATS + PAUSE_SECONDS
    for now, beat in ((0.0, 5), (1.0, 6), (1.0 + longest, 7)):
        beating.look(now, [sign(beat)])
    assert beating.last_beat(3, longest) == 1.0 + longest
    beating.look(2.1 + 2 * longest, [sign(90)])
    assert beating.last_beat(3, 0.1) == NEVER


def test_a_worker_missing_from_a_look_is_forgotten():
    beating = Beating()
    for beat in (1, 2, 3):
        beating.look(float(beat), [sign(beat)])
    assert beating.last_beat(3, 1.0) == 3.0
    beating.look(4.0, [])
    assert beating.last_beat(3, 0.0) == NEVER
