"""A worker's lease: lost, attempts stopped and killed, and a new registration."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from outlast.config import WorkerSettings
from outlast.errors import NotPermitted, StoreUnavailable
from outlast.model.lease import LeaseTerms
from outlast.store.presence import NoPresence
from outlast.store.rows import WorkerStatus
from outlast.store.values import Beat, NewWorker, Registered, Snapshot, WorkerRef, WorkerSeen
from outlast.worker.base import KILL_SECONDS
from outlast.worker.claims.ledger import Ledger
from outlast.worker.condition import GIVE_UP_SECONDS, Failure
from outlast.worker.lease.presence import PresenceKeeper
from outlast.worker.lease.registration import LEAVE_SECONDS, STOP_GRACE_SECONDS
from outlast.worker.worker import Worker
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import COMPLETED, FakePool, FakeStore, claimed, heard

NEW = NewWorker(name="w", host="h", pid=1, boot_id="b", heartbeat=2.0, lease=60.0)


class Rows(FakeStore):
    """A store for registrations; unavailable when set so."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = 0
        self.registered: list[NewWorker] = []
        self.away = False
        self.replies_lost = 0
        self.errors: list[Exception] = []
        self.reconnects: list[WorkerRef | None] = []

    async def register(self, new: NewWorker) -> Registered:
        self._note("register", new.token_seen)
        self.ids += 1
        self.registered.append(new)
        if self.replies_lost:
            self.replies_lost -= 1
            raise StoreUnavailable("the reply was lost")
        return Registered(self.ids, 1)

    async def set_status(self, me: WorkerRef, status: WorkerStatus) -> bool:
        self._note("set_status", (me.worker_id, status.value))
        return True

    async def observe(self) -> Snapshot:
        if self.away:
            raise StoreUnavailable("away")
        return Snapshot(workers=[], orphans=False, overdue=False, now=0.0)

    async def announce(self, me: WorkerRef, tasks: Sequence[str], lacks: object) -> None:
        self._note("announce", list(tasks))

    async def reconnect(self, me: WorkerRef, token_seen: int) -> WorkerRef | None:
        self._note("reconnect", token_seen)
        return WorkerRef(me.worker_id, me.epoch + 1) if not self.reconnects else None

    def _note(self, verb: str, what: object) -> None:
        if self.away:
            raise StoreUnavailable("away")
        if self.errors:
            raise self.errors.pop()
        self.calls.append((verb, what))


class Stage:
    """A worker with a fake pool, on a manual clock, registered; its duties do not run."""

    def __init__(self, *queues: str) -> None:
        self.clock = ManualClock(boot=0.0)
        self.store = Rows()
        self.holds: list[float] = []
        self.worker = Worker(
            msgspec.structs.replace(NEW, queues=list(queues)),
            WorkerSettings(),
            lambda worker: FakePool(worker.ledger),
            store=self.store,  # type: ignore[arg-type]
            open_beating_store=None,  # type: ignore[arg-type]
            wakeup=None,
            clock=self.clock,
            hold_until=self.holds.append,
        )

    @property
    def pool(self) -> FakePool:
        return self.worker.pool  # type: ignore[return-value]

    @property
    def ledger(self) -> Ledger:
        return self.worker.ledger

    def beat(self, asked_at: float, *, renewed: bool = True, worker_id: int | None = None) -> None:
        me = self.worker.me if worker_id is None else WorkerRef(worker_id, 1)
        self.worker._take_beat(asked_at, me, Beat(renewed=renewed))

    def loses(self) -> None:
        self.worker.registration.lose("for a test")


@pytest.fixture
async def stage():
    stage = Stage()
    await stage.worker.registration.register()
    yield stage
    if stage.worker.registration._reviving is not None:
        stage.worker.registration._reviving.cancel()
        await asyncio.wait([stage.worker.registration._reviving])


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
    """Else each lost reply would leave a row that looks alive, for the lock file is the same."""
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


# ------------------------------------------------------------------------------ the trust


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
    """As in a file that was replaced, whose ids begin anew."""
    stage.worker.registration._take_row(WorkerRef(1, 1, "anew"))
    stage.beat(10.0, renewed=False, worker_id=1)
    assert stage.worker.registration.is_trusted()


async def test_a_drain_request_repeated_by_beats_is_not_a_second_signal(stage):
    for _ in range(2):
        stage.worker._take_beat(stage.clock.boot(), stage.worker.me, Beat(True, drain=True))
    assert stage.worker._stop_asked.is_set()
    assert not stage.worker._stop_now.is_set()


async def test_rows_of_workers_that_are_gone_are_kept_for_a_week(stage, monkeypatch):
    asked = {}

    async def prune(**ages: float) -> int:
        asked.update(ages)
        return 0

    monkeypatch.setattr(stage.store, "prune", prune, raising=False)
    await stage.worker._services["pruner"].duty.run_once()
    assert asked["workers_older_than"] == 7 * 24 * 3600


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
        stage.worker.check_lease()
        assert names == []
        stage.clock.advance(50.0)
        stage.worker.check_lease()
    assert names == ["lease_lost"]


def shown(**fields: Any) -> Snapshot:
    return Snapshot(workers=[], orphans=False, overdue=False, now=0.0, **fields)


async def test_a_look_that_shows_work_wakes_the_exchange(stage):
    stage.worker.take_look(shown())
    assert not stage.worker.nudges.exchange.is_given
    stage.worker.take_look(shown(drawn=7))
    assert stage.worker.nudges.exchange.is_given


@pytest.mark.parametrize(
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
        ([], "reload:7", False),
    ],
)
async def test_a_wake_up_for_a_queue_that_is_not_served_wakes_nothing(queues, payload, nudged):
    stage = Stage(*queues)
    stage.worker._take_wakeup(payload)
    assert stage.worker.nudges.exchange.is_given is nudged


@pytest.mark.parametrize(
    "payload", ["cancel:1", "drain:1", "cancel:", "drain:x", "\x1b[2J", "x" * 8000]
)
async def test_a_notification_cannot_end_a_worker(stage, payload):
    """Any client of the database can send it: requests are in the store only."""
    stage.ledger.claim([claimed(1)])
    stage.worker._take_wakeup(payload)
    assert (stage.pool.stopped, list(stage.ledger.running)) == ([], [1])
    assert not stage.worker._stop_asked.is_set()


@pytest.mark.parametrize(("worker_id", "nudged"), [(1, True), (2, False)])
async def test_a_look_without_the_own_presence_makes_the_worker_retake_it(stage, worker_id, nudged):
    nudge = stage.worker.nudges.presence
    stage.worker._keeper = PresenceKeeper(
        NoPresence(),
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        nudge,
        LeaseTerms(),
        clock=stage.clock,
    )
    nudge.take()
    stage.worker._keeper._held, stage.worker._keeper._worker_id = True, 1
    own = WorkerSeen(
        worker_id=worker_id, name="w", host="h", boot_id="b", beat=1, heartbeat=2.0, lease=60.0
    )
    stage.worker.take_look(msgspec.structs.replace(shown(), workers=[own]))
    assert nudge.is_given is nudged


# -------------------------------------------------------------------------------- the loss


async def test_a_lost_lease_stops_then_kills_every_attempt_then_registers_again(stage):
    for token in (1, 2):
        stage.ledger.claim([claimed(token)])
    with heard() as names:
        stage.loses()
        stage.loses()
    assert names == ["lease_lost"]
    assert stage.pool.stopped == [(1, "lease_lost"), (2, "lease_lost")]
    assert not stage.worker.registration.may_claim()
    stage.ledger.end(1, COMPLETED)
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
    assert stage.pool.worker_id == 2


async def test_a_worker_comes_back_although_a_runner_cannot_be_killed(stage):
    for token in (1, 2):
        stage.ledger.claim([claimed(token)])
    stage.pool.unkillable = {1}
    stage.beat(1.0, renewed=False)
    await stage.clock.run_for(STOP_GRACE_SECONDS + KILL_SECONDS - 0.1)
    assert (stage.pool.killed_all, stage.pool.given_up) == (["lease_lost"], [])
    await stage.clock.run_for(0.2)
    assert stage.pool.given_up == [{1}]
    await stage.clock.run_for(LEAVE_SECONDS)
    assert stage.worker.me == WorkerRef(2, 1)
    assert stage.worker.registration.may_claim()
    assert 1 in stage.ledger.held(), "until it is gone"


async def test_a_lease_that_the_store_calls_lost_ends_at_once(stage):
    """The worker that took the jobs over may run them already."""
    stage.ledger.claim([claimed(1)])
    stage.beat(1.0, renewed=False)
    await stage.clock.run_for(STOP_GRACE_SECONDS - 0.1)
    assert stage.pool.killed_all == []
    await stage.clock.run_for(0.2)
    assert stage.pool.killed_all == ["lease_lost"]


async def test_a_worker_without_attempts_registers_again_at_once(stage):
    stage.loses()
    await stage.clock.run_for(0.1)
    assert stage.worker.me == WorkerRef(2, 1)
    assert stage.worker.registration.trust.asked_at == pytest.approx(0.0, abs=0.1)


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
    stage.ledger.claim([claimed(1)])
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
    stage.ledger.claim([claimed(1)])
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
    stage.worker._services[duty]._failure = Failure(error, stage.clock.boot())
    stage.worker._services[duty]._failures = 1


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
    assert stage.worker._heartbeat._trouble == ("pruner", "RuntimeError: x", 0.0)


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
