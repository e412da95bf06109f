"""A worker that cannot renew its lease keeps only attempts that may run twice."""

from __future__ import annotations

import asyncio
import math

import pytest

from outlast.model.job import Policy
from outlast.worker.lease.registration import STOP_GRACE_SECONDS
from tests.unit.worker.stage_kit import Stage
from tests.unit.worker.worker_kit import COMPLETED, claimed, heard

KEPT = Policy(keep_running_when_isolated=True, cancel_grace=1e6)


@pytest.fixture
async def stage():
    """Attempt 1 is ordinary, attempt 2 kept; the lease of 60 s cannot be renewed."""
    stage = Stage()
    await stage.worker.registration.register()
    stage.in_flight.claim([claimed(1)])
    stage.in_flight.claim([claimed(2, policy=KEPT)])
    yield stage
    if stage.worker.registration._reviving is not None:
        stage.worker.registration._reviving.cancel()
        await asyncio.wait([stage.worker.registration._reviving])


async def isolate(stage: Stage) -> None:
    """Let the trust lapse, as the watchdog would find it, and the ordinary attempts end."""
    await stage.clock.run_for(51.0)
    stage.worker.registration.lose("away", keep=True)
    await stage.clock.run_for(10.0)


async def test_ordinary_attempts_are_killed_before_the_tether_ends_which_then_holds(stage):
    await stage.clock.run_for(51.0)
    stage.worker.registration.lose("away", keep=True)
    assert stage.pool.stopped == [(1, "lease_lost")]
    await stage.clock.run_for(1.4)
    assert stage.pool.killed_all == []
    assert stage.holds == [54.0]
    await stage.clock.run_for(0.2)  # 87.5 % of the lease: the tether kills all at 90 %
    assert stage.pool.killed_all == ["lease_lost"]
    assert list(stage.in_flight.running) == [2]
    await stage.clock.run_for(1.0)
    assert stage.holds == [54.0, math.inf]
    assert not stage.worker.registration.may_claim()


async def test_a_lease_that_is_still_valid_continues_under_the_same_registration(stage):
    await isolate(stage)
    with heard() as names:
        stage.beat(stage.clock.boot())
        asked_at = stage.clock.boot()
        await stage.clock.run_for(0.5)
    assert names == ["lease_kept"]
    assert stage.worker.registration.may_claim()
    assert stage.worker.me.worker_id == 1
    assert stage.worker.registration.trust.asked_at == asked_at
    assert stage.holds[-1] == asked_at + 54.0
    assert list(stage.in_flight.running) == [2]
    assert stage.pool.stopped == [(1, "lease_lost")]


async def test_a_lost_lease_ends_what_was_kept_and_registers_again(stage):
    await isolate(stage)
    stage.beat(stage.clock.boot(), renewed=False)
    await stage.clock.run_for(0.1)
    assert stage.pool.stopped == [(1, "lease_lost"), (2, "lease_lost")]
    await stage.clock.run_for(STOP_GRACE_SECONDS)
    assert list(stage.in_flight.running) == []
    await stage.clock.run_for(10.0)
    assert stage.worker.me.worker_id == 2


async def test_an_answer_to_a_beat_from_before_the_isolation_does_not_count(stage):
    await stage.clock.run_for(51.0)
    stage.worker.registration.lose("away", keep=True)
    stage.beat(47.0)
    await stage.clock.run_for(10.0)
    stage.beat(48.0)
    await stage.clock.run_for(1.0)
    assert not stage.worker.registration.may_claim()


async def test_what_was_kept_may_end_meanwhile_and_its_end_waits_for_the_store(stage):
    await isolate(stage)
    stage.in_flight.end(2, COMPLETED)
    stage.beat(stage.clock.boot())
    await stage.clock.run_for(0.5)
    assert stage.worker.registration.may_claim()
    assert [end.token for end in stage.in_flight.take(10)] == [1, 2]


async def test_a_lease_that_the_store_calls_lost_ends_every_runner(stage):
    stage.beat(1.0, renewed=False)
    assert stage.pool.stopped == [(1, "lease_lost"), (2, "lease_lost")]
    await stage.clock.run_for(STOP_GRACE_SECONDS + 0.1)
    assert list(stage.in_flight.running) == []


async def test_without_attempts_to_keep_the_lease_is_lost_as_usual(stage):
    stage.in_flight.end(2, COMPLETED)
    await stage.clock.run_for(51.0)
    stage.worker.registration.lose("away", keep=True)
    await stage.clock.run_for(2.9)
    assert stage.pool.killed_all == []
    await stage.clock.run_for(0.2)
    assert stage.pool.killed_all == ["lease_lost"]
