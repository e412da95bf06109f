"""Jobs are stored in order, once per key, and run when due."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import outlast
from outlast.errors import BadData, KeyInUse
from outlast.model.job import Policy, State
from outlast.store.protocol import ENQUEUE_MAX, Store
from outlast.store.rows import JobFilter
from outlast.store.values import NewJob
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import TASK, Hands, ended, enqueued, eventually, job, row_of
from tests.conformance.limits_kit import limited, need


async def test_a_new_job_has_every_given_field(store: Store) -> None:
    policy = Policy(retries=7, timeout=12.5, stall_timeout=3.0)
    (job_id,) = await enqueued(
        store,
        job(queue="q", priority=-3, key="k", tenant="acme", args='{"a":"\\u0000"}', policy=policy),
    )
    row = await row_of(store, job_id)
    assert (row.task, row.queue, row.priority, row.key, row.tenant) == (TASK, "q", -3, "k", "acme")
    assert (row.state, row.waiting, row.attempt_count) == (State.QUEUED, False, 0)
    assert (row.failures, row.losses, row.token) == (0, 0, None)
    assert (row.policy, row.args) == (policy, '{"a":"\\u0000"}')
    assert row.run_at == pytest.approx(row.enqueued_at, abs=0.01)


async def test_an_unfinished_key_names_the_same_job(store: Store) -> None:
    (first,) = await store.enqueue([job(key="repo:42")])
    again, other = await store.enqueue([job(key="repo:42"), job(key="repo:43")])
    assert first.created
    assert (again.job_id, again.created) == (first.job_id, False)
    assert other.created
    assert other.job_id != first.job_id


async def test_a_key_twice_in_one_batch_is_one_job(store: Store) -> None:
    first, second, third = await store.enqueue([job(key="k"), job(), job(key="k")])
    assert (first.created, second.created, third.created) == (True, True, False)
    assert third.job_id == first.job_id
    assert len(await store.inspector.jobs(JobFilter())) == 2


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_bad_row_stores_none_of_its_batch(store: Store, key: str | None) -> None:
    with pytest.raises(BadData):
        await store.enqueue([job(key=key), job(priority=-101), job()])
    assert await store.inspector.jobs(JobFilter()) == []


async def test_a_delayed_job_waits_and_then_runs(store: Store, hands: Hands) -> None:
    (later,) = await enqueued(store, job(delay=60.0))
    exchanged = await hands.exchange(limit=1)
    assert exchanged.claimed == []
    assert exchanged.next_due is not None
    assert 0.0 <= exchanged.next_due <= 60.0
    assert (await row_of(store, later)).waiting
    (soon,) = await enqueued(store, job(delay=0.05))
    (claimed,) = await eventually(hands.claim)
    assert claimed.job_id == soon


async def test_a_job_with_a_time_in_the_past_runs_at_once(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, job(run_at=1_000_000.0))
    row = await row_of(store, job_id)
    assert row.run_at == 1_000_000.0
    assert [one.job_id for one in await hands.claim()] == [job_id]


async def test_nothing_is_stored_for_an_empty_batch(store: Store) -> None:
    assert await store.enqueue([]) == []


async def test_jobs_of_a_batch_keep_their_own_differing_fields(
    store: Store, store_url: str
) -> None:
    policy = Policy(retries=9, timeout=5.0)
    several = [
        job(args='{"n":1}'),
        job(task="other"),
        job(queue="other"),
        job(priority=7),
        job(tenant="acme"),
        job(policy=policy),
        job(delay=1_000.0),
        job(run_at=4_000_000_000.0),
        limited(need("a")),
        limited(need("a"), aged_by=-60.0),
        limited(need("a", "k"), need("b"), tenant="acme", fair="acme"),
        job(args='{"n":2}'),
    ]
    for one in several[1:]:  # each together with a plain one, then all together
        ids = await enqueued(store, several[0], one)
        await _are_as_asked(store, ids, [several[0], one])
    await _are_as_asked(store, await enqueued(store, *several), several)
    alike = [job(), *several[-4:-1], limited(need("c"), tenant="b")]  # in one statement
    async with raw(store_url) as file:
        for jobs in (several, alike[:2], alike[3:], alike[1:3]):
            ids = await enqueued(store, *jobs)
            columns = "SELECT tenant, stream, needs, aged IS NULL FROM outlast_jobs"
            rows = await file.rows(f"{columns} WHERE id >= {ids[0]} ORDER BY id")
            told = [(one.tenant, one.stream, one.needs, one.aged_by is None) for one in jobs]
            assert [(*row[:3], bool(row[3])) for row in map(tuple, rows)] == told


async def _are_as_asked(store: Store, ids: list[int], jobs: list[NewJob]) -> None:
    assert ids == sorted(ids)
    for job_id, asked in zip(ids, jobs, strict=True):
        row = await row_of(store, job_id)
        assert (row.task, row.queue, row.args) == (asked.task, asked.queue, asked.args)
        assert (row.priority, row.tenant) == (asked.priority, asked.tenant)
        assert row.policy == asked.policy
        assert row.waiting == (asked.delay > 0 or (asked.run_at or 0) > row.enqueued_at)


async def test_arguments_with_any_text_are_stored_unchanged(store: Store) -> None:
    count = 0
    for args in (["\x1f", "a\x1fb"], ["a\x1fb"], [""], ["", ""], ["x", "", "y"]):
        ids = await enqueued(store, *[job(args=text) for text in args])
        rows = [await store.inspector.job(job_id) for job_id in ids]
        assert [row.args for row in rows if row] == args
        count += len(args)
        assert len(await store.inspector.jobs(JobFilter())) == count


@pytest.mark.parametrize("fields", [{}, {"delay": 1_000.0}, {"run_at": 1_000_000.0}], ids=str)
async def test_a_new_job_with_a_key_has_every_given_field(
    store: Store, fields: dict[str, float]
) -> None:
    policy = Policy(retries=7, timeout=12.5)
    one = job(queue="q", priority=-3, key="k", tenant="acme", args="[1]", policy=policy, **fields)
    ids = await enqueued(store, one)
    await _are_as_asked(store, ids, [one])
    row = await row_of(store, ids[0])
    assert (row.key, row.run_at) == ("k", fields.get("run_at", row.run_at))


# -- a key that another task's job has


async def test_a_key_that_another_task_has_is_an_error_and_not_its_job(store: Store) -> None:
    (first,) = await store.enqueue([job(key="k")])
    with pytest.raises(KeyInUse, match="'k' belongs to job") as raised:
        await store.enqueue([job(task="app.other", key="k")])
    assert (raised.value.key, raised.value.task) == ("k", TASK)
    assert raised.value.job_id == first.job_id
    assert len(await store.inspector.jobs(JobFilter())) == 1


async def test_a_running_job_keeps_its_key_from_other_tasks_until_it_ends(
    store: Store, hands: Hands
) -> None:
    await store.enqueue([job(key="k")])
    claimed = await hands.claim_one()
    with pytest.raises(KeyInUse):
        await store.enqueue([job(task="app.other", key="k")])
    await hands.hand_in(ended(claimed))
    (other,) = await store.enqueue([job(task="app.other", key="k")])
    assert other.created


async def test_a_batch_with_a_key_of_another_task_stores_nothing(store: Store) -> None:
    await store.enqueue([job(key="k")])
    with pytest.raises(KeyInUse):
        await store.enqueue([job(), job(key="free"), job(task="app.other", key="k"), job()])
    assert len(await store.inspector.jobs(JobFilter())) == 1


async def test_two_tasks_cannot_share_a_key_within_one_batch(store: Store) -> None:
    with pytest.raises(KeyInUse, match="two tasks") as raised:
        await store.enqueue([job(key="k"), job(), job(task="app.other", key="k")])
    assert raised.value.job_id is None
    assert await store.inspector.jobs(JobFilter()) == []


async def test_a_key_of_an_alias_is_of_the_same_task(store: Store) -> None:
    (first,) = await store.enqueue([job(task="app.old", key="k")])
    renamed = job(task="app.new", aliases=("app.older", "app.old"), key="k")
    (again,) = await store.enqueue([renamed])
    assert (again.job_id, again.created) == (first.job_id, False)


@pytest.mark.parametrize("more", [0, 1])
async def test_differing_arguments_under_a_key_are_reported(store: Store, more: int) -> None:
    args = '{"to":"ann \u00e9 \\u0000"}'
    (first,) = await store.enqueue([job(key="k", args=args)])
    others = [job() for _ in range(more)]
    same, *_ = await store.enqueue([job(key="k", args=args), *others])
    other, *_ = await store.enqueue([job(key="k", args='{"to":"bob"}'), *others])
    assert first.same_args
    assert (same.job_id, same.created, same.same_args) == (first.job_id, False, True)
    assert (other.job_id, other.created, other.same_args) == (first.job_id, False, False)


async def test_racing_tasks_share_no_key(store: Store, other_store: Store) -> None:
    """In each round one task gets the key, and the other gets an error, in any interleaving."""
    for n in range(20):
        answers = await asyncio.gather(
            store.enqueue([job(key=f"k{n}"), job()]),
            other_store.enqueue([job(task="app.other", key=f"k{n}"), job()]),
            return_exceptions=True,
        )
        assert [isinstance(one, KeyInUse) for one in answers].count(True) == 1
    assert len(await store.inspector.jobs(JobFilter(limit=1_000))) == 40


@pytest.mark.parametrize("labels", [(), ("a",)], ids=["without labels", "with labels"])
async def test_each_of_a_batch_with_keys_gets_its_own_id(
    store: Store, labels: tuple[str, ...]
) -> None:
    """Some of its keys are taken, and keys do not rise as the jobs do."""
    policy = Policy(labels=labels)
    (taken,) = await store.enqueue([job(key="m", args='"taken"')])
    keys = ["z", None, "m", "a", None, "b", None]
    batch = [job(key=key, args=f'"{n}"', policy=policy) for n, key in enumerate(keys)]
    stored = await store.enqueue(batch)
    assert [one.created for one in stored] == [key != "m" for key in keys]
    assert stored[2].job_id == taken.job_id
    rows = {row.id: row for row in await store.inspector.jobs_of([one.job_id for one in stored])}
    assert len(rows) == len(keys)
    for number, (one, key) in enumerate(zip(stored, keys, strict=True)):
        assert rows[one.job_id].key == key
        assert rows[one.job_id].args == ('"taken"' if key == "m" else f'"{number}"')
        expected = () if key == "m" else labels
        assert rows[one.job_id].policy.labels == expected


async def test_a_key_in_use_behind_thousands_of_calls_says_what_is_stored(
    store: Store, store_url: str
) -> None:
    app = outlast.App(store_url)

    @app.task
    async def counts(n: int) -> None: ...

    @app.task
    async def other() -> None: ...

    await counts.using(key="k").enqueue(0)
    calls: list[Any] = [counts.call(n) for n in range(ENQUEUE_MAX + 1)]
    calls.append(other.using(key="k").call())
    with pytest.raises(KeyInUse) as raised:
        await app.enqueue_many(calls)
    assert len(raised.value.stored) == ENQUEUE_MAX
    last = raised.value.stored[-1].id
    assert await store.inspector.job(last) is not None
    assert await store.inspector.job(last + 1) is None
    assert "only the first 5,000 of 5,002 calls are stored" in str(raised.value)
    with pytest.raises(KeyInUse, match="nothing was enqueued") as raised:
        await app.enqueue_many(calls[-2:])
    assert raised.value.stored == ()
    await app.close()
