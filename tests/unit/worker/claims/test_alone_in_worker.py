"""A worker empties itself for a job that needs all of it, and starves no other job for it."""

from __future__ import annotations

import pytest

from outlast.store.values import ClaimRequest
from outlast.worker.claims.exchange import (
    ASK_EVERY_SECONDS,
    CLEARING_EVERY_SECONDS,
    CLEARING_SECONDS,
)
from outlast.worker.claims.until_empty import UntilEmpty
from tests.unit.worker.claims.exchange_kit import POLL, Bench
from tests.unit.worker.worker_kit import COMPLETED, accepted, claimed

ALONE = ClaimRequest(["t"], 1, solo=2)


class Room(Bench):
    def __init__(self) -> None:
        super().__init__()
        self.pool.asks_alone = True

    async def trip(self, *given) -> list[ClaimRequest]:
        """Make a trip that is given these jobs; return its requests."""
        before = len(self.requests())
        self.plan.hint()
        self.store.script = [accepted(len(self.in_flight.ended), claimed=[*given])]
        await self.exchange.run_once()
        made = self.requests()[before:]
        return made[-1] if made else []

    def usual(self) -> ClaimRequest:
        return ClaimRequest(["t"], self.pool.slots - len(self.in_flight.running))


@pytest.fixture
def room() -> Room:
    return Room()


async def test_an_empty_worker_asks_for_the_job_first_and_takes_nothing_beside_it(room):
    assert await room.trip(claimed(1, solo=2)) == [ALONE, ClaimRequest(["t"], 10)]
    assert room.pool.placed == [1]
    room.clock.advance(POLL)
    assert await room.trip() == []
    room.in_flight.end(1, COMPLETED)
    assert await room.trip() == [room.usual()]
    assert await room.trip() == [ALONE, room.usual()]


async def test_a_busy_worker_asks_now_and_then(room):
    await room.trip(claimed(1))
    asked = []
    for token in range(2, 9):
        room.clock.advance(ASK_EVERY_SECONDS / 2)
        asked.append(ALONE in await room.trip(claimed(token)))
        room.in_flight.end(token - 1, COMPLETED)
    assert asked == [False, True, False, True, False, True, False]


async def test_a_busy_worker_gives_the_job_back_and_becomes_empty_for_it(room):
    await room.trip(claimed(1))
    room.clock.advance(ASK_EVERY_SECONDS - 1)
    await room.trip(claimed(2))
    room.in_flight.end(1, COMPLETED)
    room.clock.advance(1)
    assert ALONE in await room.trip(claimed(3, solo=2))
    assert room.pool.placed == [1, 2]
    assert [end.outcome for end in room.in_flight.ended] == ["released"]
    assert await room.trip() == [], "nothing but the end"
    room.in_flight.end(2, COMPLETED)
    assert await room.trip() == [], "nothing but its end"
    assert ALONE in await room.trip(claimed(4, solo=2))
    assert room.pool.placed == [1, 2, 4]


async def test_emptying_is_bounded_in_time_and_not_repeated_soon(room):
    await room.trip(claimed(1))
    room.clock.advance(ASK_EVERY_SECONDS)
    room.in_flight.running[1].started_at = room.clock.boot()
    await room.trip(claimed(2, solo=2))
    await room.trip()
    assert await room.trip() == []
    room.clock.advance(CLEARING_SECONDS)
    assert await room.trip() == [room.usual()]
    room.in_flight.running[1].started_at = CLEARING_EVERY_SECONDS + 5
    room.clock.advance(CLEARING_EVERY_SECONDS - CLEARING_SECONDS - 1)
    assert ALONE not in await room.trip()
    room.clock.advance(1)
    assert ALONE in await room.trip()


async def test_a_worker_with_long_jobs_does_not_empty_itself_in_vain(room):
    await room.trip(claimed(1))
    room.clock.advance(max(ASK_EVERY_SECONDS, CLEARING_SECONDS))
    assert await room.trip() == [room.usual()]


async def becomes_empty(room: Room) -> None:
    """Let job 2 run while the worker becomes empty for job 3."""
    await room.trip(claimed(1))
    room.clock.advance(ASK_EVERY_SECONDS - 1)
    await room.trip(claimed(2))
    room.in_flight.end(1, COMPLETED)
    room.clock.advance(1)
    await room.trip(claimed(3, solo=2))


async def test_a_worker_that_becomes_empty_follows_no_wake_up_and_hears_of_cancels(room):
    """Its peers follow the wake-up: it says nothing of it."""
    await becomes_empty(room)
    turns = room.plan.turns
    turns.note_peers(2, 0)
    turns.hear("jobs:8:1:default")
    room.store.script = [accepted(1, cancels=[(2, 2)])]
    await room.exchange.run_once()
    assert room.pool.stopped == [(2, "cancel")]
    assert await room.trip() == []
    assert set(turns._waiting) == {8}
    room.in_flight.end(2, COMPLETED)
    assert await room.trip() == []
    (first, *_) = await room.trip()
    assert first.followed is not None, "the first look after it"


async def test_a_worker_that_has_become_empty_asks_for_nothing_if_it_may_no_longer_claim(room):
    """It drains, or its lease was lost meanwhile."""
    await becomes_empty(room)
    room.holder.claims = False
    room.in_flight.end(2, COMPLETED)
    assert await room.trip() == [], "nothing but its end"
    assert await room.trip() == []


async def test_a_worker_that_leaves_once_it_is_empty_stays_until_it_has_looked_for_the_job(room):
    stops: list[int] = []
    room.exchange.stop_when_empty(UntilEmpty(lambda: stops.append(1), clock=room.clock))
    await becomes_empty(room)
    assert await room.trip() == []
    room.in_flight.end(2, COMPLETED)
    assert await room.trip() == [], "nothing but its end"
    assert stops == []
    assert ALONE in await room.trip(claimed(4, solo=2))
    room.in_flight.end(4, COMPLETED)
    await room.trip()
    assert stops == []
    assert ALONE in await room.trip()
    assert stops == [1]
