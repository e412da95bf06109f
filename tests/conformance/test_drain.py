"""A drain asked for from outside: on the row, heard with the next beat, by those who live."""

from __future__ import annotations

from outlast.store.protocol import Store
from outlast.store.rows import WorkerStatus
from tests.conformance.kit import Hands


async def asked_rows(store: Store) -> set[int]:
    return {row.id for row in await store.inspector.workers() if row.drain_requested}


async def test_only_the_asked_worker_sees_the_drain_request_at_each_beat(store: Store) -> None:
    one, other = await Hands.on(store, "w1"), await Hands.on(store, "w2")
    assert not (await store.heartbeat(one.me)).drain
    assert await store.request_drain([one.me.worker_id]) == {one.me.worker_id}
    assert await asked_rows(store) == {one.me.worker_id}
    for _ in range(2):
        beat = await store.heartbeat(one.me)
        assert (beat.renewed, beat.drain) == (True, True)
    assert not (await store.heartbeat(other.me)).drain


async def test_asking_again_to_drain_changes_nothing(store: Store, hands: Hands) -> None:
    me = hands.me.worker_id
    assert await store.request_drain([me, me]) == {me}
    assert await store.set_status(hands.me, WorkerStatus.DRAINING)
    assert await store.request_drain([me]) == {me}
    assert (await store.heartbeat(hands.me)).drain


async def test_a_reconnect_keeps_the_drain_request(store: Store, hands: Hands) -> None:
    await store.request_drain([hands.me.worker_id])
    again = await store.reconnect(hands.me, 0)
    assert again is not None
    assert (await store.heartbeat(again)).drain


async def test_gone_or_unknown_workers_cannot_be_asked_to_drain(store: Store) -> None:
    stopped, lost = await Hands.on(store, "w1"), await Hands.on(store, "w2")
    live = await Hands.on(store, "w3")
    await store.set_status(stopped.me, WorkerStatus.STOPPED)
    await lost.vanish()
    ids = [stopped.me.worker_id, lost.me.worker_id, 999, live.me.worker_id]
    assert await store.request_drain(ids) == {live.me.worker_id}
    assert await asked_rows(store) == {live.me.worker_id}
    assert await store.request_drain([]) == set()
