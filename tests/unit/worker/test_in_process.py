"""The pool of a worker in process: claimed attempts begin during the next exchange."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from unittest import mock

import pytest

import outlast
from outlast.base.config import worker_settings
from outlast.errors import SchemaMismatch
from outlast.model.crash import Progress
from outlast.model.job import Policy, State
from outlast.runner.protocol import End
from outlast.runner.stacks import line_of
from outlast.store.values import ClaimRequest
from outlast.worker.claims.checkpoints import CheckpointWriter
from outlast.worker.claims.in_flight import InFlight
from outlast.worker.claims.prefetch import HORIZON_SECONDS, RATE_SECONDS, WAIT_SECONDS_MAX
from outlast.worker.in_process import LocalLink, LocalPool
from outlast.worker.runners.watchdog import LOOK_SECONDS
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import COMPLETED, FakeOwner, claimed, new_in_flight

SLOTS = 4
ENDS = 500  # in RATE_SECONDS
AHEAD = int(ENDS / RATE_SECONDS * HORIZON_SECONDS)


class Owner(FakeOwner):
    """A worker with attempts, and a list of what was noted and begun."""

    def __init__(self, in_flight: InFlight) -> None:
        super().__init__()
        self.in_flight = in_flight
        self.checkpoints = None


class Stage:
    """A pool of four slots and what its task has begun."""

    def __init__(self, blocked: float = 0.0) -> None:
        self.begun: list[int] = []
        self.gate = asyncio.Event()
        app = outlast.App("sqlite:///nowhere.db")

        @app.task(name="t")
        async def task() -> None:
            self.begun.append(outlast.current().token)
            await self.gate.wait()

        @app.task(name="blocks")
        async def blocks() -> None:
            self.clock.advance(blocked)

        self.clock = ManualClock(boot=0.0)
        self.in_flight = new_in_flight(self.clock)
        self.owner = Owner(self.in_flight)
        settings = worker_settings(concurrency=SLOTS)
        worker: Any = self.owner
        self.pool = LocalPool(app, None, "store", settings, self.clock, worker)

    def place(self, *tokens: int, **fields: Any) -> None:
        self.pool.starter.start(
            self.in_flight.claim([claimed(token, **fields) for token in tokens])
        )

    async def turns(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_claimed_attempts_begin_in_a_later_turn_of_the_loop() -> None:
    stage = Stage()
    stage.place(1, 2)
    assert stage.pool.control.has(1), "it is not taken for lost meanwhile"
    assert stage.pool.starter.count_ahead() == 0, "there is a slot for each"
    assert stage.begun == []
    await stage.turns()
    assert stage.begun == [1, 2]
    stage.gate.set()
    await stage.turns()
    assert [end.token for end in stage.in_flight.take(10)] == [1, 2]


async def test_the_start_of_an_attempt_is_noted_before_it_begins() -> None:
    stage = Stage()
    stage.owner.note_begin = lambda token: stage.begun.append(-token)  # type: ignore[method-assign]
    stage.place(*range(1, SLOTS + 2))
    await stage.turns()
    assert stage.begun == [-SLOTS, *range(1, SLOTS + 1)], "the newest, once"
    assert stage.pool.starter.count_waiting() == 1
    stage.gate.set()
    await stage.turns()


async def test_no_more_attempts_begin_than_there_are_slots() -> None:
    stage = Stage()
    stage.place(*range(SLOTS + 2))
    await stage.turns()
    assert stage.begun == list(range(SLOTS))
    assert stage.pool.starter.count_waiting() == 2
    stage.gate.set()
    await stage.turns()
    assert stage.begun == list(range(SLOTS + 2))


async def test_a_waiting_attempt_can_be_stopped_and_does_not_begin_without_trust() -> None:
    stage = Stage()
    stage.place(1, 2)
    stage.pool.control.stop(1, "cancel")
    stage.owner.trusted = False
    await stage.turns()
    assert stage.begun == []
    assert [end.state for end in stage.in_flight.take(10)] == [State.CANCELLED, State.QUEUED]


async def test_where_an_attempt_is_names_the_line_of_its_await_and_of_all_threads() -> None:
    stage = Stage()
    stage.place(*range(1, SLOTS + 2))
    assert "waits for a free runner" in await stage.pool.control.find_stack(1)
    await stage.turns()
    text = await stage.pool.control.find_stack(1)
    assert " in task" in text.split("\n\n")[0]
    assert "test_in_process.py" in (line_of(text, 1) or "")
    assert "Thread 0x" in text
    assert "waits for a free runner" in await stage.pool.control.find_stack(SLOTS + 1)
    stage.gate.set()
    await stage.turns()
    assert await stage.pool.control.find_stack(1) == ""


async def test_a_slot_is_requested_once_before_its_attempt_begins() -> None:
    """Otherwise a full worker would hold attempts that an idle one could run at once."""
    stage = Stage()
    stage.place(1)
    assert _limits(stage.pool.starter.make_requests(0)) == [SLOTS - 1]
    stage.place(*range(2, SLOTS + 1))
    assert stage.begun == []
    assert stage.pool.starter.make_requests(0) == []
    await stage.turns()
    assert stage.pool.starter.make_requests(0) == []


async def test_an_attempt_with_a_slot_is_kept_through_a_pause_of_the_loop() -> None:
    stage = Stage()
    stage.place(*range(SLOTS + 1))
    stage.clock.advance(WAIT_SECONDS_MAX)
    stage.pool.starter.give_back_late()
    assert [end.token for end in stage.in_flight.take(10)] == [SLOTS], "it would go on waiting"
    await stage.turns()
    assert stage.begun == list(range(SLOTS))


async def test_one_exchange_claims_half_of_what_may_be_held_while_attempts_end() -> None:
    stage = Stage()
    assert _limits(stage.pool.starter.make_requests(0)) == [SLOTS], (
        "an idle worker takes all that it can run"
    )
    stage.pool.starter.ahead.shared.note_freed(ENDS)
    stage.clock.advance(RATE_SECONDS)
    assert _limits(stage.pool.starter.make_requests(0)) == [(SLOTS + AHEAD) // 2]


def _limits(requests: list[ClaimRequest]) -> list[int]:
    return [request.limit for request in requests]


async def test_an_ended_attempt_is_held_until_its_worker_knows_its_end() -> None:
    """Otherwise the watchdog would give back, as not run, what has completed."""
    stage = Stage()
    stage.gate.set()
    stage.place(1)
    while not stage.pool.starter.link.has_ended(1):
        await asyncio.sleep(0)
    assert 1 in stage.in_flight.running
    assert stage.pool.control.has(1)
    stage.pool.control.end_all("the worker stopped")
    assert [end.state for end in stage.in_flight.take(10)] == [State.COMPLETED]
    await stage.turns()
    assert stage.in_flight.take(10) == []


async def test_a_save_is_added_at_once_on_the_loop_and_by_the_loop_for_a_thread() -> None:
    in_flight = new_in_flight(ManualClock())
    worker: Any = Owner(in_flight)
    added: list[int] = []
    worker.checkpoints = mock.Mock()
    worker.checkpoints.add = lambda *_: added.append(threading.get_ident())
    link = LocalLink(worker, mock.Mock(), "store")
    link.step(1, 1, "a", None)
    assert len(added) == 1
    await asyncio.to_thread(link.step, 1, 1, "b", None)
    await asyncio.sleep(0)
    assert added == [threading.get_ident()] * 2


async def test_a_report_just_before_an_end_is_handled_before_it() -> None:
    """The first end schedules the callback that reports ends, before the second one's report."""
    clock = ManualClock()
    in_flight = new_in_flight(clock)
    worker: Any = Owner(in_flight)
    worker.checkpoints = CheckpointWriter(mock.Mock(), in_flight)
    freed: list[Any] = []
    link = LocalLink(worker, freed.extend, "store")
    first, second = in_flight.claim([claimed(1), claimed(2)])
    link.report_end(End(first.token, COMPLETED))
    link.report(second.token, Progress(1.0))
    link.report_end(End(second.token, COMPLETED))
    await asyncio.sleep(0)
    assert second.progress == Progress(1.0)
    assert freed == [first, second]
    assert len(in_flight.take(10)) == 2


async def test_a_limit_that_passes_while_another_attempt_blocks_the_loop_charges_none() -> None:
    stage = Stage(blocked=5.0)
    policy = Policy(timeout=3.0, stall_timeout=4.0)
    stage.place(1, task="blocks")
    stage.place(2, 3, policy=policy)
    await stage.pool.watchdog.run_once()
    await stage.turns()
    assert stage.begun == [2, 3]
    await stage.pool.watchdog.run_once()
    assert [each.stop_reason for each in stage.in_flight.running.values()] == [None, None]
    for _ in range(13):
        await stage.pool.watchdog.run_once()
        stage.clock.advance(LOOK_SECONDS)
    assert [each.stop_reason for each in stage.in_flight.running.values()] == ["timeout"] * 2
    await stage.turns()


async def test_an_attempt_regains_what_another_one_blocks_later_within_the_bound() -> None:
    stage = Stage(blocked=4.0)
    stage.place(2, policy=Policy(timeout=3.0, stall_timeout=4.0))
    await stage.turns()
    await stage.pool.watchdog.run_once()
    stage.place(1, task="blocks")
    stage.place(3)
    await stage.turns()
    await stage.pool.watchdog.run_once()
    assert stage.in_flight.running[2].stop_reason is None
    for _ in range(16):
        await stage.pool.watchdog.run_once()
        stage.clock.advance(LOOK_SECONDS)
    assert stage.in_flight.running[2].stop_reason == "timeout"
    stage.gate.set()
    await stage.turns()


async def test_what_blocks_the_first_attempts_of_an_idle_worker_charges_no_short_limit() -> None:
    stage = Stage(blocked=0.7)
    await stage.pool.watchdog.run_once()  # nothing runs, so the next look may be far
    stage.place(2, policy=Policy(timeout=0.6))
    await stage.turns()
    stage.place(1, task="blocks")
    stage.place(3)
    await stage.turns()
    await stage.pool.watchdog.run_once()
    assert stage.in_flight.running[2].stop_reason is None
    stage.gate.set()
    await stage.turns()


async def test_an_attempt_regains_what_one_that_has_ended_has_blocked() -> None:
    """Its end is told in the turn after the one that it has blocked, before the late look."""
    stage = Stage(blocked=4.0)
    stage.place(2, policy=Policy(timeout=3.0))
    await stage.turns()
    await stage.pool.watchdog.run_once()
    stage.place(1, task="blocks")
    await stage.turns()
    assert list(stage.in_flight.running) == [2]
    await stage.pool.watchdog.run_once()
    assert stage.in_flight.running[2].stop_reason is None
    stage.gate.set()
    await stage.turns()


async def test_alone_an_attempt_has_blocked_the_loop_itself() -> None:
    stage = Stage(blocked=0.0)
    stage.place(1, policy=Policy(timeout=3.0))
    await stage.turns()
    await stage.pool.watchdog.run_once()
    stage.clock.advance(4.0)
    await stage.pool.watchdog.run_once()
    assert stage.in_flight.running[1].stop_reason == "timeout"
    await stage.turns()


async def test_a_store_that_a_worker_cannot_open_is_closed(monkeypatch):
    """Its session would stay for as long as the program, which may try again and again."""
    store = mock.AsyncMock()
    store.open.side_effect = SchemaMismatch("of another release")
    monkeypatch.setattr("outlast.worker.assemble.open_store", lambda *_, **_options: store)
    with pytest.raises(SchemaMismatch):
        async with outlast.App("sqlite:///nowhere.db").worker():
            pass
    store.close.assert_awaited_once()
