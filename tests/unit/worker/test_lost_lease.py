"""A lost lease: attempts are stopped and killed, and the worker registers again or leaves."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from outlast.errors import NotPermitted, StoreUnavailable
from outlast.model.crash import CrashKind
from outlast.store.values import Answer, WorkerRef
from outlast.store.wakeup import Health
from outlast.worker.base import KILL_SECONDS
from outlast.worker.lease.registration import LEAVE_SECONDS, STOP_GRACE_SECONDS
from outlast.worker.service import GIVE_UP_SECONDS, Failure
from tests.unit.worker import stage_kit
from tests.unit.worker.stage_kit import Stage
from tests.unit.worker.worker_kit import COMPLETED, RELEASED, claimed, crash, heard

stage = stage_kit.stage


async def test_a_lost_lease_stops_then_kills_every_attempt_then_registers_again(stage):
    for token in (1, 2):
        stage.in_flight.claim([claimed(token)])
    with heard() as names:
        stage.loses()
        stage.loses()
    assert names == ["lease_lost"]
    assert stage.pool.stopped == [(1, "lease_lost"), (2, "lease_lost")]
    assert not stage.worker.registration.may_claim()
    stage.in_flight.end(1, COMPLETED)
    await stage.clock.run_for(53.0)
    assert stage.pool.killed_all == [], "they may go on until the tether ends"
    await stage.clock.run_for(1.1)
    assert stage.pool.killed_all == ["lease_lost"]
    assert stage.store.verbs() == ["register"], "the ends are handed in first, for a limited time"
    await stage.clock.run_for(LEAVE_SECONDS)
    assert stage.store.calls == [
        ("register", 0),
        ("set_status", (1, "stopped")),
        ("register", 2),
    ]
    assert stage.worker.registration.may_claim()
    assert stage.worker.me == WorkerRef(2, 1)


async def test_a_worker_comes_back_although_a_runner_cannot_be_killed(stage):
    for token in (1, 2):
        stage.in_flight.claim([claimed(token)])
    stage.pool.unkillable = {1}
    stage.beat(1.0, renewed=False)
    await stage.clock.run_for(STOP_GRACE_SECONDS + KILL_SECONDS - 0.1)
    assert (stage.pool.killed_all, stage.pool.given_up) == (["lease_lost"], [])
    await stage.clock.run_for(0.2)
    assert stage.pool.given_up == [{1}]
    await stage.clock.run_for(LEAVE_SECONDS)
    assert stage.worker.me == WorkerRef(2, 1)
    assert stage.worker.registration.may_claim()
    assert 1 in stage.in_flight.held(), "until it is gone"


async def test_a_lease_that_the_store_calls_lost_ends_at_once(stage):
    """The worker that took the jobs over may run them already."""
    stage.in_flight.claim([claimed(1)])
    stage.beat(1.0, renewed=False)
    await stage.clock.run_for(STOP_GRACE_SECONDS - 0.1)
    assert stage.pool.killed_all == []
    await stage.clock.run_for(0.2)
    assert stage.pool.killed_all == ["lease_lost"]


@pytest.mark.parametrize(
    ("misses", "word"),
    [
        (True, "released"),
        (False, "lost_lease"),
    ],
)
async def test_attempts_cost_nothing_if_the_store_took_no_heartbeats(stage, misses, word):
    """A worker that stood still has sent none."""
    stage.in_flight.claim([claimed(1)])
    stage.clock.advance(51.0)
    if misses:
        stage.miss()
    stage.worker.check_lease()
    stage.in_flight.end(1, crash(CrashKind.LOST_LEASE))
    (end,) = stage.in_flight.take(1)
    assert (end.outcome, end.charge == "none") == (word, misses)


async def test_a_heartbeat_that_failed_before_the_last_renewal_excuses_nothing(stage):
    stage.in_flight.claim([claimed(1)])
    stage.miss()
    stage.beat(2.0)
    stage.clock.advance(53.0)
    stage.worker.check_lease()
    stage.in_flight.end(1, crash(CrashKind.LOST_LEASE))
    assert stage.in_flight.take(1)[0].outcome == "lost_lease"


async def test_a_lost_lease_after_an_outage_is_no_excuse(stage):
    stage.miss()
    stage.clock.advance(51.0)
    stage.worker.check_lease()
    await stage.clock.run_for(1.0)
    assert stage.worker.me == WorkerRef(2, 1)
    stage.in_flight.claim([claimed(1), claimed(2)])
    stage.in_flight.end(1, crash(CrashKind.LOST_LEASE))  # as a task may say itself
    stage.miss()
    stage.beat(stage.clock.boot(), renewed=False)
    stage.in_flight.end(2, crash(CrashKind.LOST_LEASE))
    assert [end.outcome for end in stage.in_flight.take(2)] == ["lost_lease", "lost_lease"]


async def test_the_old_row_stands_until_the_ends_are_handed_in(stage):
    """A database that is read-only answers to reads. An orphan is charged a loss."""
    stage.in_flight.claim([claimed(1)])
    stage.in_flight.end(1, RELEASED)
    fails(stage, "exchange", StoreUnavailable("read-only"))
    stage.loses()
    await stage.clock.run_for(10 * LEAVE_SECONDS)
    assert stage.store.verbs() == ["register"]
    stage.in_flight.take_answers(stage.in_flight.take(1), [Answer.ACCEPTED])
    await stage.clock.run_for(LEAVE_SECONDS)
    assert stage.worker.me == WorkerRef(2, 1)


@pytest.mark.parametrize("what", ["health", "tasks"])
async def test_what_a_read_only_store_refuses_is_written_again_even_if_it_changes_back(stage, what):
    """A run that asks nothing would say that the store has recovered."""
    registration, health = stage.worker.registration, Health("notify")
    registration._wakeup = SimpleNamespace(health=health)
    known = ["t"]
    stage.pool.tasks = lambda: known
    health.note_ready()
    await registration.run_once()
    stage.store.away = True
    if what == "health":
        health.note_trouble("lost")
    else:
        known = ["t", "u"]
    with pytest.raises(StoreUnavailable):
        await registration.run_once()
    health.note_ready()
    known = ["t"] if what == "health" else []
    with pytest.raises(StoreUnavailable):
        await registration.run_once()


async def test_a_worker_without_attempts_registers_again_at_once(stage):
    stage.loses()
    await stage.clock.run_for(0.1)
    assert stage.worker.me == WorkerRef(2, 1)
    assert stage.worker.registration.trust.asked_at == pytest.approx(0.0, abs=0.1)


async def test_a_drain_that_is_asked_for_before_it_registers_again_is_heard(stage):
    """Who waits for it sees that the old row is stopped, and may switch the machine off."""
    stage.in_flight.claim([claimed(1)])
    stage.loses()
    stage.beat(1.0, drain=True)
    await stage.clock.run_for(60.0)
    assert stage.worker._stop_asked.is_set()


async def test_during_an_outage_the_old_row_is_never_left_alive_beside_a_new_one(stage):
    stage.store.away = True
    stage.loses()
    await stage.clock.run_for(300.0)
    assert stage.worker.me == WorkerRef(1, 1)
    assert not stage.worker.registration.may_claim()
    stage.store.away = False
    await stage.clock.run_for(0.5)
    assert stage.store.verbs().count("register") == 2
    assert ("set_status", (1, "stopped")) in stage.store.calls
    assert stage.worker.registration.may_claim()


async def test_any_error_while_fenced_is_retried(stage):
    stage.store.errors = [RuntimeError("a driver's own fault"), OSError("no more descriptors")]
    with heard() as names:
        stage.loses()
        await stage.clock.run_for(1.0)
    assert "duty_failed" in names
    assert stage.worker.registration.may_claim()


async def test_idle_runners_survive_an_outage_of_the_store(stage):
    """The tether is for attempts. Otherwise each new runner would be killed at its start, and
    the back-off of starts would outlast the outage."""
    stage.in_flight.claim([claimed(1)])
    stage.store.away = True
    stage.loses()
    await stage.clock.run_for(53.0)
    assert stage.holds == [54.0], "not while an attempt runs"
    await stage.clock.run_for(10.0)
    assert stage.holds == [54.0, math.inf]
    stage.store.away = False
    await stage.clock.run_for(LEAVE_SECONDS + 1.0)
    assert stage.holds[-1] == stage.worker.registration.trust.kill_at


async def test_a_reconnect_that_finds_the_lease_lost_says_so_once(stage):
    stage.store.reconnects = [None]
    with heard() as names:
        assert not await stage.worker.registration.reconnect()
        assert not await stage.worker.registration.reconnect()
    assert names == ["lease_lost"]


async def test_a_beat_while_fenced_postpones_nothing(stage):
    stage.in_flight.claim([claimed(1)])
    stage.loses()
    stage.clock.advance(20.0)
    stage.beat(20.0)
    assert not stage.worker.registration.is_trusted()
    await stage.clock.run_for(34.1)
    assert stage.pool.killed_all == ["lease_lost"]


async def test_prefetched_attempts_are_released_before_any_wait(stage):
    stage.loses()
    assert stage.pool.given_back == ["lease_lost"]
    stage.worker.request_stop()
    stage.worker.request_stop()
    await stage.worker._drain()
    assert stage.pool.given_back == ["lease_lost", "the worker is stopping"]


def fails(stage: Stage, duty: str, error: Exception) -> None:
    stage.worker.services[duty].failure = Failure(error, stage.clock.boot())
    stage.worker.services[duty]._failures = 1


async def test_a_beating_worker_that_the_store_refuses_leaves_with_the_reason(stage):
    refused = NotPermitted("no UPDATE")
    fails(stage, "exchange", refused)
    with heard() as names:
        for _ in range(int(GIVE_UP_SECONDS / 2)):
            assert not stage.worker._stop_asked.is_set()
            stage.clock.advance(2.0)
            stage.beat(stage.clock.boot())
        stage.clock.advance(2.0)  # the first beat behind the refusal has begun to count
        stage.beat(stage.clock.boot())
    assert stage.worker._stop_asked.is_set()
    assert not stage.worker._stop_now.is_set(), "what runs may finish"
    assert stage.worker._failure is refused
    assert names == ["worker_gave_up"]


async def test_the_heartbeat_gets_the_failing_duty(stage):
    fails(stage, "pruner", RuntimeError("x"))
    stage.clock.advance(6.0)
    stage.beat(6.0)
    assert stage.worker.heartbeat._trouble == ("pruner", "RuntimeError: x", 0.0)


async def test_a_worker_whose_new_row_is_refused_for_minutes_leaves(stage):
    refused = NotPermitted("no INSERT")
    stage.store.errors = [refused] * 100_000
    stage.loses()
    with heard() as names:
        await stage.clock.run_for(GIVE_UP_SECONDS / 2)
        assert not stage.worker._stop_asked.is_set()
        await stage.clock.run_for(GIVE_UP_SECONDS)
    assert stage.worker._stop_asked.is_set()
    assert stage.worker._failure is refused
    assert names == ["duty_failed", "worker_gave_up"]
