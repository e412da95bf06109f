"""What operators do to jobs: cancel, requeue, discard; and pruning."""

from __future__ import annotations

from outlast.model.job import Policy, State
from outlast.model.lifecycle import OutcomeKind
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter, WorkerStatus
from outlast.store.values import Cancelled, Requeued, Save
from tests.conformance.kit import Hands, crashed, ended, enqueued, job, row_of

SOON = -60.0  # "older than" a moment in the future: everything that has ended


async def died(store: Store, hands: Hands, **fields: object) -> int:
    """A dead job."""
    (job_id,) = await enqueued(store, job(policy=Policy(retries=0), **fields))
    await hands.hand_in(crashed(await hands.claim_one()))
    return job_id


async def test_a_queued_job_is_cancelled_at_once(store: Store, hands: Hands) -> None:
    now, later = await enqueued(store, job(), job(delay=100.0))
    assert await store.cancel([now, later]) == dict.fromkeys([now, later], Cancelled.CANCELLED)
    assert await hands.claim() == []
    for job_id in (now, later):
        row = await row_of(store, job_id)
        assert (row.state, row.waiting) == (State.CANCELLED, False)
        assert row.ended_at is not None


async def test_cancelling_a_running_job_asks_its_worker(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store)
    claimed = await hands.claim_one()
    assert await store.cancel([job_id]) == {job_id: Cancelled.REQUESTED}
    assert await store.cancel([job_id]) == {job_id: Cancelled.REQUESTED}
    row = await row_of(store, job_id)
    assert (row.state, row.cancel_requested) == (State.RUNNING, True)
    await hands.hand_in(ended(claimed, OutcomeKind.CANCELLED))
    assert (await row_of(store, job_id)).state is State.CANCELLED


async def test_an_ended_job_cannot_be_cancelled_and_unknown_ids_are_left_out(
    store: Store, hands: Hands
) -> None:
    (job_id,) = await enqueued(store)
    await hands.hand_in(ended(await hands.claim_one()))
    assert await store.cancel([job_id, job_id + 999]) == {job_id: Cancelled.ENDED}
    assert (await row_of(store, job_id)).state is State.COMPLETED
    assert await store.cancel([]) == {}


async def test_a_dead_job_is_revived_with_fresh_budgets_and_its_checkpoint(
    store: Store, hands: Hands
) -> None:
    (job_id,) = await enqueued(store, job(policy=Policy(retries=0)))
    claimed = await hands.claim_one()
    await store.checkpoint([Save(job_id, claimed.token, 1, "5")])
    await hands.hand_in(crashed(claimed))
    assert await store.requeue([job_id]) == {job_id: Requeued.REQUEUED}
    row = await row_of(store, job_id)
    assert (row.state, row.failures, row.losses, row.ended_at) == (State.QUEUED, 0, 0, None)
    again = await hands.claim_one()
    assert (again.job_id, again.checkpoint, again.number) == (job_id, "5", 2)
    assert again.token > claimed.token
    assert len(await store.inspector.attempts(job_id)) == 1


async def test_a_requeue_from_scratch_forgets_the_checkpoint(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, job(policy=Policy(retries=0)))
    claimed = await hands.claim_one()
    await store.checkpoint([Save(job_id, claimed.token, 1, "5")])
    await hands.hand_in(crashed(claimed))
    await store.requeue([job_id], from_scratch=True)
    assert (await hands.claim_one()).checkpoint is None
    assert (await row_of(store, job_id)).checkpoint_at is None


async def test_a_revived_job_does_not_remember_its_cancel_request(
    store: Store, hands: Hands
) -> None:
    (job_id,) = await enqueued(store)
    await store.cancel([job_id])
    assert await store.requeue([job_id]) == {job_id: Requeued.REQUEUED}
    claimed = await hands.claim_one()
    await hands.hand_in(ended(claimed, OutcomeKind.RELEASED))
    assert (await row_of(store, job_id)).state is State.QUEUED


async def test_only_dead_and_cancelled_jobs_can_be_requeued(store: Store, hands: Hands) -> None:
    done, running, queued = await enqueued(store, job(), job(), job())
    await hands.hand_in(ended(await hands.claim_one()))
    await hands.claim_one()
    assert await store.requeue([done, running, queued, queued + 999]) == {
        done: Requeued.COMPLETED,
        running: Requeued.NOT_ENDED,
        queued: Requeued.NOT_ENDED,
    }


async def test_a_job_whose_key_was_taken_meanwhile_stays_dead(store: Store, hands: Hands) -> None:
    dead = await died(store, hands, key="k")
    (holder,) = await enqueued(store, job(key="k"))
    assert await store.requeue([dead]) == {dead: Requeued.KEY_TAKEN}
    assert (await row_of(store, dead)).state is State.DEAD
    assert (await row_of(store, holder)).state is State.QUEUED


async def test_a_requeued_job_goes_to_the_end_of_the_line(store: Store, hands: Hands) -> None:
    dead = await died(store, hands)
    (other,) = await enqueued(store)
    await store.requeue([dead])
    assert [one.job_id for one in await hands.claim()] == [other, dead]


async def test_discard_deletes_dead_jobs_and_their_attempts_only(
    store: Store, hands: Hands
) -> None:
    dead = await died(store, hands)
    (queued,) = await enqueued(store)
    assert await store.discard([dead, queued, queued + 999]) == {dead}
    assert await store.inspector.job(dead) is None
    assert await store.inspector.attempts(dead) == []
    assert (await row_of(store, queued)).state is State.QUEUED
    assert await store.discard([]) == set()


async def test_ids_are_not_given_again_after_a_delete(store: Store, hands: Hands) -> None:
    dead = await died(store, hands)
    await store.discard([dead])
    (next_id,) = await enqueued(store)
    assert next_id > dead


async def test_prune_deletes_old_ended_jobs_but_no_dead_ones(store: Store, hands: Hands) -> None:
    dead = await died(store, hands)
    done, cancelled, queued = await enqueued(store, job(), job(), job())
    claimed = await hands.claim_one()
    assert claimed.job_id == done
    await hands.hand_in(ended(claimed))
    await store.cancel([cancelled])
    assert await store.prune(jobs_older_than=3_600.0, workers_older_than=3_600.0) == 0
    assert await store.prune(jobs_older_than=SOON, workers_older_than=3_600.0) == 2
    kept = {row.id for row in await store.inspector.jobs(JobFilter())}
    assert kept == {dead, queued}


async def test_prune_deletes_old_dead_jobs_where_it_is_asked_for(
    store: Store, hands: Hands
) -> None:
    dead, revived = await died(store, hands), await died(store, hands)
    await store.requeue([revived])
    (done,) = await enqueued(store)

    async def prune(dead: float, limit: int = 10) -> int:
        return await store.prune(
            jobs_older_than=3_600.0, workers_older_than=3_600.0, dead_older_than=dead, limit=limit
        )

    assert [await prune(3_600.0), await prune(SOON, 0), await prune(SOON)] == [0, 0, 1]
    assert {row.id for row in await store.inspector.jobs(JobFilter())} == {revived, done}
    assert await store.inspector.attempts(dead) == []
    assert await store.inspector.attempts(revived)


async def test_prune_works_in_bounded_batches(store: Store, hands: Hands) -> None:
    await enqueued(store, *[job() for _ in range(7)])
    await hands.hand_in(*map(ended, await hands.claim()))
    counts = [
        await store.prune(jobs_older_than=SOON, workers_older_than=3_600.0, limit=3)
        for _ in range(4)
    ]
    assert counts == [3, 3, 1, 0]


async def test_prune_deletes_gone_workers_but_not_those_with_orphans(
    store: Store, hands: Hands
) -> None:
    await enqueued(store)
    stopped = await Hands.on(store, "stopped")
    await store.set_status(stopped.me, WorkerStatus.STOPPED)
    holding = await Hands.on(store, "holding")
    await holding.claim_one()
    await holding.vanish()
    assert await store.prune(jobs_older_than=SOON, workers_older_than=SOON) == 1
    names = {row.name for row in await store.inspector.workers()}
    assert names == {"w1", "holding"}
