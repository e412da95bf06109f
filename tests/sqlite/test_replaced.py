"""The file is deleted or replaced under those that have it open: they notice, and write to one."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from harness.stores import held_open
from outlast.base.clock import SYSTEM
from outlast.errors import StoreUnavailable
from outlast.store.sqlite import jobs
from outlast.store.sqlite.store import SqliteStore
from outlast.store.sqlite.wakeup import SqliteWakeup
from outlast.store.values import Answer, ClaimRequest
from tests.conformance.kit import TASK, Hands, ended, enqueued, eventually, job, new_worker
from tests.manual_clock import ManualClock

GONE = "was deleted, or another file has taken its place"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    async with held_open(SqliteStore(f"sqlite:///{path}")) as store:
        yield store


async def opened(path: Path) -> SqliteStore:
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    return store


def deleted(path: Path, *beside: str) -> None:
    for each in beside or ("", "-wal", "-shm"):
        Path(f"{path}{each}").unlink()


async def replaced(path: Path) -> None:
    """Let another file take its place in one step, as ``mv`` does."""
    other = SqliteStore(f"sqlite:///{path}.new")
    await other.open()
    await other.close()
    deleted(path, "-wal", "-shm")
    Path(f"{path}.new").replace(path)


CALLS: dict[str, Callable[[Hands], Awaitable[object]]] = {
    "enqueue": lambda hands: hands.store.enqueue([job()]),
    "exchange": lambda hands: hands.store.exchange(hands.me, [], [ClaimRequest([TASK], 1)]),
    "heartbeat": lambda hands: hands.store.heartbeat(hands.me),
    "observe": lambda hands: hands.store.observe(),
    "read": lambda hands: hands.store.inspector.workers(),
}


@pytest.mark.parametrize("call", CALLS)
async def test_no_call_goes_to_a_file_that_was_deleted(
    path: Path, store: SqliteStore, call: str
) -> None:
    hands = await Hands.on(store)
    deleted(path)
    for said in (GONE, "does not exist", "does not exist"):
        with pytest.raises(StoreUnavailable, match=said):
            await CALLS[call](hands)
    assert list(path.parent.glob(f"{path.name}*")) == []


async def test_a_commit_while_the_file_goes_away_is_not_called_accepted(
    path: Path, store: SqliteStore
) -> None:
    def enqueue_as_it_goes(cursor: sqlite3.Cursor, now: float) -> None:
        jobs.enqueue(cursor, now, [job()])
        deleted(path)

    with pytest.raises(StoreUnavailable, match=f"{GONE}: the last writes may be lost"):
        await store._connection.write(enqueue_as_it_goes)


async def test_a_worker_has_lost_its_lease_in_the_new_file(path: Path, store: SqliteStore) -> None:
    """Also where another worker registers first, under the same id."""
    old = await store.register(new_worker("old", registration="old/1"))
    await replaced(path)
    fresh = SqliteStore(store.url)
    new = await fresh.register(new_worker("new", registration="new/1"))
    assert new.worker_id == old.worker_id
    with pytest.raises(StoreUnavailable, match=GONE):
        await store.heartbeat(old)
    assert not (await store.heartbeat(old)).renewed
    assert await store.reconnect(old, 0) is None
    assert (await fresh.heartbeat(new)).renewed
    await fresh.close()


async def test_tokens_drawn_after_the_backup_are_not_drawn_again(
    path: Path, store: SqliteStore
) -> None:
    """The first worker in the restored file has seen none of them."""
    loser = Hands(store, await store.register(new_worker("loser", registration="l")))
    other = SqliteStore(store.url)
    await other.open()
    await enqueued(store)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(f"{path}.b")) as copy:
        source.backup(copy)
    lost = await loser.claim_one()
    deleted(path, "-wal", "-shm")
    Path(f"{path}.b").replace(path)

    with pytest.raises(StoreUnavailable, match=GONE):
        await other.observe()
    fresh = await Hands.on(other, "fresh")
    again = await fresh.claim_one()
    assert again.job_id == lost.job_id
    assert again.token > lost.token
    with pytest.raises(StoreUnavailable, match=GONE):
        await loser.hand_in(ended(lost))
    assert await loser.hand_in(ended(lost)) == [Answer.REFUSED]
    assert await fresh.hand_in(ended(again)) == [Answer.ACCEPTED]
    await other.close()


async def test_a_copy_that_is_put_back_while_nothing_runs_draws_no_token_again(path: Path) -> None:
    store = await opened(path)
    await enqueued(store)
    await store.close()
    shutil.copy(path, f"{path}.b")
    store = await opened(path)
    lost = await (await Hands.on(store)).claim_one()
    await store.close()
    shutil.copy(f"{path}.b", path)  # into the same file: device and inode stay
    store = await opened(path)
    again = await (await Hands.on(store)).claim_one()
    await store.close()
    assert again.job_id == lost.job_id
    assert again.token > lost.token


async def test_a_backup_that_is_written_into_the_file_in_use_draws_no_token_again(
    path: Path, store: SqliteStore
) -> None:
    """As ``.restore`` of the sqlite3 program does, under a worker that goes on in the same file."""
    hands = await Hands.on(store)
    await enqueued(store)
    with closing(sqlite3.connect(path)) as file, closing(sqlite3.connect(f"{path}.b")) as backup:
        file.backup(backup)
        lost = await hands.claim_one()
        backup.backup(file)
    again = await hands.claim_one()
    assert again.job_id == lost.job_id
    assert again.token > lost.token
    assert await hands.hand_in(ended(lost)) == [Answer.REFUSED]
    assert await hands.hand_in(ended(again)) == [Answer.ACCEPTED]


async def test_a_file_that_is_made_again_gives_out_no_token_again(path: Path) -> None:
    """Job 1 is another one, of which an attempt of the first one's must not be the end."""
    tokens = []
    for _ in range(2):
        store = await opened(path)
        await enqueued(store)
        tokens.append((await (await Hands.on(store)).claim_one()).token)
        await store.close()
        path.unlink()
    assert tokens[1] > tokens[0]


async def test_tokens_rise_while_the_clock_is_set_back(path: Path) -> None:
    clock = ManualClock()
    store = SqliteStore(f"sqlite:///{path}", clock=clock)
    await store.open()
    hands, tokens = await Hands.on(store), []
    for _ in range(3):
        await enqueued(store)
        tokens.append((await hands.claim_one()).token)
        clock.step_wall(-3600.0)
    await store.close()
    assert tokens == [tokens[0], tokens[0] + 1, tokens[0] + 2]


async def test_wake_ups_follow_to_the_new_file(path: Path, store: SqliteStore) -> None:
    heard: list[str] = []
    wakeup = SqliteWakeup(store.url, SYSTEM)
    await wakeup.start(heard.append)

    async def woken() -> bool:
        await enqueued(fresh)
        return bool(heard)

    try:
        await replaced(path)
        fresh = SqliteStore(store.url)
        await eventually(woken, 30.0)
    finally:
        await wakeup.close()
    await fresh.close()
