"""A worker's registration and its trust in its lease: beats, looks and wake-ups."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from outlast.errors import StoreUnavailable
from outlast.store.protocol import NoPresence
from outlast.store.stacks import StackRequest
from outlast.store.values import Beat, ClaimRequest, Peek, Snapshot, WorkerRef, WorkerSeen
from outlast.worker.claims.pacing import GATHER_SECONDS
from outlast.worker.lease.presence import PresenceKeeper
from tests.cases import each_case
from tests.unit.worker import stage_kit
from tests.unit.worker.stage_kit import Stage
from tests.unit.worker.worker_kit import COMPLETED, RELEASED, accepted, claimed, heard

stage = stage_kit.stage


async def test_only_the_first_registration_takes_over_from_an_earlier_worker(stage):
    """A worker that registers again after a lost lease may itself have a successor."""
    stage.loses()
    await stage.worker.registration._reviving
    assert [new.succeeds for new in stage.store.registered] == [True, False]


async def test_a_registration_without_an_answer_is_tried_again_as_the_first():
    stage = Stage()
    stage.store.errors = [StoreUnavailable("away")]
    with pytest.raises(StoreUnavailable):
        await stage.worker.registration.register()
    await stage.worker.registration.register()
    assert [new.succeeds for new in stage.store.registered] == [True]


async def test_a_registration_is_repeated_under_one_key_until_it_is_answered(stage):
    """Otherwise each lost reply would leave a row that looks alive: the lock file is the same."""
    stage.store.replies_lost = 2
    stage.loses()
    await stage.clock.run_for(1.0)
    first, *asked = [new.registration for new in stage.store.registered]
    assert len(asked) == 3
    assert len({*asked}) == 1
    assert first != asked[0]
    stage.loses()
    await stage.clock.run_for(1.0)
    assert stage.store.registered[-1].registration not in {first, *asked}


async def test_a_beat_renews_the_trust_and_the_tether(stage):
    assert stage.holds == [54.0]
    stage.clock.advance(10.0)
    stage.beat(8.0)
    assert stage.worker.registration.trust.stop_at == 59.0
    assert stage.holds == [54.0, 62.0]


async def test_a_reconnect_is_no_beat_and_renews_nothing(stage):
    stage.clock.advance(40.0)
    assert await stage.worker.registration.reconnect()
    assert stage.worker.me == WorkerRef(1, 2)
    assert stage.worker.registration.trust.stop_at == 51.0
    assert stage.holds == [54.0]


async def test_a_beat_asked_after_the_lapse_renews_nothing(stage):
    stage.clock.advance(53.0)
    stage.beat(52.0)
    assert not stage.worker.registration.is_trusted()
    assert stage.holds == [54.0]


async def test_a_beat_of_an_earlier_registration_says_nothing(stage):
    stage.worker.registration._take_row(WorkerRef(2, 1))
    stage.beat(10.0, renewed=False, worker_id=1)
    assert stage.worker.registration.is_trusted()


async def test_a_beat_for_a_reused_id_says_nothing(stage):
    """As in a file that was replaced, whose ids start over."""
    stage.worker.registration._take_row(WorkerRef(1, 1, "again"))
    stage.beat(10.0, renewed=False, worker_id=1)
    assert stage.worker.registration.is_trusted()


async def test_a_drain_request_repeated_by_beats_is_not_a_second_signal(stage):
    for _ in range(2):
        stage.worker._take_beat(stage.clock.boot(), stage.worker.me, Beat(True, drain=True))
    assert stage.worker._stop_asked.is_set()
    assert not stage.worker._stop_now.is_set()


async def test_what_has_ended_is_kept_for_a_week_and_dead_jobs_forever(stage, monkeypatch):
    asked = {}

    async def prune(**ages: float) -> int:
        asked.update(ages)
        return 0

    async def merge_minutes(limit: int) -> int:
        return 0

    async def find_none() -> list[object]:
        return []

    inspector = SimpleNamespace(lock_holders=find_none)
    monkeypatch.setattr(stage.store, "prune", prune, raising=False)
    monkeypatch.setattr(stage.store, "inspector", inspector, raising=False)
    monkeypatch.setattr(stage.store, "recount_limits", find_none, raising=False)
    monkeypatch.setattr(stage.store, "merge_minutes", merge_minutes, raising=False)
    await stage.worker.services["pruner"].duty.run_once()
    assert asked["jobs_older_than"] == asked["workers_older_than"] == 7 * 24 * 3600
    assert asked["dead_older_than"] is None


@pytest.mark.parametrize("draining", [False, True])
async def test_claims_need_trust_and_no_drain(stage, draining):
    if draining:
        stage.worker.registration.drain()
    assert stage.worker.registration.may_claim() is not draining
    stage.clock.advance(51.0)
    assert not stage.worker.registration.may_claim()


async def test_a_lapsed_lease_is_found_and_one_that_is_renewed_is_not(stage):
    stage.clock.advance(50.0)
    stage.worker.registration.trust.renewed(50.0)
    stage.clock.advance(1.0)
    with heard() as names:
        stage.worker.registration.check()
        assert names == []
        stage.clock.advance(50.0)
        stage.worker.registration.check()
    assert names == ["lease_lost"]


async def test_a_worker_that_leaves_hands_in_at_once_the_ends_that_gather(stage):
    plan, claims = stage.worker.plan, [claimed(1), claimed(2)]
    stage.in_flight.claim(claims)
    filled = accepted(0, claimed=claims)
    more: dict[str, Any] = {"tasks": ["t"], "is_running": True, "ahead": 6}
    assert plan.take_reply([ClaimRequest(["t"], 2)], filled, 0, **more) == GATHER_SECONDS
    rest = plan.nudge.wait(None)
    stage.in_flight.end(1, COMPLETED)
    stage.worker.registration.drain()
    stage.in_flight.end(2, RELEASED)  # it was claimed ahead, and goes back
    assert not rest.done()
    leaving = asyncio.create_task(stage.worker.hand_in_the_rest())
    await asyncio.wait([rest], timeout=5.0)
    assert rest.done()
    await stage.worker.services["exchange"].duty.run_once()
    assert stage.store.calls[-1] == ("exchange", ([1, 2], []))
    await stage.clock.run_for(1.0)
    await leaving
    assert stage.in_flight.is_empty()


async def test_a_peek_that_shows_work_wakes_the_exchange(stage):
    stage.worker.take_peek(Peek())
    assert not stage.worker.plan.nudge.is_given
    stage.worker.take_peek(Peek(drawn=7))
    assert stage.worker.plan.nudge.is_given


@each_case(
    ("queues", "payload", "nudged"),
    [
        ([], "queue:mail", True),
        (["mail", "slow"], "queue:slow", True),
        (["mail", "slow"], "", True),
        (["mail", "slow"], "queue:analysis", False),
        (["mail", "slow"], "queue:mai", False),
        (["mail"], "cancel:7", False),
        (["cancel:7", "drain:7", "queue:a"], "queue:cancel:7", True),
        (["cancel:7", "drain:7", "queue:a"], "queue:drain:7", True),
        (["cancel:7", "drain:7", "queue:a"], "queue:queue:a", True),
        (["cancel:7", "drain:7", "queue:a"], "cancel:7", False),
        (["mail"], "mail", False),
        ([], "jobs:7:1:mail", True),
        (["mail"], "jobs:7:1:mail", True),
        (["mail"], "jobs:7:1:1:mail", False),
        (["mail"], "jobs:7:1:analysis", False),
        (["mail"], "taken:7:::", False),
        ([], "reload:7", False),
    ],
)
async def test_a_wake_up_for_a_queue_that_is_not_served_wakes_nothing(queues, payload, nudged):
    stage = Stage(*queues)
    stage.worker._take_wakeup(payload)
    assert stage.worker.plan.nudge.is_given is nudged


async def test_a_worker_that_hears_of_a_death_looks_at_once(stage):
    stage.worker._take_wakeup("gone:7")
    assert stage.worker._reaper.nudge.is_given
    assert not stage.worker.plan.nudge.is_given


@pytest.mark.parametrize(("payload", "beats"), [("stack:1", 1), ("stack:11", 0), ("stack:", 0)])
async def test_a_worker_that_is_asked_where_a_job_is_beats_at_once(
    stage, monkeypatch, payload, beats
):
    nudged = []
    monkeypatch.setattr(stage.worker.heartbeat, "nudge", lambda: nudged.append(payload))
    stage.worker._take_wakeup(payload)
    assert len(nudged) == beats


async def test_what_a_beat_asks_for_is_shown_by_a_duty(stage):
    stage.in_flight.claim([claimed(1)])
    beat = Beat(renewed=True, stacks=[StackRequest(5, 1)])
    stage.worker._take_beat(stage.clock.boot(), stage.worker.me, beat)
    assert stage.worker.services["stacks"].duty.nudge.is_given
    await stage.worker.services["stacks"].duty.run_once()
    assert stage.pool.shown == [1]


@pytest.mark.parametrize(
    "payload", ["cancel:1", "drain:1", "stack:1", "cancel:", "drain:x", "\x1b[2J", "x" * 8000]
)
async def test_a_notification_cannot_end_a_worker(stage, payload):
    """Any client of the database can send it: requests are in the store only."""
    stage.in_flight.claim([claimed(1)])
    stage.worker._take_wakeup(payload)
    assert (stage.pool.stopped, list(stage.in_flight.running)) == ([], [1])
    assert not stage.worker._stop_asked.is_set()


@pytest.mark.parametrize(("worker_id", "nudged"), [(1, True), (2, False)])
async def test_a_look_without_the_own_presence_makes_the_worker_retake_it(stage, worker_id, nudged):
    stage.worker._keeper = PresenceKeeper(
        NoPresence(),
        None,  # type: ignore[arg-type]
        stage.worker.registration,
        clock=stage.clock,
    )
    nudge = stage.worker._keeper.nudge
    stage.worker._keeper._held, stage.worker._keeper._worker_id = True, 1
    own = WorkerSeen(
        worker_id=worker_id, name="w", host="h", boot_id="b", beat=1, heartbeat=2.0, lease=60.0
    )
    stage.worker.take_look(Snapshot(workers=[own], orphans=False, overdue=False, now=0.0))
    assert nudge.is_given is nudged
