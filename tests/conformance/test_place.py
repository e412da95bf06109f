"""The position of a job among the others."""

from __future__ import annotations

import pytest

from outlast.model.lifecycle import OutcomeKind
from outlast.store import statistics
from outlast.store.protocol import Store
from outlast.store.statistics import Place
from tests.conformance.kit import Hands, ended, enqueued, job


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


async def test_a_dead_job_whose_key_is_taken_names_the_holder(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, job(key="k"))
    await hands.hand_in(ended(await hands.claim_one(), OutcomeKind.DEAD))
    assert (await place(store, job_id)).key_holder is None
    (holder,) = await enqueued(store, job(key="k"))
    assert (await place(store, job_id)).key_holder == holder
    assert (await place(store, holder)).key_holder is None


async def test_counting_stops_at_the_bound(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.store.inspector.PLACE_MAX", 3)
    ids = await enqueued(store, *[job(task=f"t{n % 3}", priority=n % 2) for n in range(12)])
    found = [await place(store, one) for one in ids]
    assert max(one.before for one in found) == 3
    assert statistics.PLACE_MAX == 800
