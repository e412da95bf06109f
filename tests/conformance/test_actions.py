"""The record of what people do: written with the act, or not at all; bounded; read by pages."""

from __future__ import annotations

import msgspec
import pytest

from outlast.errors import BadData
from outlast.model.pause import PauseKind
from outlast.store import actions
from outlast.store.actions import ActionRow, ActionState, Bulk, BulkStep, More, Note, Overtaken
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter
from outlast.store.schedules import Deleted
from outlast.store.values import Cancelled, NewPause, Requeued
from tests.conformance.kit import Hands, ended, enqueued, job, row_of
from tests.conformance.schedules_kit import put_one
from tests.conformance.test_operator import died

NOTE = Note(actor="ada@desk", verb="cancel", target="job 17", job_id=17, reason="it hangs")
BULK = Bulk(up_to_id=100, as_of=5.0, expected=3)


async def only(store: Store) -> ActionRow:
    (row,) = await store.inspector.actions()
    return row


async def counts(store: Store) -> dict[str, int]:
    return (await only(store)).counts


async def test_an_act_is_recorded_with_what_came_of_it(store: Store, hands: Hands) -> None:
    ids = await enqueued(store, job(), job())
    await hands.claim_one()
    before = await store.inspector.now()
    await store.cancel(ids, record=NOTE)
    row = await only(store)
    assert before <= row.at <= row.moved_at
    expected = {name: getattr(NOTE, name) for name in ("actor", "verb", "target", "reason")}
    assert {name: getattr(row, name) for name in expected} == expected
    assert (row.job_id, row.state) == (17, ActionState.DONE)
    assert row.counts == {"cancelled": 1, "requested": 1}


async def test_what_programs_do_is_not_recorded(store: Store, hands: Hands) -> None:
    dead = await died(store, hands)
    await store.requeue([dead])
    await store.cancel([dead])
    await store.request_drain([hands.me.worker_id])
    await store.pause(NewPause(kind=PauseKind.ALL))
    await store.resume(PauseKind.ALL, "")
    assert await store.inspector.actions() == []


async def test_an_act_that_changes_nothing_leaves_no_record(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store)
    await hands.hand_in(ended(await hands.claim_one()))
    assert await store.cancel([job_id, job_id + 99], record=NOTE) == {job_id: Cancelled.ENDED}
    assert await store.requeue([job_id], record=NOTE) == {job_id: Requeued.COMPLETED}
    assert await store.discard([job_id], record=NOTE) == set()
    assert await store.request_drain([99], record=NOTE) == set()
    assert await store.resume(PauseKind.ALL, "", record=NOTE) is None
    assert await store.pause_schedule("unknown", paused=True, record=NOTE) is False
    assert await store.inspector.actions() == []


async def test_each_verb_counts_what_it_did(store: Store, hands: Hands) -> None:
    first, second = await died(store, hands), await died(store, hands)
    await store.requeue([first], record=NOTE)
    await store.discard([second], record=NOTE)
    await store.request_drain([hands.me.worker_id], record=NOTE)
    await store.pause(NewPause(kind=PauseKind.ALL), record=NOTE)
    await store.resume(PauseKind.ALL, "", record=NOTE)
    await put_one(store)
    await store.pause_schedule("nightly", paused=True, record=NOTE)
    await store.pause_schedule("nightly", paused=False, record=NOTE)
    assert (await store.trigger(job(key="k"), record=NOTE)).created
    assert not (await store.trigger(job(key="k"), record=NOTE)).created
    told = [row.counts for row in reversed(await store.inspector.actions())]
    words = "requeued discarded asked paused resumed paused resumed enqueued"
    assert told == [{word: 1} for word in words.split()]


async def test_an_act_whose_record_cannot_be_written_is_not_done(
    store: Store, hands: Hands
) -> None:
    dead = await died(store, hands)
    bad = msgspec.structs.replace(NOTE, job_id=2**63)  # no store holds it
    action_id = await store.note(msgspec.structs.replace(NOTE, bulk=BULK))
    worse = BulkStep(action_id=action_id, before_id=101, then=2**63)
    before = await row_of(store, dead)
    for record in (bad, worse):
        with pytest.raises(BadData):
            await store.requeue([dead], record=record)
        with pytest.raises(BadData):
            await store.discard([dead], record=record)
        with pytest.raises(BadData):
            await store.pause(NewPause(kind=PauseKind.ALL), record=record)
        with pytest.raises(BadData):
            await store.trigger(job(), record=record)
    assert await row_of(store, dead) == before
    assert await store.inspector.pauses() == []
    assert len(await store.inspector.jobs(JobFilter())) == 1
    assert await counts(store) == {}


async def test_a_schedule_is_deleted_with_its_record_or_not_at_all(store: Store) -> None:
    await put_one(store)
    with pytest.raises(BadData):
        await store.delete_schedule("nightly", record=msgspec.structs.replace(NOTE, job_id=2**63))
    assert await store.inspector.schedule("nightly") is not None
    assert await store.delete_schedule("nightly", record=NOTE) is Deleted.DELETED
    assert await store.delete_schedule("nightly", record=NOTE) is Deleted.UNKNOWN
    assert [row.counts for row in await store.inspector.actions()] == [{"deleted": 1}]


async def test_an_act_for_one_attempt_spares_a_newer_one(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store)
    first = await hands.claim_one()
    await hands.vanish()
    assert await store.cancel([job_id], tokens={job_id: 0}, record=NOTE) == {}
    later = first.token + 1
    assert await store.cancel([job_id], tokens={job_id: later}, record=NOTE) == {}
    assert await store.inspector.actions() == []
    assert not (await row_of(store, job_id)).cancel_requested
    asked = await store.cancel([job_id], tokens={job_id: first.token}, record=NOTE)
    assert asked == {job_id: Cancelled.REQUESTED}
    assert await counts(store) == {"requested": 1}


async def test_a_job_that_never_began_has_the_token_0(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store)
    assert await store.cancel([job_id], tokens={job_id: 5}) == {}
    assert await store.cancel([job_id], tokens={job_id: 0}) == {job_id: Cancelled.CANCELLED}


async def test_a_requeue_and_a_discard_keep_to_the_token_too(store: Store, hands: Hands) -> None:
    dead = await died(store, hands)
    token = (await row_of(store, dead)).token or 0
    assert await store.requeue([dead], tokens={dead: token - 1}) == {}
    assert await store.discard([dead], tokens={dead: token - 1}) == set()
    assert await store.requeue([dead], tokens={dead: token}) == {dead: Requeued.REQUEUED}


async def test_other_jobs_are_not_held_to_a_token(store: Store, hands: Hands) -> None:
    one, two = await enqueued(store, job(), job())
    assert await store.cancel([one, two], tokens={one: 99}) == {two: Cancelled.CANCELLED}


async def test_a_step_is_taken_once(store: Store, other_store: Store, hands: Hands) -> None:
    ids = [await died(store, hands) for _ in range(2)]
    action_id = await store.note(msgspec.structs.replace(NOTE, bulk=BULK))
    step = BulkStep(action_id=action_id, before_id=101, then=50)
    assert await store.requeue([ids[0]], record=step) == {ids[0]: Requeued.REQUEUED}
    with pytest.raises(Overtaken):
        await other_store.requeue([ids[1]], record=step)
    assert (await row_of(store, ids[1])).state == "dead"
    row = await only(store)
    assert (row.counts, row.before_id, row.state) == ({"requeued": 1}, 50, ActionState.RUNNING)
    assert await store.inspector.running_actions() == [row]
    await other_store.take_step(BulkStep(action_id=action_id, before_id=50, then=None))
    assert (await only(store)).state is ActionState.DONE
    assert await store.inspector.running_actions() == []


async def test_no_step_is_taken_of_what_was_stopped(store: Store, hands: Hands) -> None:
    dead = await died(store, hands)
    action_id = await store.note(msgspec.structs.replace(NOTE, bulk=BULK))
    assert await store.stop_action(action_id)
    assert not await store.stop_action(action_id)
    with pytest.raises(Overtaken):
        await store.discard([dead], record=BulkStep(action_id=action_id, before_id=101, then=None))
    assert (await row_of(store, dead)).state == "dead"
    assert (await only(store)).state is ActionState.STOPPED
    await store.discard([dead], record=More(action_id=action_id))  # of a step that was taken
    assert await counts(store) == {"discarded": 1}


async def test_an_action_that_is_gone_has_no_steps(store: Store) -> None:
    with pytest.raises(Overtaken):
        await store.take_step(BulkStep(action_id=7, before_id=1, then=None))


async def test_what_is_noted_is_bounded_and_a_text_in_every_store(store: Store) -> None:
    odd = "a\0\ud800"
    await store.note(Note(actor=odd, verb=odd, target="x" * 10_000, reason=odd, filter="{"))
    row = await only(store)
    assert (row.actor, row.verb, row.reason, row.filter) == (
        "a\ufffd?",
        "a\ufffd?",
        "a\ufffd?",
        "{",
    )
    assert len(row.target) == actions.TEXT_MAX


async def test_the_newest_are_listed_first_and_by_job(store: Store) -> None:
    ids = [await store.note(msgspec.structs.replace(NOTE, job_id=n % 2)) for n in range(5)]
    assert ids == sorted(set(ids))
    shown = await store.inspector.actions(2)
    assert [row.id for row in shown] == ids[:-3:-1]
    shown = await store.inspector.actions(9, before_id=ids[3])
    assert [row.id for row in shown] == ids[2::-1]
    shown = await store.inspector.actions(9, job_id=1)
    assert [row.id for row in shown] == [ids[3], ids[1]]


async def test_of_each_actor_the_newest_are_kept_and_what_is_under_way(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.store.acts.ACTIONS_KEPT", 3)
    running = await store.note(msgspec.structs.replace(NOTE, bulk=BULK))
    others = await store.note(msgspec.structs.replace(NOTE, actor="operator"))
    ids = [await store.note(NOTE) for _ in range(5)]
    shown = await store.inspector.actions()
    assert [row.id for row in shown] == [*reversed(ids[-3:]), others, running]


async def test_a_pruner_deletes_old_ones_except_what_is_under_way(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await store.note(msgspec.structs.replace(NOTE, bulk=BULK))
    kept = await store.note(NOTE)
    await store.prune(jobs_older_than=60, workers_older_than=60)
    assert [row.id for row in await store.inspector.actions()] == [kept, running]
    for module in ("sqlite.pruning", "postgres.store"):
        monkeypatch.setattr(f"outlast.store.{module}.ACTIONS_SECONDS", -60.0)
    await store.prune(jobs_older_than=60, workers_older_than=60)
    assert [row.id for row in await store.inspector.actions()] == [running]
