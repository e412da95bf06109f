"""A worker that registers under an instance name takes over from the worker that had it before."""

from __future__ import annotations

import asyncio

import pytest

from outlast.model.lease import DeathCause
from outlast.model.lifecycle import OutcomeKind
from outlast.store.protocol import Store
from outlast.store.rows import WorkerRow, WorkerStatus
from tests.conformance.kit import Hands, ended, enqueued, lost_worker, new_worker, reclaimed


async def rows(store: Store) -> dict[str, WorkerRow]:
    return {row.name: row for row in await store.inspector.workers()}


async def test_the_earlier_one_is_lost_as_restarted_and_its_job_runs_again(store: Store) -> None:
    old = await Hands.on(store, "old", instance="pod-0")
    await enqueued(store)
    claimed = await old.claim_one()
    registered = await store.register(new_worker("new", instance="pod-0"))
    assert registered.replaced == 1
    row = (await rows(store))["old"]
    assert (row.status, row.cause) == (WorkerStatus.LOST, DeathCause.RESTARTED)
    assert row.stopped_at is not None
    (orphan,) = await reclaimed(store)
    assert (orphan.facts.token, orphan.cause) == (claimed.token, DeathCause.RESTARTED)
    again = await Hands(store, registered).claim_one()
    assert again.token > claimed.token
    answers = await old.hand_in(ended(claimed, OutcomeKind.COMPLETED))
    assert [answer.value for answer in answers] == ["refused"]


async def test_the_replaced_worker_learns_it_at_its_next_beat_and_claims_nothing(
    store: Store,
) -> None:
    old = await Hands.on(store, "old", instance="pod-0")
    await store.register(new_worker("new", instance="pod-0"))
    await enqueued(store)
    assert not (await store.heartbeat(old.me)).renewed
    assert await store.reconnect(old.me, 0) is None
    exchanged = await old.exchange(limit=1)
    assert (exchanged.valid, exchanged.claimed) == (False, [])


@pytest.mark.parametrize(
    ("mine", "other"),
    [(None, None), ("pod-0", None), (None, "pod-0"), ("pod-0", "pod-1"), ("pod-0", "POD-0")],
    ids=str,
)
async def test_workers_with_another_instance_name_or_none_are_left_alone(
    store: Store, mine: str | None, other: str | None
) -> None:
    """Though host name, process id and boot id are the same, as in containers."""
    await Hands.on(store, "sibling", host="app", pid=1, instance=other)
    registered = await store.register(new_worker("new", host="app", pid=1, instance=mine))
    assert registered.replaced == 0
    assert (await rows(store))["sibling"].status is WorkerStatus.ACTIVE


async def test_a_returning_worker_takes_over_no_other_row(store: Store) -> None:
    await Hands.on(store, "successor", instance="pod-0")
    back = await store.register(new_worker("back", instance="pod-0", succeeds=False))
    assert back.replaced == 0
    assert {row.status for row in (await rows(store)).values()} == {WorkerStatus.ACTIVE}
    assert (await store.register(new_worker("next", instance="pod-0"))).replaced == 2


async def test_a_stopped_predecessor_stays_stopped(store: Store) -> None:
    old = await Hands.on(store, "old", instance="pod-0")
    await store.set_status(old.me, WorkerStatus.STOPPED)
    assert (await store.register(new_worker("new", instance="pod-0"))).replaced == 0
    row = (await rows(store))["old"]
    assert (row.status, row.cause) == (WorkerStatus.STOPPED, None)


async def test_a_claim_that_races_the_successor_is_an_orphan_or_was_never_made(
    store: Store, other_store: Store
) -> None:
    old = await Hands.on(store, "old", instance="pod-0")
    await enqueued(store)
    exchanged, registered = await asyncio.gather(
        Hands(other_store, old.me).exchange(limit=1),
        store.register(new_worker("new", instance="pod-0")),
    )
    assert registered.replaced == 1
    reclaimed = await store.reclaim(lost_worker)
    assert [end.token for end in reclaimed] == [each.token for each in exchanged.claimed]
    await Hands(store, registered).claim_one()
