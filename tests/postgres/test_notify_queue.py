"""A queue of notifications that a stranger has filled: what is done is done, without a wake-up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import asyncpg
import pytest

import outlast
from harness.servers import PostgresServer
from harness.stores import opened
from outlast.errors import BadData
from outlast.model.crash import CrashKind
from outlast.model.job import State
from outlast.model.pause import PauseKind
from outlast.store.protocol import Store
from outlast.store.values import Cancelled, FollowedWakeups, LockIdentity, NewPause, Requeued
from tests.conformance.kit import Hands, crashed, enqueued, eventually, job, lost_worker, on
from tests.conformance.schedules_kit import due_one, fire_one, firing, put_one
from tests.conformance.test_actions import NOTE

PAGES = 64  # the least that a server takes: 512 kB
FILLING = "SELECT pg_notify('anything', repeat('x', 7000) || n) FROM generate_series(1, 100) AS n"

Deed = Callable[[Store, Hands, Callable[[], Awaitable[None]]], Awaitable[None]]


@pytest.fixture(scope="module")
def small_server(pg_server: PostgresServer) -> Iterator[PostgresServer]:
    if int(pg_server.sql("SHOW server_version_num")) < 170_000:
        pytest.skip("PostgreSQL before 17 has a queue of 8 GB")
    with PostgresServer(settings={"max_notify_queue_pages": str(PAGES)}) as server:
        server.sql("CREATE ROLE stranger LOGIN")
        yield server


@pytest.fixture
def filled_url(small_server: PostgresServer) -> Iterator[str]:
    yield small_server.create_database("filled")
    small_server.drop_database("filled")


@pytest.fixture
async def store(filled_url: str) -> AsyncIterator[Store]:
    async with opened(filled_url) as store:
        yield store


@pytest.fixture
async def fill(filled_url: str, store: Store) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """What fills the queue, by a role that may do nothing but connect."""
    url = filled_url.replace("postgres@", "stranger@")
    async with AsyncExitStack() as stack:
        holder, filler = [await asyncpg.connect(url) for _ in range(2)]
        stack.push_async_callback(holder.close)
        stack.push_async_callback(filler.close)
        await holder.execute("LISTEN anything")
        await holder.execute("BEGIN")
        await holder.execute("SELECT 1")  # it reads no notification until it has ended

        async def fill() -> None:
            with pytest.raises(asyncpg.ProgramLimitExceededError, match="NOTIFY queue"):
                for _ in range(PAGES):
                    await filler.execute(FILLING)

        yield fill


async def enqueue_one(store: Store, _: Hands, fill: Callable[[], Awaitable[None]]) -> None:
    await fill()
    assert len(await enqueued(store)) == 1


async def enqueue_many(store: Store, hands: Hands, fill: Callable[[], Awaitable[None]]) -> None:
    await fill()
    assert len(await enqueued(store, job(), job())) == 2
    assert len(await enqueued(store, job(), job(key="a"), job(priority=5))) == 3
    (one,) = await store.enqueue([job(key="b")])
    assert one.created
    assert len(await hands.claim()) == 6


async def end_and_claim(store: Store, hands: Hands, fill: Callable[[], Awaitable[None]]) -> None:
    await enqueued(store, job(), job())
    claimed = await hands.claim_one()
    await fill()
    exchanged = await hands.exchange(
        crashed(claimed, CrashKind.ERROR, delay=0.0),
        limit=1,
        followed=FollowedWakeups("k", [1, 2]),
    )
    assert exchanged.answers == ["accepted"]
    assert len(exchanged.claimed) == 1


async def requeue(store: Store, hands: Hands, fill: Callable[[], Awaitable[None]]) -> None:
    ids = await enqueued(store)
    await store.cancel(ids)
    await fill()
    assert await store.requeue(ids, record=NOTE) == {ids[0]: Requeued.REQUEUED}
    (row,) = await store.inspector.actions()  # recorded once
    assert row.counts == {"requeued": 1}


async def cancel(store: Store, hands: Hands, fill: Callable[[], Awaitable[None]]) -> None:
    ids = await enqueued(store)
    await hands.claim_one()
    await fill()
    assert await store.cancel(ids) == {ids[0]: Cancelled.REQUESTED}


async def pause(store: Store, _: Hands, fill: Callable[[], Awaitable[None]]) -> None:
    await fill()
    await store.pause(NewPause(kind=PauseKind.QUEUE, name="q"))
    assert await store.resume(PauseKind.QUEUE, "q") is not None


async def drain(store: Store, hands: Hands, fill: Callable[[], Awaitable[None]]) -> None:
    await fill()
    assert await store.request_drain([hands.me.worker_id]) == {hands.me.worker_id}


async def ask_stack(store: Store, hands: Hands, fill: Callable[[], Awaitable[None]]) -> None:
    await enqueued(store)
    claimed = await hands.claim_one()
    (row,) = [one for one in await store.inspector.workers() if one.id == hands.me.worker_id]
    await fill()
    assert await store.ask_stack(claimed.job_id, claimed.token, seen=row.stacks or "", then="[]")


async def trigger(store: Store, _: Hands, fill: Callable[[], Awaitable[None]]) -> None:
    await fill()
    assert (await store.trigger(job())).created


async def fire(store: Store, _: Hands, fill: Callable[[], Awaitable[None]]) -> None:
    await put_one(store)
    due = await due_one(store)
    await fill()
    assert (await fire_one(store, firing(due, due.since))).won


async def reclaim(store: Store, hands: Hands, fill: Callable[[], Awaitable[None]]) -> None:
    await enqueued(store)
    await hands.claim_one()
    await hands.vanish()
    await fill()
    assert len(await store.reclaim(lost_worker)) == 1


async def reconcile(store: Store, hands: Hands, fill: Callable[[], Awaitable[None]]) -> None:
    await enqueued(store)
    claimed = await hands.claim_one()
    me = await store.reconnect(hands.me, claimed.token)
    assert me is not None
    await fill()
    assert await store.reconcile(me, []) == [(claimed.job_id, claimed.token)]


async def tell_gone(store: Store, _: Hands, fill: Callable[[], Awaitable[None]]) -> None:
    lock = LockIdentity(boot_id="boot", path="/locks/w", device=1, inode=2)
    names = {"lock_path": lock.path, "lock_device": lock.device, "lock_inode": lock.inode}
    await Hands.on(store, "beside", boot_id=lock.boot_id, **names)
    await fill()
    assert await store.tell_gone(lock, None) == 1


DEEDS = [
    enqueue_one, enqueue_many, end_and_claim, requeue, cancel, pause, drain, ask_stack, trigger,
    fire, reclaim, reconcile, tell_gone,
]  # fmt: skip


@pytest.mark.slow_but("enqueue_one", "end_and_claim", "cancel")
@pytest.mark.parametrize("deed", DEEDS)
async def test_what_cannot_notify_is_done_without(
    deed: Deed, store: Store, fill: Callable[[], Awaitable[None]]
) -> None:
    hands = await Hands.on(store)
    await deed(store, hands, fill)


async def test_in_the_caller_s_transaction_only_notify_false_helps(
    filled_url: str, store: Store, fill: Callable[[], Awaitable[None]]
) -> None:
    """It is the caller's to repeat."""
    connection = await asyncpg.connect(filled_url)
    try:
        await fill()
        with pytest.raises(asyncpg.ProgramLimitExceededError):
            async with connection.transaction():
                await on(connection).enqueue([job()])
        async with connection.transaction():
            await on(connection, notify=False).enqueue([job()])
    finally:
        await connection.close()
    assert await store.inspector.counts() == {("default", State.QUEUED): 1}


async def test_another_limit_of_the_server_is_no_full_queue(store: Store) -> None:
    """54000 is the code of all limits."""
    columns = ", ".join(f"{n} AS c{n}" for n in range(1_700))
    times: list[bool] = []

    async def work(connection: object, wake: bool) -> None:
        times.append(wake)
        await connection.fetch(f"SELECT {columns}")  # type: ignore[attr-defined]

    with pytest.raises(BadData, match="1664"):
        await store._connections.run_notifying(work)  # type: ignore[attr-defined]
    assert times == [True]


async def test_a_worker_that_starts_beside_a_full_queue_goes_on_by_polling(
    filled_url: str, store: Store, fill: Callable[[], Awaitable[None]]
) -> None:
    """Its echo is refused: it knows that it is not woken, and comes back to it later."""
    app = outlast.App(filled_url)

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    await fill()
    async with app.worker():
        assert await (await double.enqueue(21)).result(timeout=60) == 42

        async def tells_why() -> bool:
            (row,) = await store.inspector.workers()
            return "NOTIFY queue" in (row.wakeup or "")

        await eventually(tells_why, 60.0)
    await app.close()
