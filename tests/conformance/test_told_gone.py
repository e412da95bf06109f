"""What a tether says of its worker: shown by looks, about the rows of that lock file alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from outlast.insight.availability import with_proof
from outlast.model.lease import DeathCause
from outlast.store.protocol import Store
from outlast.store.rows import WorkerStatus
from outlast.store.values import LockIdentity
from tests.conformance.kit import Hands, enqueued, job, reclaimed

LOCK = LockIdentity(boot_id="here", path="/locks/w-abcdefgh.lock", device=2049, inode=77)
AS_ON_ROWS: dict[str, Any] = {
    "boot_id": LOCK.boot_id,
    "lock_path": LOCK.path,
    "lock_device": LOCK.device,
    "lock_inode": LOCK.inode,
}


async def test_a_look_shows_it_and_the_reap_that_follows_is_a_proven_death(store: Store) -> None:
    dead = await Hands.on(store, **AS_ON_ROWS)
    assert not (await dead.seen()).told_gone
    assert await store.tell_gone(LOCK, 5) == 1
    row = await dead.row()
    assert (row.status, row.cause) == (WorkerStatus.ACTIVE, DeathCause.TETHER)
    seen = await dead.seen()
    assert seen.told_gone
    assert await store.reap(seen, DeathCause.TETHER)
    row = await dead.row()
    assert (row.status, row.cause) == (WorkerStatus.LOST, DeathCause.TETHER)


async def test_commands_show_it_as_dead_before_any_worker_reaps_it(store: Store) -> None:
    await Hands.on(store, **AS_ON_ROWS)
    await store.tell_gone(LOCK, None)
    (row,) = with_proof(await store.inspector.workers())
    assert row.lock_free


@pytest.mark.parametrize(
    "other",
    [
        {"boot_id": "there"},
        {"lock_path": "/locks/w-bcdefghi.lock"},
        {"lock_device": 2050},
        {"lock_inode": 78},
        {"lock_path": None, "lock_device": None, "lock_inode": None},
    ],
)
async def test_no_worker_with_another_lock_file_is_told_gone(
    store: Store, other: dict[str, Any]
) -> None:
    """As one that was started again in place: its instance, host and name are the same."""
    dead = await Hands.on(store, **AS_ON_ROWS)
    alive = await Hands.on(store, **(AS_ON_ROWS | other))
    assert await store.tell_gone(LOCK, None) == 1
    assert ((await dead.seen()).told_gone, (await alive.seen()).told_gone) == (True, False)


async def test_a_row_that_has_ended_keeps_its_cause(store: Store) -> None:
    lost, stopped = await Hands.on(store, **AS_ON_ROWS), await Hands.on(store, **AS_ON_ROWS)
    await lost.vanish()
    await store.set_status(stopped.me, WorkerStatus.STOPPED)
    assert await store.tell_gone(LOCK, 5) == 0
    assert (await lost.row()).cause == DeathCause.SILENCE
    assert (await stopped.row()).cause is None


async def test_a_beat_that_arrives_late_delays_the_reap_by_one_look(store: Store) -> None:
    """The worker had sent it before it was killed."""
    dead = await Hands.on(store, **AS_ON_ROWS)
    await store.tell_gone(LOCK, None)
    seen = await dead.seen()
    await store.heartbeat(dead.me)
    assert not await store.reap(seen, DeathCause.TETHER)
    again = await dead.seen()
    assert again.told_gone
    assert await store.reap(again, DeathCause.TETHER)


async def test_a_claim_that_arrives_late_is_an_orphan_of_a_proven_death(store: Store) -> None:
    dead = await Hands.on(store, **AS_ON_ROWS)
    await enqueued(store)
    await store.tell_gone(LOCK, None)
    claimed = await dead.claim_one()
    assert await store.reap(await dead.seen(), DeathCause.TETHER)
    met = await reclaimed(store)
    assert [(each.facts.token, each.cause) for each in met] == [(claimed.token, DeathCause.TETHER)]


@pytest.mark.parametrize("seen_here", [None, 0])
async def test_what_had_begun_is_as_the_tether_has_said(
    store: Store, seen_here: int | None
) -> None:
    """Other hosts cannot read the lock file; and one of this host adds nothing."""
    dead = await Hands.on(store, **AS_ON_ROWS)
    await enqueued(store, job(), job())
    tokens = [claimed.token for claimed in await dead.claim()]
    await store.tell_gone(LOCK, tokens[0])
    seen = msgspec.structs.replace(await dead.seen(), begun=seen_here)
    assert await store.reap(seen, DeathCause.TETHER)
    began = {each.facts.token: each.began for each in await reclaimed(store)}
    assert began == {tokens[0]: True, tokens[1]: False}
