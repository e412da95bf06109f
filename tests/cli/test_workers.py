"""``outlast workers``: which are live, which are gone; which ``drain`` asks and refuses."""

from __future__ import annotations

import asyncio
import sqlite3

from outlast.model.lease import DeathCause
from outlast.store.protocol import Store
from outlast.store.rows import WorkerStatus
from outlast.store.values import NewWorker, WorkerRef
from tests.cli.conftest import Outlast
from tests.cli.rows import opened


async def with_store(url: str, *names: str, gone: WorkerStatus | None = None) -> list[int]:
    """Register workers of these names; return their ids. ``gone``: what the last one is."""
    async with opened(url) as store:
        refs = [await _register(store, name) for name in names]
        if gone is not None:
            await store.set_status(refs[-1], gone)
        return [ref.worker_id for ref in refs]


async def _register(store: Store, name: str):
    new = NewWorker(name=name, host="h", pid=7, boot_id="b", heartbeat=2.0, lease=60.0)
    return await store.register(new)


async def some_are_gone(url: str) -> None:
    """Two live workers, the second asked to drain, and two gone ones, one of them lost."""
    await with_store(url, "calm", "leaver")
    await with_store(url, "tidy", gone=WorkerStatus.STOPPED)
    await with_store(url, "victim")
    async with opened(url) as store:
        await store.request_drain([2])
        victim = next(seen for seen in (await store.observe()).workers if seen.name == "victim")
        assert await store.reap(victim, DeathCause.SILENCE)
        await store.heartbeat(WorkerRef(1, 1))


def test_workers_lists_live_ones_before_gone_ones(outlast: Outlast, sqlite_url: str) -> None:
    asyncio.run(some_are_gone(sqlite_url))
    lines = outlast("workers", "--url", sqlite_url).out.splitlines()
    cells = [line.split()[:2] for line in lines]
    assert cells[0] == ["NAME", "STATUS"]
    assert cells[1:3] == [["leaver", "draining"], ["calm", "active"]]  # the late one on top
    assert lines[4] == "gone:"
    assert cells[6:8] == [["victim", "lost"], ["tidy", "stopped"]]
    assert "silence" in lines[6]
    assert lines[-1] == "2 active, 1 stopped, 1 lost"
    rows = outlast("workers", "--url", sqlite_url, "--json").json()["workers"]
    assert [(row["name"], row["cause"]) for row in rows if row["cause"]] == [("victim", "silence")]
    assert all({"tags", "instance", "lacks", "stopped_at", "presence"} <= set(row) for row in rows)


def test_a_worker_that_sleeps_is_named_where_no_other_is_there(
    outlast: Outlast, sqlite_url: str
) -> None:
    async def sleep() -> None:
        async with opened(sqlite_url) as store:
            me = await _register(store, "sleeper")
            await store.set_status(me, WorkerStatus.STOPPED, asleep=300.0)

    asyncio.run(sleep())
    said = outlast("workers", "--url", sqlite_url).out
    assert said.startswith("no worker is awake; asleep: sleeper\n")


def test_workers_gone_for_more_than_a_day_are_shown_with_all(
    outlast: Outlast, sqlite_url: str
) -> None:
    asyncio.run(with_store(sqlite_url, "here", "old", gone=WorkerStatus.STOPPED))
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as file:
        file.execute("UPDATE outlast_workers SET stopped_at = stopped_at - 90000 WHERE id = 2")
    file.close()
    said = outlast("workers", "--url", sqlite_url).out
    assert "old" not in said
    assert "1 more have ended; --all shows them" in said
    assert "old   stopped" in outlast("workers", "--all", "--url", sqlite_url).out


def asked(outlast: Outlast, url: str) -> list[int]:
    rows = outlast("workers", "--json", "--url", url).json()["workers"]
    return [row["id"] for row in rows if row["drain_requested"]]


def test_drain_takes_a_name_or_an_id_and_may_be_repeated(outlast: Outlast, store_url: str) -> None:
    web, _, _ = asyncio.run(with_store(store_url, "web", "mail", "other"))
    for _ in range(2):
        said = outlast("workers", "drain", "web", "2", "--url", store_url)
        assert said.code == 0, said.err
        assert said.out.splitlines()[0] == f"worker web ({web}) was asked to drain; it runs nothing"
    assert asked(outlast, store_url) == [1, 2]
    said = outlast("workers", "--url", store_url, "drain", "--all")
    assert (said.code, asked(outlast, store_url)) == (0, [1, 2, 3])


def test_drain_by_a_name_of_several_workers_is_refused(outlast: Outlast, sqlite_url: str) -> None:
    asyncio.run(with_store(sqlite_url, "web", "web", "web", gone=WorkerStatus.STOPPED))
    said = outlast("workers", "drain", "web", "--url", sqlite_url)
    said.refused(1, "2 workers are called web", "1 (host h, pid 7), 2 (host h, pid 7)")
    assert asked(outlast, sqlite_url) == []


def test_draining_a_gone_or_unknown_worker_is_refused_and_asks_none(
    outlast: Outlast, sqlite_url: str
) -> None:
    asyncio.run(with_store(sqlite_url, "web", "old", gone=WorkerStatus.STOPPED))
    for name, words in [("old", "has already ended: it is stopped"), ("new", "no worker new")]:
        outlast("workers", "drain", "web", name, "--url", sqlite_url).refused(1, words)
    assert asked(outlast, sqlite_url) == []


def test_drain_all_says_when_there_are_no_workers(outlast: Outlast, sqlite_url: str) -> None:
    asyncio.run(with_store(sqlite_url, "old", gone=WorkerStatus.STOPPED))
    said = outlast("workers", "drain", "--all", "--url", sqlite_url)
    assert (said.code, said.out) == (0, "no worker is alive, so none was asked\n")
