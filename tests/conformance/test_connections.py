"""One transaction for the caller's rows and ours, on each kind of connection that people have."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from outlast.base.clock import SYSTEM
from outlast.base.sync import drive
from outlast.errors import BadData, KeyInUse, LostLease, UsageError
from outlast.model.job import State
from outlast.store import open_store
from outlast.store.backend import backend_of
from outlast.store.foreign import foreign
from outlast.store.values import NewJob
from tests.conformance import shop_kit
from tests.conformance.connections_kit import (
    ON_POSTGRES,
    ON_SQLITE,
    Asyncpg,
    AsyncSqlalchemy,
    Caller,
    Django,
    Plain,
    Psycopg,
    Sqlalchemy,
    Sqlite3,
    opened,
)
from tests.conformance.kit import eventually, lost_worker
from tests.conformance.shop_kit import (
    Shop,
    an_app,
    chief_kinds,
    every_connection,
    every_kind,
    make_orders,
    of,
    orders,
    write,
)

kind = shop_kit.kind
shop = shop_kit.shop
caller = shop_kit.caller


# --------------------------------------------------------------------------------- enqueue


@every_kind
async def test_a_job_exists_once_the_caller_has_committed(shop: Shop, caller: Caller):
    woken = asyncio.Event()
    wakeup = backend_of(shop.url).open_wakeup(shop.url, SYSTEM)
    await wakeup.start(lambda _: woken.set())
    await until(lambda: wakeup.health.good)
    await write(caller)
    job = await caller.enqueue(shop.mail, "a")
    assert await shop.jobs() == []
    woken.clear()
    await caller.call(caller.commit)
    async with asyncio.timeout(30):
        await woken.wait()
    assert await shop.jobs() == ['{"to":"a"}']
    assert (await shop.row(job)).state is State.QUEUED
    assert await orders(shop) == 1
    await wakeup.close()


@chief_kinds
async def test_the_callers_rollback_also_removes_the_job(shop: Shop, caller: Caller):
    await write(caller)
    await caller.enqueue(shop.mail, "lost")
    await caller.call(caller.rollback)
    assert (await shop.jobs(), await orders(shop)) == ([], 0)
    await write(caller)
    await caller.enqueue(shop.mail, "a")
    await caller.call(caller.execute, "SAVEPOINT here")
    await caller.enqueue(shop.mail, "b")
    await caller.call(caller.execute, "ROLLBACK TO SAVEPOINT here")
    await caller.enqueue(shop.mail, "c")
    await caller.call(caller.commit)
    assert await shop.jobs() == ['{"to":"a"}', '{"to":"c"}']


@every_connection
async def test_a_taken_key_returns_its_job(shop: Shop, caller: Caller):
    first = await shop.mail.using(key="k").enqueue("a")
    await write(caller)
    again = await caller.enqueue(shop.mail.using(key="k", delay=60), "b")
    other = await caller.enqueue(shop.mail.using(key="100 %", tenant="t", priority=-5), "c")
    await caller.call(caller.commit)
    assert ((again.id, again.created), other.created) == ((first.id, False), True)
    assert (first.same_args, again.same_args) == (True, False)
    row = await shop.row(other)
    assert (row.key, row.tenant, row.priority) == ("100 %", "t", -5)


@every_connection
async def test_a_key_of_another_task_is_an_error_and_the_transaction_goes_on(
    shop: Shop, caller: Caller
):
    post = shop.app.task(name="post")(lambda to: None)
    await shop.mail.using(key="k").enqueue("a")
    await write(caller)
    with pytest.raises(KeyInUse, match="of the task 'mail'"):
        await caller.enqueue(post.using(key="k"), "b")
    with pytest.raises(KeyInUse, match="of the task 'mail'"):
        await caller.enqueue_many(shop.app, [post.call("c"), post.using(key="k").call("d")])
    await caller.enqueue(post.using(key="post:k"), "e")
    await caller.call(caller.commit)
    assert await shop.jobs() == ['{"to":"a"}', '{"to":"e"}']


@every_connection
async def test_jobs_with_mixed_options_are_stored_as_one_batch(shop: Shop, caller: Caller):
    """A driver that guesses a list's type by its values must not stumble over mixed ones."""
    timed = shop.app.task(name="timed", timeout=60)(lambda to: None)
    exact = shop.app.task(name="exact", timeout=1.5)(lambda to: None)
    at = datetime(2100, 1, 1, tzinfo=UTC)
    calls = [
        shop.mail.call("a"),
        timed.using(delay=60, tenant="t").call("b"),
        exact.using(delay=0.5, key="k").call("c"),
        shop.mail.using(at=at, priority=-100).call("d"),
    ]
    await write(caller)
    await caller.enqueue_many(shop.app, calls)
    await caller.call(caller.commit)
    stored = sorted(json.loads(args)["to"] for args in await shop.jobs())
    assert stored == ["a", "b", "c", "d"]  # calls with keys are stored in the order of these


async def until(there: Any) -> None:
    async with asyncio.timeout(30):
        while not there():
            await asyncio.sleep(0.005)


# ----------------------------------------------------------------------------- complete_in


@every_kind
async def test_work_and_completion_are_committed_together(shop: Shop, caller: Caller):
    attempt, _ = await shop.attempt()
    await write(caller)
    await caller.complete(attempt, {"paid": True})
    row = await shop.row(attempt)
    assert (row.state, await orders(shop)) == (State.RUNNING, 0)
    await caller.call(caller.commit)
    row = await shop.row(attempt)
    assert (row.state, row.result, await orders(shop)) == (State.COMPLETED, '{"paid":true}', 1)


@chief_kinds
async def test_a_late_attempt_is_refused_and_its_work_rolled_back(shop: Shop, caller: Caller):
    attempt, hands = await shop.attempt()
    await hands.vanish()
    assert await shop.store.reclaim(lost_worker)
    await write(caller)
    with pytest.raises(LostLease, match="was not completed"):
        await caller.complete(attempt, None)
    await caller.call(caller.rollback)
    row = await shop.row(attempt)
    assert (row.state, row.result, await orders(shop)) == (State.QUEUED, None, 0)


@chief_kinds
async def test_without_a_transaction_to_wait_for_completion_is_refused(shop: Shop):
    attempt, _ = await shop.attempt()
    async with opened(shop.kind, shop.url, autocommit=True) as caller:
        with pytest.raises(UsageError, match="needs an open transaction: "):
            await caller.complete(attempt, None)
        await caller.enqueue(shop.mail, "at once")
    assert await shop.jobs() == ['{"to":"first"}', '{"to":"at once"}']


@pytest.mark.parametrize(
    ("store_url", "kinds"),
    [("sqlite", ON_SQLITE), ("postgres", ON_POSTGRES)],
    indirect=["store_url"],
)
async def test_a_crash_between_work_and_commit_leaves_nothing_behind(
    store_url: str, kinds: list[type[Caller]], tmp_path
):
    urls = [store_url] * len(kinds)
    if store_url.startswith("sqlite"):  # one writer at a time in each file
        urls = [f"sqlite:///{tmp_path / kind.__name__}.db" for kind in kinds]
    shops = {url: Shop(url, Sqlite3, an_app(url), open_store(url)) for url in urls}
    for shop in shops.values():
        await shop.store.open()
        await make_orders(shop.url)
    attempts = [await shops[url].attempt() for url in urls]
    told = [
        [kind.__name__, url, attempt.job_id, attempt.token]
        for kind, url, (attempt, _) in zip(kinds, urls, attempts, strict=True)
    ]
    await kill_when_ready(told)
    for url, (attempt, hands) in zip(urls, attempts, strict=True):
        shop = shops[url]
        assert (await shop.row(attempt)).state is State.RUNNING
        await hands.vanish()
        assert await eventually(partial(shop.store.reclaim, lost_worker), 30)
        assert ((await shop.row(attempt)).state, await orders(shop)) == (State.QUEUED, 0)
    for shop in shops.values():
        await shop.store.close()
        await shop.app.close()


async def kill_when_ready(told: list[Any]) -> None:
    """Let a process work and complete on connections of its own, and kill it before it commits."""
    command = [sys.executable, "-m", "tests.conformance.connections_child", json.dumps(told)]
    child = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert await child.stdout.readline() == f"ready {len(told)}\n".encode()
    finally:
        child.kill()
        await child.communicate()


# --------------------------------------------------------------------------------- refusals


@of(Sqlite3, Asyncpg, Psycopg, Sqlalchemy, AsyncSqlalchemy, Django)
async def test_a_value_that_the_store_refuses_is_bad_data(shop: Shop, caller: Caller):
    out_of_range, no_text = NewJob(task="mail", priority=99_999), NewJob(task="mail", key="\ud800")
    for bad in ([out_of_range], [no_text]):
        await write(caller)
        with pytest.raises(BadData):
            if isinstance(caller, Plain):
                await caller.call(lambda bad=bad: drive(foreign(caller.connection).enqueue(bad)))
            else:
                await foreign(caller.connection).enqueue(bad)
        await caller.call(caller.rollback)


# ---------------------------------------------------------------------- SQLite's write lock


async def test_the_write_lock_is_taken_before_anything_is_read(sqlite_url: str):
    """Otherwise a commit of another between the two would end the caller's transaction."""
    app = an_app(sqlite_url)
    await app.tasks["mail"].enqueue("first")
    path = sqlite_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as mine:
        mine.execute("BEGIN")
        assert await foreign(mine).store_id() is not None
        with (
            closing(sqlite3.connect(path, timeout=0)) as other,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            other.execute("BEGIN IMMEDIATE")
    await app.close()
