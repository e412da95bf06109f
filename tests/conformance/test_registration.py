"""A registration whose reply was lost is repeated and stays one row."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from outlast.store.lockfile import LockFile, directory_for
from outlast.store.protocol import Store
from outlast.store.rows import WorkerRow, WorkerStatus
from outlast.store.sqlite.store import SqliteStore
from outlast.store.values import Failing, Registered, WorkerRef
from tests.conformance.kit import Hands, enqueued, lost_worker, new_worker

FIRST = new_worker(registration="w1/1")


async def live(store: Store) -> list[WorkerRow]:
    rows = await store.inspector.workers()
    return [row for row in rows if row.status is WorkerStatus.ACTIVE]


async def test_a_repeated_registration_keeps_its_row_and_counter(store: Store) -> None:
    lost = await store.register(FIRST)
    again = await store.register(FIRST)
    assert again == lost
    assert [row.id for row in await live(store)] == [again.worker_id]
    await enqueued(store)
    await Hands(store, again).claim_one()


async def test_a_worker_that_wakes_takes_the_place_of_its_sleeping_row(store: Store) -> None:
    asleep, gone = await Hands.on(store, "sleeper"), await Hands.on(store, "other")
    assert await store.set_status(asleep.me, WorkerStatus.STOPPED, asleep=60.0)
    assert await store.set_status(gone.me, WorkerStatus.STOPPED)
    awake = await Hands.on(store, "sleeper")
    await Hands.on(store, "other")
    names = [row.name for row in await store.inspector.workers() if row.id != awake.me.worker_id]
    assert names == ["other", "other"], "only a row of its own sleep"


async def test_concurrent_repeats_of_a_registration_make_one_row(
    store: Store, other_store: Store
) -> None:
    """The first request is still on its way when its worker has given up waiting."""
    await other_store.store_id()
    made = await asyncio.gather(store.register(FIRST), other_store.register(FIRST))
    assert made[0] == made[1]
    assert len(await live(store)) == 1


async def test_each_repeat_of_a_registration_counts_as_a_beat(store: Store) -> None:
    """The worker trusts its lease from its last request on; others must count from then, too."""
    hands = Hands(store, await store.register(FIRST))
    seen = await hands.seen()
    await store.register(FIRST)
    assert not await store.reap(seen)
    assert [row.id for row in await live(store)] == [hands.me.worker_id]


async def test_a_beat_after_a_repeated_registration_is_seen_also_with_an_old_lock_file(
    store: Store, tmp_path: Path
) -> None:
    if isinstance(store, SqliteStore):
        lock = store.lock = LockFile.create(directory_for(store.path), "w1")
    else:
        lock = LockFile.create(tmp_path, "w1")
    device, inode = lock.device, lock.inode
    mine = new_worker(
        registration="w1/1", lock_path=str(lock.path), lock_device=device, lock_inode=inode
    )
    hands = Hands(store, await store.register(mine))
    await store.heartbeat(hands.me)
    for _ in range(2):
        await store.register(mine)
        seen = await hands.seen()
        assert (await store.heartbeat(hands.me)).renewed
        assert (await hands.seen()).beat > seen.beat
        assert not await store.reap(seen)
    lock.release()


async def test_each_registration_key_gets_its_own_row(store: Store) -> None:
    """Names of workers may repeat."""
    for registration in ("w1/1", "w1/2", None, None):
        await store.register(new_worker(registration=registration))
    assert len({row.id for row in await live(store)}) == 4


async def test_a_worker_found_gone_before_the_repeat_stays_gone(store: Store) -> None:
    hands = Hands(store, await store.register(FIRST))
    await enqueued(store)
    claimed = await hands.claim_one()
    await hands.vanish()
    again = await store.register(FIRST)
    assert again.worker_id == hands.me.worker_id
    assert not (await store.heartbeat(again)).renewed
    assert await live(store) == []
    assert [end.token for end in await store.reclaim(lost_worker)] == [claimed.token]


async def test_a_repeated_registration_does_not_take_over_its_own_row(store: Store) -> None:
    old = await Hands.on(store, "old", instance="pod-0")
    mine = new_worker("new", instance="pod-0", registration="new/1")
    lost = await store.register(mine)
    again = await store.register(mine)
    assert (lost.replaced, again) == (1, Registered(lost.worker_id, lost.epoch, "new/1"))
    assert [row.id for row in await live(store)] == [lost.worker_id]
    assert not (await store.heartbeat(old.me)).renewed


# ----------------------------------------------------- an id that was issued twice
#
# After a restore under running workers, or a failover that lost a registration, a worker may find
# another one's row under its own id.


async def written(store: Store) -> list[WorkerRow]:
    """Return the rows of live workers without the fields that change by themselves."""
    return [msgspec.structs.replace(row, unheard=0.0) for row in await live(store)]


async def _claims(old: Hands) -> tuple[bool, list[object]]:
    reply = await old.exchange(limit=1)
    return reply.valid, list(reply.claimed)


async def _is_renewed(old: Hands) -> bool:
    return (await old.store.heartbeat(old.me)).renewed


ON_A_STRANGERS_ROW: dict[str, tuple[Callable[[Hands], Awaitable[object]], object]] = {
    "exchange": (_claims, (False, [])),
    "heartbeat": (_is_renewed, False),
    "reconnect": (lambda old: old.store.reconnect(old.me, 0), None),
    "reconcile": (lambda old: old.store.reconcile(old.me, ()), []),
    "drain": (lambda old: old.store.set_status(old.me, WorkerStatus.DRAINING), False),
    "stop": (lambda old: old.store.set_status(old.me, WorkerStatus.STOPPED), False),
    "announce": (lambda old: old.store.announce(old.me, ["other"], {}), None),
    "presence": (lambda old: old.store.presence_off(old.me, "why"), None),
    "failing": (lambda old: old.store.tell_failing(old.me, Failing("d", "e", 1.0)), None),
    "wakeup": (lambda old: old.store.tell_wakeup(old.me, "words"), None),
}


async def test_a_worker_changes_no_row_of_another_registration_under_its_id(store: Store) -> None:
    now = Hands(store, await store.register(FIRST))
    await enqueued(store)
    held = await now.claim_one()
    await enqueued(store)
    before = await written(store)
    old = Hands(store, WorkerRef(now.me.worker_id, now.me.epoch, "w0/1"))
    for verb, (call, answer) in ON_A_STRANGERS_ROW.items():
        assert await call(old) == answer, verb
        assert await written(store) == before, verb
        assert await store.superseded([(held.job_id, held.token)]) == [], verb
    assert (await now.exchange()).valid


async def test_a_beat_by_the_lock_file_is_not_for_another_registration(tmp_path: Path) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path}/beat.db")
    await store.open()
    store.lock = lock = LockFile.create(tmp_path, "w1")
    now = await store.register(
        new_worker(
            registration="w1/1",
            lock_path=str(lock.path),
            lock_device=lock.device,
            lock_inode=lock.inode,
        )
    )
    assert (await store.heartbeat(now)).renewed
    assert not (await store.heartbeat(WorkerRef(now.worker_id, now.epoch, "w0/1"))).renewed
    lock.release()
    await store.close()
