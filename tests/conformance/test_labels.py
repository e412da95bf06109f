"""Labels of jobs: found by their names, gone with their jobs, and no cost for others."""

from __future__ import annotations

import pytest

from outlast.model.job import Policy, State
from outlast.model.lifecycle import OutcomeKind
from outlast.store.listing import LABELS_APART, find
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter, Part
from outlast.store.values import NewJob
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import TASK, Hands, crashed, ended, enqueued, job, row_of

HOUR = 3_600.0


def labelled(*labels: str, keep: float | None = None, **fields: object) -> NewJob:
    """Return a job with these labels."""
    return job(policy=Policy(labels=labels, keep=keep), **fields)


async def with_label(store: Store, label: str, **filters: object) -> list[int]:
    """Return the jobs of a list, newest first."""
    which = JobFilter(label=label, **filters)  # type: ignore[arg-type]
    return (await find(store.inspector.job_ids, which)).ids


async def is_noted(url: str) -> bool:
    """Whether any label is stored beside the jobs."""
    async with raw(url) as file:
        return not await file.run(NOTHING)


NOTHING = """INSERT INTO outlast_labels (job_id, label)
             SELECT job_id, label FROM outlast_labels LIMIT 1"""  # fails where there is one


async def test_jobs_are_found_by_their_labels_newest_first(store: Store, hands: Hands) -> None:
    first, both, plain, last = await enqueued(
        store, labelled("import"), labelled("import", "acme"), job(), labelled("acme", queue="q")
    )
    assert await with_label(store, "import") == [both, first]
    assert await with_label(store, "acme") == [last, both]
    assert await with_label(store, "acme", queue="q") == [last]
    assert await with_label(store, "acme", before_id=last) == [both]
    assert await with_label(store, "acme", limit=1) == [last]
    assert await with_label(store, "none") == []
    await hands.hand_in(ended(await hands.claim_one()))
    assert await with_label(store, "import", state=State.COMPLETED) == [first]
    assert await with_label(store, "import", state=State.QUEUED) == [both]
    row = await row_of(store, both)
    assert row.policy.labels == ("import", "acme")
    assert (await store.inspector.job(plain)) is not None


async def test_a_label_is_looked_for_among_a_part_a_group_and_the_jobs_of_a_worker(
    store: Store, hands: Hands
) -> None:
    """A bulk action discards what a list finds: a filter that is dropped would lose jobs."""
    await enqueued(store, *[labelled("a", task=task) for task in (TASK, "app.other")])
    died = await hands.claim(tasks=[TASK, "app.other"])
    await hands.hand_in(*[ended(each, OutcomeKind.DEAD) for each in died])
    groups = (await store.inspector.dead_groups(JobFilter())).groups
    assert len(groups) == 2
    for group in groups:
        among = {"state": State.DEAD, "fingerprint": group.fingerprint}
        assert await with_label(store, "a", **among) == [group.newest]
    runs, line, timed = await enqueued(
        store, labelled("a"), labelled("a"), labelled("a", delay=HOUR)
    )
    await hands.claim(1)
    other = hands.me.worker_id + 1
    assert await with_label(store, "a", state=State.RUNNING, worker_id=other) == []
    mine = {"state": State.RUNNING, "worker_id": hands.me.worker_id}
    assert await with_label(store, "a", **mine) == [runs]
    assert await with_label(store, "a", state=State.QUEUED, part=Part.LINE) == [line]
    assert await with_label(store, "a", state=State.QUEUED, part=Part.TIMED) == [timed]
    assert await with_label(store, "a", state=State.QUEUED, part=Part.SUSPECTS) == []


async def test_a_worker_sees_the_labels_of_what_it_claims(store: Store, hands: Hands) -> None:
    await enqueued(store, labelled("a", "b"))
    assert (await hands.claim_one()).policy.labels == ("a", "b")


async def test_many_are_found_in_looks_that_are_bounded(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.store.listing.LOOK_ROWS", 3 * LABELS_APART)
    ids = await enqueued(store, *[labelled("a", queue=f"q{n % 2}") for n in range(10)])
    seen = await store.inspector.job_ids(JobFilter(label="a", queue="none"))
    assert (seen.ids, seen.before) == ([], ids[-3])
    assert await with_label(store, "a", queue="q1") == ids[1::2][::-1]


async def test_jobs_with_keys_and_labels_are_stored_once(store: Store) -> None:
    (alone,) = await enqueued(store, labelled("a", key="k"))
    again = await store.enqueue([labelled("b", key="k")])
    assert [(one.job_id, one.created) for one in again] == [(alone, False)]
    ids = await enqueued(
        store, labelled("a", key="k"), labelled("b", key="l"), job(key="m"), labelled("b")
    )
    assert ids[0] == alone
    assert await with_label(store, "a") == [alone]
    assert await with_label(store, "b") == [ids[3], ids[1]]


async def test_labels_go_with_their_jobs(store_url: str, store: Store, hands: Hands) -> None:
    jobs = [labelled("a"), labelled("a", keep=0.0), labelled("a", keep=HOUR), labelled("a")]
    done, at_once, own, dead = await enqueued(store, *jobs)
    claimed = await hands.claim()
    ends = [*map(ended, claimed[:3]), ended(claimed[3], OutcomeKind.DEAD, message="no use")]
    await hands.hand_in(*ends)
    assert await with_label(store, "a") == [dead, own, done]
    assert await is_noted(store_url)
    async with raw(store_url) as file:
        assert await file.run("UPDATE outlast_jobs SET ended_at = ended_at - 7200")
    assert await store.prune(jobs_older_than=HOUR, workers_older_than=HOUR) == 2
    assert await with_label(store, "a") == [dead]
    assert await store.discard([dead]) == {dead}
    (queued,) = await enqueued(store, labelled("a", keep=0.0))
    await store.cancel([queued])
    assert not await is_noted(store_url)
    assert at_once not in await with_label(store, "a")


async def test_a_discard_of_a_job_that_lives_leaves_its_labels(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, labelled("a"))
    await hands.hand_in(crashed(await hands.claim_one()))
    assert await store.discard([job_id]) == set()
    assert await with_label(store, "a") == [job_id]


async def test_jobs_without_labels_write_nothing_beside_their_rows(
    store_url: str, store: Store, hands: Hands
) -> None:
    """Shown by a table that no statement could write, or delete from. On PostgreSQL several jobs
    with keys go by the statement that also stores labels."""
    async with raw(store_url) as file:
        assert await file.run("ALTER TABLE outlast_labels RENAME TO away")
    try:
        await enqueued(store, job())
        await enqueued(store, *[job() for _ in range(3)], job(queue="q"), job(delay=0.001))
        await enqueued(store, job(key="k"))
        claimed = await hands.claim(5)
        await hands.hand_in(*map(ended, claimed))
        await store.cancel([claimed[0].job_id, *await enqueued(store, job())])
    finally:
        async with raw(store_url) as file:
            assert await file.run("ALTER TABLE away RENAME TO outlast_labels")
