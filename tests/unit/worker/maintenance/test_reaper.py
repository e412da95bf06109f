"""The reaper: a worker proven gone or silent for its lease is reaped, and its jobs go on."""

from __future__ import annotations

from typing import Any
from unittest import mock

import msgspec
import pytest

from outlast.errors import StoreUnavailable
from outlast.model.crash import Charge, Progress
from outlast.model.job import JobFacts, Policy, State
from outlast.model.lease import LOOK_SECONDS, DeathCause, Presence
from outlast.store.lockfile import LockFile, boot_id
from outlast.store.protocol import ORPHANS_MAX
from outlast.store.values import Orphan, Snapshot, WorkerSeen
from outlast.worker.maintenance.reaper import Reaper
from outlast.worker.service import Service
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import FakeOwner, heard, heard_fields

OWN = 1


def seen(worker_id: int, beat: int = 1, **fields: Any) -> WorkerSeen:
    values: dict[str, Any] = {
        "worker_id": worker_id,
        "name": f"w{worker_id}",
        "host": "h",
        "boot_id": boot_id(),
        "beat": beat,
        "heartbeat": 2.0,
        "lease": 60.0,
        **fields,
    }
    return WorkerSeen(**values)


def orphan(
    job_id: int, worker_id: int = 2, cause: DeathCause | None = None, **facts: Any
) -> Orphan:
    values: dict[str, Any] = {"job_id": job_id, "token": 100 + job_id, **facts}
    return Orphan(
        facts=JobFacts(**values),
        worker_id=worker_id,
        worker=f"w{worker_id}",
        host="h",
        progress=Progress(0.5),
        checkpoint_age=3.0,
        cause=cause,
    )


class Rows:
    """A store of workers and orphans."""

    def __init__(self) -> None:
        self.workers: list[WorkerSeen] = []
        self.orphans: list[Orphan] = []
        self.reaped: list[int] = []
        self.causes: list[DeathCause] = []
        self.begun: list[int | None] = []
        self.beats_on = False  # a worker that beats between the look and the reap
        self.fails = False
        self.locked: set[int] = set()  # workers whose row another session holds
        self.reclaim_fails = False
        self.incarnation = "a"
        self.errors: list[Exception] = []
        self.decided: list[Any] = []
        self.reclaims = 0

    async def observe(self, slack: float) -> Snapshot:
        if self.fails:
            raise StoreUnavailable("away")
        if self.errors:
            raise self.errors.pop()
        return Snapshot(
            workers=list(self.workers),
            orphans=bool(self.orphans),
            overdue=False,
            now=0.0,
            incarnation=self.incarnation,
        )

    async def reap(self, gone: WorkerSeen, cause: DeathCause) -> bool:
        self.begun.append(gone.begun)
        if gone.worker_id in self.locked:
            raise StoreUnavailable("another session holds its row")
        if self.beats_on:
            return False
        self.reaped.append(gone.worker_id)
        self.causes.append(cause)
        self.workers = [each for each in self.workers if each.worker_id != gone.worker_id]
        return True

    async def reclaim(self, decide, limit=ORPHANS_MAX, only=None):
        self.reclaims += 1
        if self.reclaim_fails:
            raise StoreUnavailable("too slow")
        batch, self.orphans = self.orphans[:limit], self.orphans[limit:]
        decided = [decide(each) for each in batch]
        self.decided += decided
        return decided


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock(boot=0.0)
        self.rows = Rows()
        self.owner = FakeOwner()
        self.reaper = Reaper(
            self.owner,
            self.rows,  # type: ignore[arg-type]
            lambda: OWN,
            clock=self.clock,
        )

    async def looks(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.reaper.run_once()
            self.clock.advance(1.0)


@pytest.fixture
def scene():
    return Scene()


@pytest.fixture
def lock(tmp_path):
    lock = LockFile.create(tmp_path / "locks", "w2")
    yield lock
    lock.release()


def with_lock(lock: LockFile, **fields: Any) -> WorkerSeen:
    values = {
        "lock_path": str(lock.path),
        "lock_device": lock.device,
        "lock_inode": lock.inode,
        **fields,
    }
    return seen(2, **values)


# ----------------------------------------------------------------------------- gone workers


async def test_a_look_that_shows_nothing_is_the_only_call(scene):
    await scene.looks(1)
    scene.rows.reclaims = 0
    await scene.looks(10)
    assert scene.rows.reclaims == 0
    scene.rows.orphans = [orphan(1)]
    await scene.looks(1)
    assert (scene.rows.reclaims, len(scene.owner.reclaimed)) == (1, 1)


async def test_jobs_of_reaped_workers_are_reclaimed_in_the_same_look(scene, lock):
    scene.rows.workers = [with_lock(lock)]
    await scene.looks(1)
    lock.release(unlink=False)
    scene.rows.reclaims = 0
    await scene.looks(1)
    assert (scene.rows.reaped, scene.rows.reclaims) == ([2], 1)


async def test_a_worker_that_was_not_seen_to_beat_for_its_lease_is_reaped(scene):
    scene.rows.workers = [seen(OWN), seen(2), seen(3, lease=10.0)]
    await scene.looks(60)
    assert scene.rows.reaped == [3]
    with heard() as names:
        await scene.looks(1)
    assert scene.rows.reaped == [3, 2]
    assert names == ["worker_reaped", "workers_deactivated"]
    assert scene.rows.causes == [DeathCause.SILENCE] * 2


async def test_a_worker_does_not_reap_itself(scene):
    scene.rows.workers = [seen(OWN)]
    await scene.looks(200)
    assert scene.rows.reaped == []


async def test_a_free_lock_file_is_proof_at_the_first_look(scene, lock):
    scene.rows.workers = [with_lock(lock)]
    await scene.reaper.run_once()
    assert scene.rows.reaped == [], "it is held"
    lock.release(unlink=False)
    await scene.reaper.run_once()
    assert scene.rows.reaped == [2]
    assert scene.rows.causes == [DeathCause.LOCK_FILE]


async def test_a_dead_workers_lock_file_tells_the_begun_attempts_and_is_removed(scene, lock):
    lock.begin(7)
    scene.rows.workers = [with_lock(lock)]
    lock.release(unlink=False)
    scene.rows.beats_on = True
    await scene.reaper.run_once()
    assert lock.path.exists(), "its row does not say that it is lost"
    scene.rows.beats_on = False
    await scene.reaper.run_once()
    assert scene.rows.begun == [7, 7]
    assert not lock.path.exists()


async def test_the_lock_file_of_a_silent_worker_is_left_alone(scene, lock):
    scene.rows.workers = [with_lock(lock)]
    await scene.looks(100)
    assert scene.rows.causes[-1] is DeathCause.SILENCE
    assert scene.rows.begun == [None] * len(scene.rows.causes)
    assert lock.path.exists()


@pytest.mark.parametrize("suspect", [{}, {"solo": 2, "losses": 2}], ids=["ordinary", "suspect"])
async def test_attempts_that_had_not_begun_are_released(scene, suspect):
    idle = orphan(1, cause=DeathCause.LOCK_FILE, **suspect)
    scene.rows.orphans = [msgspec.structs.replace(idle, began=False)]
    await scene.looks(1)
    (end,) = scene.rows.decided
    before = idle.facts
    assert (end.outcome, end.state, end.charge) == ("released", State.QUEUED, Charge.NONE)
    assert (end.failures, end.losses, end.solo) == (0, before.losses, before.solo)
    assert "ran none of this" in end.message


async def steps(scene: Scene, seconds: float) -> None:
    """Look as often as the reaper itself wants to."""
    end = scene.clock.boot() + seconds
    while scene.clock.boot() < end:
        scene.clock.advance(await scene.reaper.run_once())


def absent(**fields: Any) -> WorkerSeen:
    return seen(2, presence=Presence.ABSENT, incarnation="a", **fields)


async def test_a_worker_whose_presence_is_gone_and_that_does_not_beat_is_reaped(scene):
    scene.rows.workers = [absent()]
    await steps(scene, 3.5)
    assert scene.rows.reaped == []
    await steps(scene, 1.0)
    assert (scene.rows.reaped, scene.rows.causes) == ([2], [DeathCause.PRESENCE])


async def test_a_held_lock_file_overrules_missing_presence(scene, lock):
    scene.rows.workers = [with_lock(lock, presence=Presence.ABSENT, incarnation="a")]
    await steps(scene, 20.0)
    assert scene.rows.reaped == []


async def test_a_store_outage_does_not_count_as_absence(scene):
    scene.rows.workers = [absent()]
    await steps(scene, 3.5)
    scene.rows.fails = True
    with pytest.raises(StoreUnavailable):
        await scene.reaper.run_once()
    scene.rows.fails = False
    await steps(scene, 3.5)
    assert scene.rows.reaped == []
    await steps(scene, 1.0)
    assert scene.rows.reaped == [2]


async def test_each_reaped_worker_is_reported_and_then_their_number(scene, lock):
    lock.release(unlink=False)
    scene.rows.workers = [with_lock(lock, age=7.5), seen(3)]
    with heard_fields() as events:
        await scene.reaper.run_once()
    assert events[:2] == [
        ("worker_reaped", {"worker": "w2", "worker_id": 2, "cause": "lock_file", "age": 7.5}),
        ("workers_deactivated", {"count": 1}),
    ]


@pytest.mark.parametrize(
    "difference",
    [{"boot_id": "another machine"}, {"lock_inode": 1}, {"lock_device": 1}, {"lock_path": "/nix"}],
    ids=lambda difference: next(iter(difference)),
)
async def test_a_lock_file_that_may_be_another_workers_proves_nothing(scene, lock, difference):
    lock.release(unlink=False)
    scene.rows.workers = [with_lock(lock, **difference)]
    await scene.reaper.run_once()
    assert scene.rows.reaped == []


async def test_a_worker_that_beats_in_the_last_instant_is_left_alone(scene):
    scene.rows.workers = [seen(2)]
    scene.rows.beats_on = True
    await scene.reaper.run_once()
    with heard() as names:
        await scene.looks(100)
    assert (scene.rows.reaped, names) == ([], [])


async def test_a_store_outage_does_not_count_as_silence(scene):
    scene.rows.workers = [seen(2)]
    await scene.looks(59)
    scene.rows.fails = True
    with pytest.raises(StoreUnavailable):
        await scene.reaper.run_once()
    scene.rows.fails = False
    await scene.looks(60)
    assert scene.rows.reaped == []
    await scene.looks(1)
    assert scene.rows.reaped == [2]


async def test_a_worker_whose_row_stays_locked_delays_no_other_and_is_reaped_when_it_is_free(scene):
    scene.rows.workers = [seen(2), seen(3), seen(4, lease=90.0)]
    scene.rows.locked = {2}
    await scene.looks(61)
    assert scene.rows.reaped == [3]
    await scene.looks(30)
    assert scene.rows.reaped == [3, 4], "the observation was not forgotten"
    scene.rows.locked = set()
    await scene.looks(1)
    assert scene.rows.reaped == [3, 4, 2], "it was tried with each look"


async def test_a_row_that_stays_locked_is_reported_at_the_second_try_and_then_once_a_minute(scene):
    scene.rows.workers = [seen(2)]
    scene.rows.locked = {2}
    with heard_fields() as events:
        await scene.looks(61)
        assert [name for name, _ in events] == ["reconciliation_complete"]
        await scene.looks(1)
        told = ("reap_failed", {"worker": "w2", "worker_id": 2, "error": mock.ANY})
        assert events[1:] == [told]
        await scene.looks(130)
    assert events[1:] == [told] * 3


async def test_a_failed_reclaim_keeps_the_observed_silence(scene):
    await scene.looks(1)
    scene.rows.workers = [seen(2)]
    scene.rows.orphans = [orphan(1, worker_id=9)]
    scene.rows.reclaim_fails = True
    for _ in range(61):
        with pytest.raises(StoreUnavailable):
            await scene.reaper.run_once()
        scene.clock.advance(1.0)
    assert scene.rows.reaped == [2]


async def test_another_incarnation_of_the_database_is_observed_anew(scene):
    """A failover may have lost the last beat that a worker was told of."""
    scene.rows.workers = [seen(2)]
    await scene.looks(59)
    scene.rows.incarnation = "b"
    await scene.looks(60)
    assert scene.rows.reaped == []
    await scene.looks(1)
    assert scene.rows.reaped == [2]


async def test_it_looks_often_enough_for_the_shortest_lease(scene):
    assert await scene.reaper.run_once() == LOOK_SECONDS
    scene.rows.workers = [seen(2), seen(3, heartbeat=0.1, lease=0.6)]
    assert await scene.reaper.run_once() == pytest.approx(0.1)


# --------------------------------------------------------------------------------- orphans


async def test_an_orphan_goes_back_to_the_queue_as_a_loss_with_its_evidence(scene):
    scene.rows.workers = [seen(2)]
    await scene.looks(60)
    scene.rows.orphans = [orphan(7, cause=DeathCause.SILENCE)]
    await scene.looks(1)
    (end,) = scene.rows.decided
    assert (end.job_id, end.token, end.state, end.losses) == (7, 107, State.QUEUED, 1)
    assert end.crash.worker == "w2"
    assert end.crash.progress == Progress(0.5)
    assert end.crash.checkpoint_age_seconds == 3.0
    assert "w2 is gone: it was not seen to beat for its whole lease" in end.message
    assert len(scene.owner.reclaimed) == 1


@pytest.mark.parametrize("cause", [None, *DeathCause], ids=str)
async def test_events_name_the_cause_of_death(scene, cause):
    scene.rows.orphans = [orphan(7, cause=cause)]
    await scene.reaper.run_once()
    (end,) = scene.rows.decided
    assert end.message.startswith("worker w2 is gone: it")
    assert end.crash.message == end.message
    assert cause is None or cause.sentence in end.message


async def test_an_orphan_without_budget_is_dead_and_a_cancelled_one_is_cancelled(scene):
    scene.rows.orphans = [
        orphan(1, losses=4, policy=Policy(max_losses=4)),
        orphan(2, cancel_requested=True),
    ]
    await scene.reaper.run_once()
    assert [end.state for end in scene.rows.decided] == [State.DEAD, State.CANCELLED]


async def test_orphans_are_reclaimed_in_batches_until_there_are_none(scene):
    scene.rows.orphans = [orphan(n) for n in range(2 * ORPHANS_MAX + 1)]
    with heard() as names:
        await scene.reaper.run_once()
    assert len(scene.rows.decided) == 2 * ORPHANS_MAX + 1
    assert names.count("orphaned_jobs_detected") == 3
    assert names[-1] == "reconciliation_complete"
    assert names.count("job_reenqueued") == 2 * ORPHANS_MAX + 1


async def test_orphans_found_at_the_start_are_reported_apart_from_later_ones(scene):
    scene.rows.orphans = [orphan(1)]
    with heard_fields() as events:
        await scene.looks(2)
        scene.rows.orphans = [orphan(2), orphan(3)]
        await scene.looks(2)
    counts = [(name, fields) for name, fields in events if name != "job_reenqueued"]
    assert counts == [
        ("orphaned_jobs_detected", {"count": 1}),
        ("reconciliation_complete", {"orphaned_count": 1}),
        ("stale_jobs_detected", {"count": 2}),
    ]


async def test_a_start_without_the_store_is_reconciled_when_it_is_back(scene):
    scene.rows.fails = True
    with heard() as names:
        with pytest.raises(StoreUnavailable):
            await scene.reaper.run_once()
        assert names == []
        scene.rows.fails = False
        await scene.reaper.run_once()
    assert names == ["reconciliation_complete"]


async def test_without_orphans_no_worker_is_woken(scene):
    with heard() as names:
        await scene.looks(3)
    assert (len(scene.owner.reclaimed), names) == (0, ["reconciliation_complete"])


@pytest.mark.parametrize(
    ("error", "event"),
    [(StoreUnavailable("away"), "store_unavailable"), (ValueError("a bug"), "duty_failed")],
    ids=["outage", "bug"],
)
async def test_a_failed_look_is_reported_and_the_next_one_is_made(scene, lock, error, event):
    lock.release(unlink=False)
    scene.rows.workers = [with_lock(lock)]
    scene.rows.errors = [error]
    ended: list[BaseException] = []
    service = Service(scene.reaper, scene.clock, ended.append)
    with heard() as names:
        service.start()
        await scene.clock.run_for(LOOK_SECONDS)
        await service.stop()
    assert scene.rows.reaped == [2]
    assert names[:3] == [event, "worker_reaped", "workers_deactivated"]
    assert ended == []


@pytest.mark.parametrize("cause", [*DeathCause, None])
async def test_only_a_proven_death_is_charged_to_the_job_that_was_alone_in_its_worker(scene, cause):
    scene.rows.orphans = [orphan(1, cause=cause, solo=2, losses=2)]
    await scene.looks(1)
    (end,) = scene.rows.decided
    proven = cause in {DeathCause.LOCK_FILE, DeathCause.RESTARTED}  # else it may be a network
    assert (end.failures, end.losses) == ((1, 2) if proven else (0, 3))
