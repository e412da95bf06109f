"""Which polls an idle worker among many leaves out, and which it never does."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.store.glances import Glance
from outlast.store.values import ClaimRequest
from outlast.worker.claims.peers import EASED_PEERS
from outlast.worker.claims.polls import POLL_FACTOR_WITH_GLANCES, QUIET_SECONDS_MAX
from outlast.worker.claims.wake_turns import SEEN_SECONDS
from tests.unit.worker.claims.exchange_kit import POLL, Bench
from tests.unit.worker.worker_kit import accepted, claimed

BEAT = 2.0
PEERS = 100
EACH = POLL * POLL_FACTOR_WITH_GLANCES


class Idle:
    """An idle worker among many, whose beats bring glances at a store in which transactions begin
    and end; ``stuck``: the oldest that is open, None: none stays open."""

    def __init__(self) -> None:
        self.bench = Bench(is_eased=lambda: self.eased)
        self.bench.turns.note_peers(PEERS)
        self.eased = True
        self.drawn = 7
        self.begun = 1_000  # transactions, so far
        self.stuck: int | None = None
        self.glances = True
        self._beat_at = self._run_at = 0.0

    async def trips(self, seconds: float) -> int:
        """Let time pass; return how many trips were made."""
        clock, end, before = self.bench.clock, self.bench.clock.boot() + seconds, len(self.made())
        while (at := min(self._beat_at, self._run_at)) < end:
            clock.advance(max(0.0, at - clock.boot()))
            if at == self._beat_at:
                self._beat_at = at + BEAT
                self._beat()
            else:
                pause = await self.bench.exchange.run_once()
                assert pause is not None
                self._run_at = at + pause
        clock.advance(end - clock.boot())
        return len(self.made()) - before

    def _beat(self) -> None:
        self.begun += 10
        oldest = self.begun if self.stuck is None else self.stuck
        glance = Glance(drawn=self.drawn, oldest=oldest, newest=self.begun + 1)
        if self.glances and self.bench.exchange.take_glance(glance):
            self._run_at = self.bench.clock.boot()

    def made(self) -> list[Any]:
        return self.bench.requests()


@pytest.fixture
async def idle() -> Idle:
    idle = Idle()
    await idle.trips(20.0)  # until nothing can be found that was drawn before
    return idle


async def test_an_idle_worker_among_many_makes_few_trips(idle):
    assert await idle.trips(600.0) <= 2 * 600 / QUIET_SECONDS_MAX
    assert await idle.trips(QUIET_SECONDS_MAX) >= 1


@pytest.mark.parametrize("peers", [EASED_PEERS, 2 * EASED_PEERS])
async def test_all_of_a_kind_together_poll_no_more_rarely_than_the_least_that_are_many(idle, peers):
    idle.bench.turns.note_peers(peers)
    await idle.trips(QUIET_SECONDS_MAX)
    assert await idle.trips(500.0) * peers >= EASED_PEERS * 500 / EACH


async def test_a_position_that_is_new_is_looked_for_within_a_poll_also_where_that_was_done(idle):
    """A peer may have said so by mistake, or a stranger."""
    idle.bench.turns.hear_of_look = lambda before, drawn: False
    for _ in range(20):
        idle.drawn += 1
        await idle.trips(BEAT)
        assert await idle.trips(EACH) >= 1


def say(idle, followed: int, drawn: int) -> None:
    """Let one of its kind, maybe itself, say that it has followed a wake-up."""
    idle.bench.turns.hear(f"taken::{idle.bench.turns._name_kind()}:{followed}:{drawn}")


async def test_what_another_of_its_kind_looks_for_is_left_to_it(idle):
    began = idle.bench.clock.boot()
    made = 0
    for _ in range(40):
        idle.drawn += 1
        say(idle, idle.drawn, idle.drawn)
        made += await idle.trips(BEAT + EACH)
    assert made <= 2 * (idle.bench.clock.boot() - began) / QUIET_SECONDS_MAX


async def test_what_another_will_say_a_moment_later_is_left_to_it_too(idle):
    idle.bench.turns._step = 1.0  # so its own turn has not come yet
    for _ in range(3):
        idle.drawn += 1
        await idle.trips(BEAT / 2)
        say(idle, idle.drawn, idle.drawn)
        assert await idle.trips(2 * EACH) <= 1


@pytest.mark.parametrize(
    ("followed", "others"),
    [(8, 8), (8, 7), (9, 8)],
    ids=["the same", "a lower one", "another one that looked later"],
)
async def test_the_one_that_followed_the_highest_position_leaves_it_to_no_other(
    idle, followed, others
):
    """Each has seen both, and each hears of the other."""
    idle.bench.turns.hear(f"jobs:{followed}:1:default")
    assert idle.bench.turns.follow([ClaimRequest(["t"], 1)]) is not None
    idle.drawn = 9
    say(idle, followed, 9)
    say(idle, others, 9)
    await idle.trips(BEAT)
    assert await idle.trips(EACH) >= 1


async def test_who_follows_a_wake_up_after_another_leaves_it_to_that_one_no_longer(idle):
    """That one hears of it, and leaves it to this one."""
    idle.drawn = 9
    say(idle, 8, 9)
    idle.bench.turns.hear("jobs:9:1:default")
    assert idle.bench.turns.follow([ClaimRequest(["t"], 1)]) is not None
    await idle.trips(BEAT)
    assert await idle.trips(EACH) >= 1


async def test_what_was_drawn_since_another_looked_is_left_to_no_other(idle):
    say(idle, 8, 8)
    idle.drawn = 9
    await idle.trips(BEAT)
    assert await idle.trips(EACH) >= 1


async def test_a_database_that_was_set_back_is_looked_at_by_each(idle):
    """What was said of the positions of the other one says nothing about this one."""
    idle.drawn = 1_000
    say(idle, 1_000, 1_000)
    await idle.trips(BEAT + SEEN_SECONDS)
    idle.drawn = 900
    await idle.trips(BEAT)
    assert await idle.trips(EACH) >= 1


async def test_what_a_transaction_has_drawn_that_is_still_open_is_looked_for_at_each_poll(idle):
    idle.drawn, idle.stuck = 8, idle.begun
    await idle.trips(BEAT)
    assert await idle.trips(60.0) == 60 / EACH
    idle.stuck = None
    await idle.trips(BEAT)
    assert await idle.trips(EACH) == 1, "it has ended: what it has drawn is there now"
    assert await idle.trips(600.0) <= 2 * 600 / QUIET_SECONDS_MAX


async def test_a_transaction_that_gets_its_number_after_it_has_drawn_is_waited_for(idle):
    idle.drawn = 8
    await idle.trips(BEAT)  # this glance shows the position, and not yet the transaction
    idle.stuck = idle.begun + 1
    assert await idle.trips(60.0) >= 60 / EACH


async def test_a_beat_that_follows_a_glance_at_once_does_not_bound_the_numbers(idle):
    """A watcher glances by itself, and its beats come in between."""
    idle.drawn = 8
    for _ in range(2):
        idle.bench.exchange.take_glance(Glance(drawn=8, oldest=idle.begun, newest=idle.begun))
    idle.stuck = idle.begun + 1
    assert await idle.trips(60.0) >= 60 / EACH


async def test_a_glance_without_a_number_is_no_bound(idle):
    idle.drawn, idle.stuck = 8, idle.begun
    for _ in range(3):
        await idle.trips(BEAT / 2)
        idle.bench.exchange.take_glance(Glance(drawn=8, oldest=idle.stuck, newest=None))
    assert await idle.trips(60.0) >= 60 / EACH
    idle.stuck = None
    await idle.trips(4 * BEAT)
    assert await idle.trips(600.0) <= 2 * 600 / QUIET_SECONDS_MAX


@pytest.mark.parametrize("change", ["eased", "glances"])
async def test_each_poll_is_made_where_news_may_not_arrive(idle, change):
    setattr(idle, change, False)
    await idle.trips(EACH)
    assert await idle.trips(60.0) == 60 / EACH


async def test_a_worker_that_runs_something_or_was_hinted_makes_its_trips(idle):
    idle.bench.exchange.hint()
    assert await idle.trips(EACH) == 1
    idle.bench.ledger.claim([claimed(3)])
    assert await idle.trips(60.0) >= 60 / EACH


async def test_each_poll_is_made_where_a_look_is_taken_in_parts(idle):
    """A job may come to stand in a part that was looked at before."""
    await idle.trips(QUIET_SECONDS_MAX)
    idle.bench.store.script = [accepted(0, in_parts=True)] * 13
    idle.bench.exchange.hint()
    await idle.trips(EACH)
    assert await idle.trips(60.0) == 60 / EACH


async def test_a_scheduled_job_is_asked_for_when_it_is_due(idle):
    await idle.trips(QUIET_SECONDS_MAX)
    idle.bench.store.script = [accepted(0, next_due=11.0)] * 2
    idle.bench.exchange.hint()
    await idle.trips(EACH)
    assert await idle.trips(11.0) == 1


async def test_reconciliations_are_as_frequent_as_ever(idle):
    before = len([1 for verb, _ in idle.bench.store.calls if verb == "reconcile"])
    await idle.trips(600.0)
    made = len([1 for verb, _ in idle.bench.store.calls if verb == "reconcile"]) - before
    assert made >= 600 / (30.0 + EACH) - 1


async def test_a_look_that_leaves_something_out_is_followed_by_another(idle):
    await idle.trips(QUIET_SECONDS_MAX)
    idle.bench.store.script = [accepted(0, next_look=0.2), accepted(0)]
    idle.bench.exchange.hint()
    assert await idle.trips(EACH + 1.0) == 2
