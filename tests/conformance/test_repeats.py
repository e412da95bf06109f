"""Enqueues that replace the waiting job of their key, put it off, or follow one that has begun."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outlast.errors import KeyInUse, UsageError
from outlast.model.job import State
from outlast.model.limits import Per, needs_text, stream_id
from outlast.store.protocol import Store
from outlast.store.rows import StoredJob
from outlast.store.values import Enqueued, NewJob, OnKey, Upstream
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import TASK, Hands, crashed, ended, enqueued
from tests.conformance.limits_kit import declare, held, limited, need, prune_in_turn

ONCE = OnKey(window=1e9)  # till the year 2033
REPLACE, START = OnKey(replaces=True), OnKey(until_start=True)
DEBOUNCE = OnKey(replaces=True, until_start=True, due_max=600.0)


def keyed(args: str, on_key: OnKey | None, key: str = "k", delay: float = 0.0) -> NewJob:
    return NewJob(task=TASK, args=args, key=key, on_key=on_key, delay=delay)


async def put(store: Store, job: NewJob) -> Enqueued:
    (one,) = await store.enqueue([job])
    return one


async def row(store: Store, job_id: int) -> StoredJob:
    found = await store.inspector.job(job_id)
    assert found is not None
    return found


async def test_a_waiting_job_gets_the_newest_arguments_and_keeps_its_place(
    store: Store, hands: Hands
) -> None:
    first = await put(store, keyed('{"n":1}', REPLACE))
    (other,) = await store.enqueue([NewJob(task=TASK)])
    again = await put(store, keyed('{"n":2}', REPLACE))
    assert (first.created, again.created, again.job_id) == (True, False, first.job_id)
    claimed = await hands.claim(2)
    assert [(each.job_id, each.args) for each in claimed] == [
        (first.job_id, '{"n":2}'),
        (other.job_id, "{}"),
    ]


async def test_a_job_that_has_begun_is_left_as_it_is(store: Store, hands: Hands) -> None:
    first = await put(store, keyed('{"n":1}', REPLACE))
    running = await hands.claim_one()
    again = await put(store, keyed('{"n":2}', REPLACE))
    assert (again.created, again.job_id, again.same_args) == (False, first.job_id, False)
    await hands.hand_in(ended(running))
    assert (await row(store, first.job_id)).args == '{"n":1}'


async def test_until_start_one_waits_beside_one_that_runs(store: Store, hands: Hands) -> None:
    first = await put(store, keyed('{"n":1}', START))
    assert not (await put(store, keyed('{"n":2}', START))).created
    running = await hands.claim_one()
    second = await put(store, keyed('{"n":3}', START))
    third = await put(store, keyed('{"n":4}', START))
    assert (second.created, third.created, third.job_id) == (True, False, second.job_id)
    await hands.hand_in(ended(running))
    assert (await row(store, first.job_id)).state is State.COMPLETED
    assert [each.args for each in await hands.claim(9)] == ['{"n":3}']


@pytest.mark.parametrize("on_key", [REPLACE, START, DEBOUNCE])
@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_job_that_was_enqueued_without_it_keeps_its_arguments_and_its_key(
    store: Store, hands: Hands, on_key: OnKey, has_begun: bool
) -> None:
    """Else who may only enqueue could give another's job other arguments."""
    first = await put(store, keyed('{"n":1}', None, delay=0.0 if has_begun else 60.0))
    assert len(await hands.claim(9)) == has_begun
    later = await put(store, keyed('{"n":2}', on_key))
    assert later == Enqueued(first.job_id, created=False, same_args=False)
    now = await row(store, first.job_id)
    assert (now.args, now.key) == ('{"n":1}', "k")


async def test_a_debounced_job_is_put_off_up_to_its_bound(store: Store, hands: Hands) -> None:
    first = await put(store, keyed('{"n":1}', DEBOUNCE, delay=300.0))
    before = await row(store, first.job_id)
    again = await put(store, keyed('{"n":2}', DEBOUNCE, delay=500.0))
    middle = await row(store, first.job_id)
    await put(store, keyed('{"n":3}', DEBOUNCE, delay=900.0))
    after = await row(store, first.job_id)
    assert again.job_id == first.job_id
    assert middle.run_at - before.run_at > 199.0
    assert after.run_at - after.enqueued_at == pytest.approx(600.0, abs=0.01)
    assert after.args == '{"n":3}'
    assert await hands.claim(9) == []
    await put(store, keyed('{"n":4}', DEBOUNCE))  # due at once
    assert [each.args for each in await hands.claim(9)] == ['{"n":4}']


async def test_of_fifty_enqueuers_one_job_is_left_with_arguments_of_the_last(
    store: Store, hands: Hands
) -> None:
    jobs = [keyed(f'{{"n":{n}}}', DEBOUNCE, delay=60.0) for n in range(50)]
    stored = await asyncio.gather(*(put(store, job) for job in jobs))
    assert len({each.job_id for each in stored}) == 1
    assert sum(each.created for each in stored) == 1
    await put(store, keyed('{"n":"last"}', DEBOUNCE))
    assert [each.args for each in await hands.claim(99)] == ['{"n":"last"}']


async def test_a_job_under_a_limit_is_replaced_and_runs(store: Store, hands: Hands) -> None:
    stream = stream_id(TASK, "default", 0, [], "acme")

    def fair(args: str, delay: float) -> NewJob:
        return NewJob(
            task=TASK, args=args, key="k", on_key=DEBOUNCE, delay=delay, tenant="acme",
            stream=stream, needs=needs_text([]),
        )  # fmt: skip

    await put(store, fair("{}", 0.0))
    await put(store, fair("{}", 60.0))
    assert await hands.claim(9) == []
    await put(store, fair('{"n":2}', 0.0))
    assert [each.args for each in await hands.claim(9)] == ['{"n":2}']


async def test_several_in_one_call_and_jobs_of_other_tasks(store: Store, hands: Hands) -> None:
    await put(store, keyed('{"n":1}', REPLACE, "b"))
    stored = await store.enqueue(
        [NewJob(task=TASK), keyed('{"n":2}', REPLACE, "b"), keyed('{"n":3}', REPLACE, "a")]
    )
    assert [each.created for each in stored] == [True, False, True]
    with pytest.raises(KeyInUse):
        await store.enqueue([NewJob(task="other", key="b", on_key=DEBOUNCE)])
    with pytest.raises(UsageError, match="wait for others"):
        await store.enqueue([keyed("{}", REPLACE), NewJob(task=TASK, after=(Upstream(-1),))])
    assert len(await hands.claim(9)) == 3


async def test_an_expired_job_is_not_replaced_but_followed(store: Store, hands: Hands) -> None:
    old = NewJob(task=TASK, key="k", expires_at=1.0, on_key=REPLACE)
    first = await put(store, old)
    again = await put(store, keyed('{"n":2}', REPLACE))
    assert again.created
    assert (await row(store, first.job_id)).state is State.CANCELLED
    assert [each.args for each in await hands.claim(9)] == ['{"n":2}']


async def test_one_job_is_enqueued_in_each_window_also_after_its_end(
    store: Store, store_url: str, hands: Hands
) -> None:
    """Its arguments are compared, a job that was deleted counts, and another task has its own."""
    first = await put(store, keyed('{"n":1}', ONCE))
    assert first.created
    await hands.hand_in(ended(await hands.claim_one()))
    again = [await put(store, keyed(args, ONCE)) for args in ('{"n":1}', '{"n":2}')]
    assert again == [
        Enqueued(first.job_id, created=False, same_args=same) for same in (True, False)
    ]
    (other,) = await store.enqueue([NewJob(task="other", key="k", on_key=ONCE)])
    assert other.created
    await store.cancel([other.job_id])
    await store.prune(jobs_older_than=-9.0, workers_older_than=9e9)
    assert await store.inspector.job(first.job_id) is None
    assert await put(store, keyed("{}", ONCE)) == Enqueued(first.job_id, created=False)
    await end_windows(store_url)
    second = await put(store, keyed("{}", ONCE))
    assert second.created
    await end_windows(store_url)
    assert await put(store, keyed("{}", ONCE)) == Enqueued(second.job_id, created=False)
    await store.cancel([second.job_id])
    assert (await put(store, keyed("{}", ONCE))).created


async def test_a_window_by_a_clock_that_was_ahead_does_not_count(
    store: Store, store_url: str, hands: Hands
) -> None:
    """Nor one of a longer period that the code has had before."""
    hourly = OnKey(window=3_600.0)
    first = await put(store, keyed("{}", hourly))
    await hands.hand_in(ended(await hands.claim_one()))
    assert await put(store, keyed("{}", hourly)) == Enqueued(first.job_id, created=False)
    await end_windows(store_url, seconds=-365 * 86_400)
    second = await put(store, keyed("{}", hourly))
    assert second.created
    await hands.hand_in(ended(await hands.claim_one()))
    assert await put(store, keyed("{}", hourly)) == Enqueued(second.job_id, created=False)


async def end_windows(store_url: str, *, seconds: int = 10**9) -> None:
    """Let the windows that are under way be over, or move them as a clock that was ahead."""
    async with raw(store_url) as file:
        assert await file.run(f"UPDATE outlast_windows SET until = until - {seconds}")


async def test_windows_that_are_over_are_pruned(store: Store, store_url: str) -> None:
    await put(store, keyed("{}", ONCE, "a"))
    await end_windows(store_url)
    await put(store, keyed("{}", ONCE, "b"))
    await store.prune(jobs_older_than=9e9, workers_older_than=9e9)
    async with raw(store_url) as file:
        assert [row[0] for row in await file.rows("SELECT key FROM outlast_windows")] == ["b"]


async def test_a_prune_shows_that_more_windows_are_over_than_it_has_deleted(
    store: Store, store_url: str
) -> None:
    for key in "abcde":
        await put(store, keyed("{}", ONCE, key))
    await end_windows(store_url)
    assert await prune_in_turn(store) == [3, 2, 0]


async def test_of_many_enqueuers_at_once_one_makes_the_job_of_a_window(
    store: Store, hands: Hands
) -> None:
    """A key that an unfinished job of another task has takes no window."""
    stored = await asyncio.gather(*(put(store, keyed("{}", ONCE)) for _ in range(20)))
    assert sum(each.created for each in stored) == 1
    assert len({each.job_id for each in stored}) == 1
    await hands.hand_in(crashed(await hands.claim_one()))
    (held,) = await store.enqueue([NewJob(task="other", key="b")])
    with pytest.raises(KeyInUse):
        await put(store, keyed("{}", ONCE, "b"))
    await store.cancel([held.job_id])
    assert (await put(store, keyed("{}", ONCE, "b"))).created


@pytest.mark.parametrize("delay", [0.0, 60.0])
async def test_a_replaced_job_waits_where_the_newest_call_puts_it(
    store: Store, hands: Hands, delay: float
) -> None:
    """Under its limit keys, and with its queue, priority and tenant, of which limits may be."""
    await declare(store, "host", running=1, per=Per.LIMIT_KEY)
    await enqueued(store, limited(need("host", "b")))
    running = await hands.claim_one()
    first = 0
    for n, keys in enumerate((["a"], ["b"], [], ["b"])):
        options: dict[str, Any] = {
            "key": "k",
            "on_key": DEBOUNCE,
            "args": f"{n}",
            "delay": 0.0 if n else delay,
        }
        where: dict[str, Any] = {"priority": n, "tenant": f"t{n}"}
        needs = [need("host", key) for key in keys]
        one = (
            limited(*needs, **options, **where) if needs else NewJob(task=TASK, **options, **where)
        )
        stored = await put(store, one)
        first = first or stored.job_id
        assert (stored.job_id, stored.created) == (first, n == 0)
    assert await hands.claim(9) == []
    assert await held(store, "host", "b") == 1
    await hands.hand_in(ended(running))
    (last,) = await hands.claim(9)
    assert (last.job_id, last.args) == (first, "3")
    now = await row(store, first)
    assert (now.priority, now.tenant) == (3, "t3")
    await hands.hand_in(ended(last))
    assert await store.inspector.miscounted() == []
