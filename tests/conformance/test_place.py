"""The position of a job among the others."""

from __future__ import annotations

import pytest

from outlast.model.lifecycle import OutcomeKind
from outlast.store import statistics
from outlast.store.protocol import Store
from outlast.store.statistics import Place
from tests.conformance.kit import Hands, crashed, ended, enqueued, job


async def place(store: Store, job_id: int) -> Place:
    found = await store.inspector.place(job_id)
    assert found is not None
    return found


async def test_a_missing_job_has_no_place(store: Store) -> None:
    assert await store.inspector.place(1) is None


async def test_more_urgent_and_earlier_jobs_of_the_queue_are_ahead(store: Store) -> None:
    ids = await enqueued(
        store,
        job(),
        job(task="other", priority=5),
        job(priority=-5),
        job(task="other"),
        job(),
        job(queue="elsewhere", priority=9),
    )
    standing = [await place(store, one) for one in ids]
    assert [one.before for one in standing] == [1, 0, 4, 2, 3, 0]
    assert {one.due for one in standing} == {6}
    assert [one.due_here for one in standing] == [5, 5, 5, 5, 5, 1]
    assert [one.due_alike for one in standing] == [3, 2, 3, 2, 3, 1]


async def test_a_job_that_waits_is_counted_among_those_that_wait(
    store: Store, hands: Hands
) -> None:
    first, second = await enqueued(store, job(), job(delay=600.0))
    await hands.hand_in(crashed(await hands.claim_one(), delay=600.0))
    for one in (first, second):
        found = await place(store, one)
        assert (found.waiting, found.retrying, found.due, found.before) == (2, 1, 0, 0)


async def test_a_running_job_is_counted_with_those_of_its_worker(
    store: Store, hands: Hands
) -> None:
    ids = await enqueued(store, job(), job(), job())
    await hands.claim(2)
    await (await Hands.on(store, "w2")).claim(1)
    assert [(await place(store, one)).beside for one in ids] == [2, 2, 1]


async def test_a_dead_job_is_counted_with_those_of_its_task(store: Store, hands: Hands) -> None:
    ids = await enqueued(store, job(key="k"), job(), job(task="other"))
    for claimed in await hands.claim(3, tasks=["app.work", "other"]):
        await hands.hand_in(ended(claimed, OutcomeKind.DEAD))
    assert [(await place(store, one)).dead_alike for one in ids] == [2, 2, 1]
    assert (await place(store, ids[0])).key_holder is None
    (holder,) = await enqueued(store, job(key="k"))
    assert (await place(store, ids[0])).key_holder == holder
    assert (await place(store, holder)).key_holder is None


async def test_counting_stops_at_the_bound(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.store.inspector.PLACE_MAX", 3)
    ids = await enqueued(store, *[job(task=f"t{n % 3}", priority=n % 2) for n in range(12)])
    found = [await place(store, one) for one in ids]
    assert max(one.before for one in found) == 3
    assert {(one.due, one.due_here) for one in found} == {(3, 3)}
    assert statistics.PLACE_MAX == 800
