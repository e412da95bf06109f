"""How long the row of an ended job is kept: a time of its own, or none at all (``keep``)."""

from __future__ import annotations

import pytest

from outlast.insight.verify import verify
from outlast.model.crash import CrashKind, Progress
from outlast.model.job import Policy, State
from outlast.model.lifecycle import OutcomeKind
from outlast.store.protocol import Store
from outlast.store.values import Answer, Cancelled, NewJob, Report, Requeued, Save
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import (
    Hands,
    crashed,
    ended,
    enqueued,
    job,
    lost_worker,
    of_whole_rounds,
    row_of,
)

HOUR = 3_600.0
PAST = 1_000_000_000.0  # seconds since 1970


def kept(seconds: float = 0.0, **fields: object) -> NewJob:
    """Return a job whose row is kept for that long after its end."""
    return job(policy=Policy(keep=seconds), **fields)


async def is_there(store: Store, job_id: int) -> bool:
    return await store.inspector.job(job_id) is not None


async def left(store: Store) -> list[int]:
    """Return the ids of all jobs, with which the attempts that are kept have to agree."""
    page = await store.inspector.history(0)
    assert page.strays == []
    assert not (await verify(store.inspector)).findings
    return [past.id for past in page.jobs]


async def prune(store: Store) -> int:
    """Delete what nothing keeps."""
    return await store.prune(jobs_older_than=HOUR, workers_older_than=HOUR)


# ----------------------------------------------------------------- for no time: keep=0


async def test_a_job_that_is_kept_for_no_time_leaves_no_row(store: Store, hands: Hands) -> None:
    gone = await enqueued(store, kept(), kept(), kept())
    (other,) = await enqueued(store)
    one, two, three, four = await hands.claim()
    assert await hands.hand_in(ended(one), ended(two, result='"a"'), ended(four)) == (
        [Answer.ACCEPTED] * 3
    )
    assert await left(store) == [gone[2], other]
    assert await hands.hand_in(ended(three, message="a note on its result")) == [Answer.ACCEPTED]
    assert await left(store) == [other]


async def test_earlier_attempts_go_with_their_job(store: Store, hands: Hands) -> None:
    await enqueued(store, kept())
    for _ in range(3):
        claimed = await hands.claim_one()
        await hands.hand_in(crashed(claimed, delay=0.0))
        assert await left(store) == [claimed.job_id]
    await hands.hand_in(ended(await hands.claim_one()))
    assert await left(store) == []


async def test_a_cancelled_job_that_is_kept_for_no_time_leaves_no_row(
    store: Store, hands: Hands
) -> None:
    queued, running, quits = await enqueued(store, kept(delay=HOUR), kept(), kept())
    asked, gives_up = await hands.claim()
    assert [asked.job_id, gives_up.job_id] == [running, quits]
    assert await store.cancel([queued, running]) == {
        queued: Cancelled.CANCELLED,
        running: Cancelled.REQUESTED,
    }
    assert await left(store) == [running, quits]
    ends = [ended(asked, OutcomeKind.RELEASED), ended(gives_up, OutcomeKind.CANCELLED)]
    assert await hands.hand_in(*ends) == [Answer.ACCEPTED] * 2
    assert await left(store) == []
    assert await store.cancel([queued]) == {}
    assert await store.requeue([queued]) == {}


async def test_a_cancel_that_meets_a_reclaim_leaves_no_row(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, kept())
    await hands.claim_one()
    await store.cancel([job_id])
    await hands.vanish()
    (applied,) = await store.reclaim(lost_worker)
    assert applied.state is State.CANCELLED
    assert await left(store) == []


@of_whole_rounds
async def test_an_expired_job_that_is_kept_for_no_time_leaves_no_row(
    store: Store, hands: Hands
) -> None:
    swept = kept(expires_at=PAST)
    _, _, other = await enqueued(store, swept, swept, job(expires_at=PAST))
    assert (await hands.exchange(limit=5)).expired == 3
    assert await left(store) == [other]


async def test_a_dead_job_is_kept_all_the_same(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, kept())
    await hands.hand_in(ended(await hands.claim_one(), OutcomeKind.DEAD, message="no use"))
    row = await row_of(store, job_id)
    assert row.state is State.DEAD
    assert await prune(store) == 0
    assert await store.requeue([job_id]) == {job_id: Requeued.REQUEUED}
    await hands.hand_in(ended(await hands.claim_one()))
    assert await left(store) == []


async def test_a_late_worker_that_finds_no_row_is_refused(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, kept())
    stale = await hands.claim_one()
    await hands.vanish()
    await store.reclaim(lost_worker)
    other = await Hands.on(store, "other")
    current = await other.claim_one()
    assert await other.hand_in(ended(current)) == [Answer.ACCEPTED]
    for late in (ended(stale), ended(stale, OutcomeKind.RELEASED), crashed(stale)):
        assert await hands.hand_in(late) == [Answer.REFUSED]
    assert [each.token for each in await store.inspector.refusals(job_id)] == [stale.token] * 3
    assert await left(store) == []


async def test_an_end_that_is_sent_again_is_refused_and_changes_nothing(
    store: Store, hands: Hands
) -> None:
    """That it was written cannot be told from a job that another worker has run to its end."""
    await enqueued(store, kept())
    end = ended(await hands.claim_one())
    (job_id,) = await enqueued(store)
    assert await hands.hand_in(end) == [Answer.ACCEPTED]
    assert await hands.hand_in(end) == [Answer.REFUSED]
    assert await left(store) == [job_id]


async def test_a_check_of_an_own_completion_finds_that_nothing_is_left_to_do(
    store: Store, hands: Hands
) -> None:
    """The row has gone with the commit of the task's own transaction (complete_in)."""
    await enqueued(store, kept())
    claimed = await hands.claim_one()
    assert await hands.hand_in(ended(claimed)) == [Answer.ACCEPTED]  # as that commit does
    assert await store.superseded([(claimed.job_id, claimed.token)]) == []
    check = crashed(claimed, CrashKind.COMPLETION_NOT_COMMITTED)
    assert await hands.hand_in(check) == [Answer.ALREADY]
    assert await store.inspector.refusals(claimed.job_id) == []


async def test_the_key_of_a_job_that_is_gone_is_free(store: Store, hands: Hands) -> None:
    (first,) = await enqueued(store, kept(key="k"))
    assert await enqueued(store, kept(key="k")) == [first]
    await hands.hand_in(ended(await hands.claim_one()))
    (second,) = await enqueued(store, kept(key="k"))
    assert second != first
    assert await left(store) == [second]


async def test_saves_and_reports_about_a_job_that_is_gone_are_refused(
    store: Store, hands: Hands
) -> None:
    await enqueued(store, kept())
    claimed = await hands.claim_one()
    await hands.hand_in(ended(claimed))
    save = Save(job_id=claimed.job_id, token=claimed.token, number=1, value="1")
    assert await store.checkpoint([save]) == [Answer.REFUSED]
    report = Report(job_id=claimed.job_id, token=claimed.token, progress=Progress(fraction=0.5))
    assert await store.progress([report]) == [Answer.REFUSED]


# ------------------------------------------------------------------ for a time of its own


async def test_a_job_is_kept_for_its_own_time(store_url: str, store: Store, hands: Hands) -> None:
    longer, shorter, usual = await enqueued(store, kept(100 * HOUR), kept(HOUR), job())
    await hands.hand_in(*map(ended, await hands.claim()))
    (cancelled,) = await enqueued(store, kept(HOUR))
    await store.cancel([cancelled])
    assert await prune(store) == 0
    async with raw(store_url) as file:  # as if the first three had ended long ago
        for name, seconds in {longer: 3, shorter: 3, usual: 3, cancelled: 0.5}.items():
            assert await file.run(_set_back(name, seconds * HOUR))
    assert await prune(store) == 2
    assert await left(store) == [longer, cancelled]
    async with raw(store_url) as file:
        for name in (longer, cancelled):
            assert await file.run(_set_back(name, 100 * HOUR))
    assert await prune(store) == 2
    assert await left(store) == []


def _set_back(job_id: int, seconds: float) -> str:
    columns = ", ".join(
        f"{name} = {name} - {seconds}"
        for name in ("enqueued_at", "run_at", "started_at", "ended_at")
    )
    return f"UPDATE outlast_jobs SET {columns} WHERE id = {job_id}"


@pytest.mark.parametrize("limit", [1, 3])
async def test_what_is_deleted_at_once_is_bounded(
    store_url: str, store: Store, hands: Hands, limit: int
) -> None:
    jobs = await enqueued(store, job(), kept(HOUR), kept(HOUR), job())
    await hands.hand_in(*map(ended, await hands.claim()))
    async with raw(store_url) as file:
        for job_id in jobs:
            assert await file.run(_set_back(job_id, 2 * HOUR))
    gone = 0
    while count := await store.prune(jobs_older_than=HOUR, workers_older_than=HOUR, limit=limit):
        assert count <= limit
        gone += count
    assert (gone, await left(store)) == (4, [])


async def test_a_requeued_job_begins_its_time_at_its_next_end(
    store_url: str, store: Store, hands: Hands
) -> None:
    (job_id,) = await enqueued(store, kept(HOUR))
    await store.cancel([job_id])
    async with raw(store_url) as file:
        assert await file.run(_set_back(job_id, 2 * HOUR))
    await store.requeue([job_id])
    assert await prune(store) == 0
    await hands.hand_in(ended(await hands.claim_one(), OutcomeKind.DEAD))
    assert await prune(store) == 0
    assert await is_there(store, job_id)


async def test_jobs_alike_but_for_their_time_are_stored_each_with_its_own(
    store: Store, hands: Hands
) -> None:
    jobs = [job(), kept(), job(), kept(HOUR), kept(key="k")]
    ids = await enqueued(store, *jobs)
    await hands.hand_in(*map(ended, await hands.claim()))
    assert await left(store) == [ids[0], ids[2], ids[3]]


async def test_jobs_with_a_time_of_their_own_are_counted_among_those_that_ended(
    store: Store, hands: Hands
) -> None:
    await enqueued(store, job(), kept(HOUR), kept(2 * HOUR))
    await hands.hand_in(*map(ended, await hands.claim()))
    (row,) = (await store.inspector.statistics()).ended
    assert (row.number, row.minute, row.hour) == (3, 3, 3)
