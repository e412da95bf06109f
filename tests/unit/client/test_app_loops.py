"""One application in plain code, several event loops, threads and forked processes."""

from __future__ import annotations

import asyncio
import pickle
import threading
from copy import deepcopy
from typing import Any

import pytest

import outlast
import outlast.client.stores
import outlast.store
from tests.unit.client import app_kit
from tests.unit.client.app_kit import application

pytestmark = pytest.mark.on_both_stores
app = app_kit.app


def test_plain_code_and_several_loops_use_one_application(bare_store_url):
    app = application(bare_store_url)
    first = app.tasks["mail"].enqueue_sync("a")

    async def work() -> int:
        job = await app.tasks["mail"].enqueue("b")
        return job.id

    ids = [asyncio.run(work()) for _ in range(3)]
    assert ids == sorted(ids)
    assert first.id < ids[0]
    assert app.get_sync(ids[2]).status_sync() == "unservable"
    app.close_sync()
    assert app.tasks["mail"].enqueue_sync("c").id > ids[2]
    app.close_sync()


async def test_many_coroutines_at_once_open_one_store(app, monkeypatch):
    opened = []
    real = outlast.store.open_store

    def count(url: str, **settings: Any) -> Any:
        opened.append(url)
        return real(url, **settings)

    monkeypatch.setattr("outlast.store.open_store", count)
    await asyncio.gather(*(app.tasks["mail"].enqueue("a") for _ in range(20)))
    assert opened == [app.url]


async def test_a_store_that_could_not_be_opened_is_tried_again(tmp_path):
    folder = tmp_path / "later"
    app = application(f"sqlite:///{folder}/jobs.db")
    with pytest.raises(outlast.OutlastError):
        await app.tasks["mail"].enqueue("a")
    folder.mkdir()
    assert (await app.tasks["mail"].enqueue("a")).id == 1
    await app.close()


def test_closing_does_not_wait_for_a_loop_that_ends_meanwhile(sqlite_url, monkeypatch):
    """It closes its store by itself, and cancels what it was asked for."""
    app, used, asked = application(sqlite_url), threading.Event(), threading.Event()
    ends: list[Any] = []
    kept: list[Any] = []

    async def close(opened: Any) -> None:
        kept.append(opened)
        asked.set()
        await asyncio.Event().wait()

    async def work() -> None:
        await app.tasks["mail"].enqueue("a")
        used.set()
        await asyncio.to_thread(asked.wait, 30)

    def end() -> None:
        ends.append(app.close_sync())

    monkeypatch.setattr(outlast.client.stores._Opened, "close", close)
    other = threading.Thread(target=lambda: asyncio.run(work()))
    other.start()
    assert used.wait(30)
    closing = threading.Thread(target=end, daemon=True)
    closing.start()
    other.join(30)
    closing.join(30)
    assert ends == [None]


def test_closing_ends_though_another_loop_waits_for_it(bare_store_url, monkeypatch):
    """As where an application is closed in a thread for which the thread of a loop waits."""
    monkeypatch.setattr("outlast.client.stores.CLOSING_SECONDS", 0.2)
    app = application(bare_store_url)

    async def work() -> None:
        await app.tasks["mail"].enqueue("a")
        closing = threading.Thread(target=app.close_sync)
        closing.start()
        closing.join(60)  # blocks this loop, whose store is to be closed on it
        assert not closing.is_alive()
        await asyncio.sleep(0)  # the loop turns, and begins to close it
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    asyncio.run(work())
    app.close_sync()


def test_a_loop_that_ends_while_its_store_is_to_be_closed_waits_for_that(
    bare_store_url, monkeypatch
):
    """The closing that was asked for is cancelled before it has begun."""
    monkeypatch.setattr("outlast.client.stores.CLOSING_SECONDS", 0.2)
    app, closed = application(bare_store_url), []
    real = outlast.store.open_store

    def open_slow(url: str, **settings: Any) -> Any:
        store = real(url, **settings)
        close = store.close

        async def close_slowly() -> None:
            await asyncio.sleep(0.05)
            await close()
            closed.append(url)

        monkeypatch.setattr(store, "close", close_slowly)
        return store

    async def work() -> None:
        await app.tasks["mail"].enqueue("a")
        closing = threading.Thread(target=app.close_sync)
        closing.start()
        closing.join(60)

    monkeypatch.setattr("outlast.store.open_store", open_slow)
    asyncio.run(work())
    assert closed == [app.url]


@pytest.mark.parametrize("copy", [pickle.dumps, deepcopy])
def test_what_holds_connections_is_not_copied_and_says_what_to_do(app, copy):
    """As the arguments and the result of a function in another process would be."""
    job = app.tasks["mail"].enqueue_sync("a")
    for each in (app, job, app.limits, app.schedules):
        with pytest.raises(outlast.UsageError, match=r"import the application there.* job\.id"):
            copy(each)
    assert copy(job.id)
    app.close_sync()
