"""Orphans: the jobs of reaped workers go back to the queue, are charged, and are told of."""

from __future__ import annotations

import msgspec
import pytest

from outlast.errors import StoreUnavailable
from outlast.model.crash import Charge, Progress
from outlast.model.job import Policy, State
from outlast.model.lease import DeathCause
from outlast.store.protocol import ORPHANS_MAX
from tests.unit.worker.maintenance import reaper_kit
from tests.unit.worker.maintenance.reaper_kit import orphan, seen, with_lock
from tests.unit.worker.worker_kit import heard, heard_fields

scene = reaper_kit.scene
lock = reaper_kit.lock


async def test_jobs_of_reaped_workers_are_reclaimed_in_the_same_look(scene, lock):
    scene.rows.workers = [with_lock(lock)]
    await scene.looks(1)
    lock.release(unlink=False)
    scene.rows.reclaims = 0
    await scene.looks(1)
    assert (scene.rows.reaped, scene.rows.reclaims) == ([2], 1)


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
    assert "w2 is gone: it sent no heartbeat for its whole lease" in end.message
    assert len(scene.owner.reclaimed) == 1
    assert {each.outcome for each in scene.counters.take()} == {"lost_worker", "silence"}


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


@pytest.mark.parametrize("cause", [*DeathCause, None])
async def test_only_a_proven_death_is_charged_to_the_job_that_was_alone_in_its_worker(scene, cause):
    scene.rows.orphans = [orphan(1, cause=cause, solo=2, losses=2)]
    await scene.looks(1)
    (end,) = scene.rows.decided
    proven = cause not in {DeathCause.PRESENCE, DeathCause.SILENCE, None}  # it may be a network
    assert (end.failures, end.losses) == ((1, 2) if proven else (0, 3))
