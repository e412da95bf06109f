"""What probes say of a worker, on a manual clock and without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from outlast.worker.probes import STUCK_SECONDS, TICK_SECONDS, TurnWatch, Vitals
from tests.unit.worker import stage_kit
from tests.unit.worker.stage_kit import Stage

stage = stage_kit.stage


@pytest.fixture
async def vitals(stage: Stage) -> Vitals:
    made = Vitals(stage.clock)
    made.attach(stage.worker)
    return made


def look(vitals: Vitals, seconds: float) -> None:
    """Let these seconds pass for the thread that looks, without a turn of the loop."""
    for _ in range(int(seconds / TICK_SECONDS)):
        vitals.look(TICK_SECONDS)


async def test_a_worker_that_serves_is_well(vitals: Vitals) -> None:
    assert vitals.judge_startup() == (True, "started")
    assert vitals.judge_readiness() == (True, "ready")
    assert vitals.judge_liveness() == (True, "live")


async def test_no_probe_asks_the_store(stage: Stage, vitals: Vitals) -> None:
    before = list(stage.store.calls)
    for judge in (vitals.judge_startup, vitals.judge_readiness, vitals.judge_liveness):
        judge()
        look(vitals, 1)
        await asyncio.sleep(0)
    assert stage.store.calls == before


async def test_a_worker_that_is_not_made_yet_lives_and_is_not_ready(stage: Stage) -> None:
    vitals = Vitals(stage.clock)
    assert vitals.judge_startup() == (False, "not started: no runner is ready yet")
    assert vitals.judge_readiness() == (False, "not ready: it has not registered yet")
    assert vitals.judge_liveness().is_well


async def test_it_has_started_once_a_runner_was_ready_and_stays_so(
    stage: Stage, vitals: Vitals
) -> None:
    stage.pool.is_ready = False
    assert vitals.judge_startup().is_well
    assert vitals.judge_readiness() == (False, "not ready: no runner is ready")
    stage.pool.has_started = False
    assert not vitals.judge_startup().is_well


async def test_a_draining_worker_is_not_ready_and_lives(stage: Stage, vitals: Vitals) -> None:
    stage.worker.registration.drain()
    assert vitals.judge_readiness() == (False, "not ready: it is draining")
    assert vitals.judge_liveness().is_well


async def test_a_worker_that_sleeps_is_well_until_the_next_one_starts(
    stage: Stage, vitals: Vitals
) -> None:
    for _ in range(2):  # and goes on sleeping if it cannot be back
        vitals.rest()
        assert vitals.judge_startup().is_well
        assert vitals.judge_readiness().is_well
        assert vitals.judge_liveness().is_well
    stage.pool.is_ready = False
    vitals.attach(stage.worker)
    assert not vitals.judge_readiness().is_well


async def test_an_outage_of_the_store_costs_the_readiness_and_never_the_life(
    stage: Stage, vitals: Vitals
) -> None:
    stage.store.away = True
    await stage.clock.run_for(50)  # of a lease of 60 s, trusted for 51
    assert vitals.judge_readiness().is_well
    await stage.clock.run_for(70)
    told = vitals.judge_readiness().text
    assert told == "not ready: its lease is not trusted: no heartbeat was answered for 120 s"
    for _ in range(120):
        look(vitals, 1)
        await asyncio.sleep(0)  # the loop turns, as it does while the store is away
        assert vitals.judge_liveness().is_well
    assert vitals.judge_startup().is_well


async def test_a_loop_that_is_stuck_costs_the_life_until_it_turns_again(vitals: Vitals) -> None:
    look(vitals, STUCK_SECONDS)
    assert vitals.judge_liveness().is_well
    look(vitals, 2)
    told = vitals.judge_liveness()
    assert told == (False, "not live: the event loop has not turned for 31 s")
    await asyncio.sleep(0)
    assert vitals.judge_liveness().is_well


async def test_a_heartbeat_that_is_stuck_costs_the_life(stage: Stage) -> None:
    asked: list[Any] = []
    vitals = Vitals(stage.clock)
    stage.worker.heartbeat.call_soon = asked.append  # type: ignore[assignment,method-assign]
    vitals.attach(stage.worker)
    for _ in range(32):
        look(vitals, 1)
        await asyncio.sleep(0)
    assert vitals.judge_liveness().text == (
        "not live: the heartbeat's thread has not turned for 31 s"
    )
    asked[0]()
    assert vitals.judge_liveness().is_well
    assert len(asked) == 1, "one call waits at a time"


async def test_a_loop_that_has_ended_does_not_turn() -> None:
    def closed(call: Callable[[], None]) -> None:
        raise RuntimeError("Event loop is closed")

    watch = TurnWatch("loop", closed)
    for _ in range(11):
        watch.look(1.0)
    assert watch.silent == pytest.approx(10.0)


async def test_a_machine_that_was_suspended_has_no_stuck_loop(vitals: Vitals) -> None:
    vitals.look(1)
    vitals.look(3_600)
    assert vitals.judge_liveness().is_well


async def test_a_worker_without_its_tether_does_not_live(stage: Stage) -> None:
    vitals = Vitals(stage.clock)
    vitals.attach(stage.worker, lambda: True)
    assert vitals.judge_liveness().text.startswith("not live: the tether process is gone")
    assert vitals.judge_readiness().is_well
