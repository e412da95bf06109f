"""The reaper: a worker that is proven gone, or silent for its lease, is reaped."""

from __future__ import annotations

import errno
from typing import Any
from unittest import mock

import msgspec
import pytest

from outlast.errors import StoreUnavailable
from outlast.model.lease import LOOK_SECONDS, DeathCause, LeaseTerms, Presence, Trust
from outlast.store.values import WorkerSeen
from outlast.worker.base import Lease
from outlast.worker.service import Service
from tests.unit.worker.maintenance import reaper_kit
from tests.unit.worker.maintenance.reaper_kit import OWN, Scene, fail_once, orphan, seen, with_lock
from tests.unit.worker.worker_kit import heard, heard_fields

scene = reaper_kit.scene
lock = reaper_kit.lock


async def test_a_look_that_shows_nothing_is_the_only_call(scene):
    await scene.looks(1)
    scene.rows.reclaims = 0
    await scene.looks(10)
    assert scene.rows.reclaims == 0
    scene.rows.orphans = [orphan(1)]
    await scene.looks(1)
    assert (scene.rows.reclaims, len(scene.owner.reclaimed)) == (1, 1)


async def test_a_worker_that_was_not_seen_to_beat_for_its_lease_is_reaped(scene):
    scene.rows.workers = [seen(OWN), seen(2), seen(3, lease=10.0)]
    await scene.looks(60)
    assert scene.rows.reaped == [3]
    with heard() as names:
        await scene.looks(1)
    assert scene.rows.reaped == [3, 2]
    assert names == ["worker_reaped", "workers_deactivated"]
    assert scene.rows.causes == [DeathCause.SILENCE] * 2


@pytest.mark.parametrize("presence", [Presence.HELD, Presence.ABSENT])
async def test_silence_is_no_sign_where_the_store_takes_no_own_beats(scene, presence):
    """As in a database that is read-only, and answers all looks."""
    own = scene.reaper._own = Lease(LeaseTerms(), scene.clock)
    scene.clock.advance(10.0)
    scene.rows.workers = [seen(2, presence=presence, incarnation="a"), seen(OWN)]
    await scene.looks(100)
    own.trust = Trust(own.terms, scene.clock.boot())
    await scene.looks(2)
    assert scene.rows.reaped == []


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


async def test_a_copy_of_the_database_leaves_the_proof_of_a_death_to_the_original(scene, lock):
    """Staging on production's host: the copied row names production's file."""
    copied = with_lock(lock, presence=Presence.ABSENT, incarnation="production/10")
    lock.release(unlink=False)
    scene.rows.workers = [copied]
    await scene.reaper.run_once()
    assert scene.rows.reaped == [2]
    assert lock.path.exists()
    here = f"{scene.rows.incarnation}/10"
    scene.rows.workers = [msgspec.structs.replace(copied, incarnation=here)]
    await scene.reaper.run_once()
    assert scene.rows.causes == [DeathCause.LOCK_FILE] * 2
    assert not lock.path.exists()


async def test_a_worker_whose_tether_has_told_of_its_death_is_reaped_at_the_first_look(scene, lock):
    """From another host, which cannot see its lock file. One that can believes that."""
    scene.rows.workers = [
        seen(2, boot_id="of another host", told_gone=True),
        seen(3, told_gone=False, presence=Presence.ABSENT, incarnation="a"),
        msgspec.structs.replace(with_lock(lock, told_gone=True), worker_id=4),
    ]
    await scene.reaper.run_once()
    assert (scene.rows.reaped, scene.rows.causes) == ([2], [DeathCause.TETHER])


async def test_the_lock_file_of_a_silent_worker_is_left_alone(scene, lock):
    scene.rows.workers = [with_lock(lock)]
    await scene.looks(100)
    assert scene.rows.causes[-1] is DeathCause.SILENCE
    assert scene.rows.begun == [None] * len(scene.rows.causes)
    assert lock.path.exists()


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
    await fail_once(scene.reaper, scene.rows, "fails")
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
    await fail_once(scene.reaper, scene.rows, "fails")
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


async def test_another_incarnation_of_the_database_is_observed_again(scene):
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


@pytest.mark.parametrize("cause", [None, *DeathCause], ids=str)
async def test_events_name_the_cause_of_death(scene, cause):
    scene.rows.orphans = [orphan(7, cause=cause)]
    await scene.reaper.run_once()
    (end,) = scene.rows.decided
    assert end.message.startswith("worker w2 is gone: it")
    assert end.crash.message == end.message
    assert cause is None or cause.sentence in end.message


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


EVIDENCE = ("os.open", "os.lstat", "os.fstat", "os.pread", "os.unlink", "fcntl.flock")


@pytest.mark.parametrize("call", EVIDENCE)
@pytest.mark.parametrize("why", [errno.EIO, errno.EACCES, errno.EMFILE, errno.ENOLCK])
async def test_a_lock_file_that_cannot_be_looked_at_delays_no_other_proof(scene, lock, call, why):
    """The lease, presence and the tether's word need no file."""
    lock.release(unlink=False)
    with mock.patch(call, side_effect=OSError(why, "not now")):
        scene.rows.workers = [
            with_lock(lock),
            msgspec.structs.replace(with_lock(lock, told_gone=True), worker_id=3),
        ]
        await scene.looks(62)
    assert sorted(scene.rows.reaped) == [2, 3]
    scene.rows.workers = [with_lock(lock)]
    await scene.looks(1)
    assert scene.rows.causes[-1] is DeathCause.LOCK_FILE
