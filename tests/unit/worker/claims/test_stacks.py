"""Where attempts are: each request is answered once, bounded and redacted, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outlast.errors import StoreUnavailable
from outlast.model.crash import TEXT_MAX
from outlast.store.stacks import Stack, StackRequest
from outlast.worker.claims.stacks import TRIES, TRY_SECONDS, StackShower
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import COMPLETED, FakePool, claimed, new_in_flight


class Shelf:
    """A store that keeps stacks; ``locked``: how many times its row is locked."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, Stack]] = []
        self.locked = 0
        self.away = False

    async def keep_stack(self, job_id: int, stack: Stack) -> bool:
        if self.away:
            raise StoreUnavailable("away")
        self.locked -= 1
        if self.locked >= 0:
            return False
        self.kept.append((job_id, stack))
        return True


class Desk:
    """Three attempts that run, and what shows where they are."""

    def __init__(self, **evidence: Any) -> None:
        self.shelf, self.clock = Shelf(), ManualClock(boot=0.0)
        self.in_flight = new_in_flight(**evidence)
        self.in_flight.claim([claimed(1), claimed(2), claimed(3)])
        self.pool = FakePool(self.in_flight)
        self.pool.stacks = {token: f"the stack of {token}" for token in (1, 2, 3)}
        store: Any = self.shelf
        pool: Any = self.pool
        self.shower = StackShower(store, self.in_flight, pool, self.clock)
        self.nudge = self.shower.nudge

    async def runs(self, *asks: StackRequest) -> list[int]:
        """Take what a beat brings, and answer; return the tokens that were answered."""
        self.shower.take(asks)
        self.shelf.kept.clear()
        await self.shower.run_once()
        return [stack.token for _, stack in self.shelf.kept]


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_each_request_is_answered_once_however_often_it_is_heard(desk: Desk) -> None:
    assert await desk.runs() == []
    assert not desk.nudge.is_given
    one, two = StackRequest(10, 1), StackRequest(11, 2)
    assert await desk.runs(one, two) == [1, 2]
    assert desk.nudge.is_given
    assert await desk.runs(one, two) == []
    assert await desk.runs(two, StackRequest(12, 1)) == [1]
    assert await desk.runs() == []


async def test_of_several_for_one_attempt_the_last_number_is_answered(desk: Desk) -> None:
    assert await desk.runs(StackRequest(10, 1), StackRequest(11, 1)) == [1]
    ((job_id, stack),) = desk.shelf.kept
    assert job_id == claimed(1).job_id
    assert stack == Stack(token=1, asked=11, text="the stack of 1")


async def test_an_attempt_that_is_not_here_or_has_ended_is_not_answered(desk: Desk) -> None:
    desk.in_flight.end(2, COMPLETED)
    assert await desk.runs(StackRequest(10, 99), StackRequest(11, 2)) == []
    assert desk.pool.shown == []
    desk.pool.stacks[3] = ""  # it ends while its runner is asked
    assert await desk.runs(StackRequest(12, 3)) == []


async def test_what_is_kept_is_redacted_bounded_and_names_the_line() -> None:
    desk = Desk(redact=["hush"])
    own = 'File "/app/shop.py", line 7 in hush_hush'
    found = f'Thread (most recent call first):\n  {own}\n  File "x.py", line 1 in outlast_attempt_1'
    desk.pool.stacks[1] = f"{found}\n\n{'x' * 9 * TEXT_MAX}\0\ud800"
    assert await desk.runs(StackRequest(10, 1)) == [1]
    ((_, stack),) = desk.shelf.kept
    assert stack.line == 'File "/app/shop.py", line 7 in [redacted]_[redacted]'
    assert "hush" not in stack.text
    assert len(stack.text) <= TEXT_MAX
    assert not {"\0", "\ud800"} & set(stack.text)


async def test_a_locked_row_is_tried_again_and_given_up(desk: Desk) -> None:
    for number, (locked, answered) in enumerate([(2, [1]), (TRIES, [])]):
        desk.shelf.locked = locked
        run = asyncio.create_task(desk.runs(StackRequest(number, 1)))
        await desk.clock.run_for(TRIES * TRY_SECONDS + 1.0)
        assert await run == answered


async def test_an_answer_that_cannot_be_written_fails_the_duty_and_is_dropped(desk: Desk) -> None:
    desk.shelf.away = True
    with pytest.raises(StoreUnavailable):
        await desk.runs(StackRequest(10, 1))
    desk.shelf.away = False
    assert await desk.runs(StackRequest(10, 1)) == []
    assert await desk.runs(StackRequest(11, 1)) == [1]
