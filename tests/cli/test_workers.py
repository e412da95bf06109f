"""``outlast workers drain``: whom it means, what it refuses, and that it can wait."""

from __future__ import annotations

import asyncio

import pytest

from outlast.store import open_store
from outlast.store.base import NewWorker, Store
from outlast.store.reads import WorkerStatus
from tests.cli.conftest import Outlast


async def with_store(url: str, *names: str, gone: WorkerStatus | None = None) -> list[int]:
    """Register workers of these names; return their ids. ``gone``: what the last one is."""
    store = open_store(url)
    await store.open()
    try:
        refs = [await _register(store, name) for name in names]
        if gone is not None:
            await store.set_status(refs[-1], gone)
        return [ref.worker_id for ref in refs]
    finally:
        await store.close()


async def _register(store: Store, name: str):
    new = NewWorker(name=name, host="h", pid=7, boot_id="b", heartbeat=2.0, lease=60.0)
    return await store.register(new)


def asked(outlast: Outlast, url: str) -> list[int]:
    rows = outlast("workers", "--json", "--url", url).json()["workers"]
    return [row["id"] for row in rows if row["drain_requested"]]


def test_a_name_or_an_id_is_asked_and_twice_is_as_once(outlast: Outlast, store_url: str) -> None:
    web, _, _ = asyncio.run(with_store(store_url, "web", "mail", "other"))
    for _ in range(2):
        said = outlast("workers", "drain", "web", "2", "--url", store_url)
        assert said.code == 0, said.err
        assert said.out.splitlines()[0] == f"worker web ({web}) was asked to drain; it runs nothing"
    assert asked(outlast, store_url) == [1, 2]
    said = outlast("workers", "--url", store_url, "drain", "--all")
    assert (said.code, asked(outlast, store_url)) == (0, [1, 2, 3])


def test_of_several_with_one_name_none_is_asked(outlast: Outlast, sqlite_url: str) -> None:
    asyncio.run(with_store(sqlite_url, "web", "web", "web", gone=WorkerStatus.STOPPED))
    said = outlast("workers", "drain", "web", "--url", sqlite_url)
    said.refused(1, "2 workers are called web", "1 (host h, pid 7), 2 (host h, pid 7)")
    assert asked(outlast, sqlite_url) == []


def test_who_is_gone_or_unknown_is_refused_and_nobody_is_asked(
    outlast: Outlast, sqlite_url: str
) -> None:
    asyncio.run(with_store(sqlite_url, "web", "old", gone=WorkerStatus.STOPPED))
    for name, words in [("old", "is gone already: it is stopped"), ("new", "no worker new")]:
        outlast("workers", "drain", "web", name, "--url", sqlite_url).refused(1, words)
    assert asked(outlast, sqlite_url) == []


@pytest.mark.parametrize("arguments", [(), ("web", "--all")])
def test_somebody_must_be_meant(outlast: Outlast, arguments: tuple[str, ...]) -> None:
    outlast("workers", "drain", *arguments).refused(2, "name the workers to drain, or give --all")


def test_options_of_the_list_do_not_go_with_it(outlast: Outlast) -> None:
    outlast("workers", "--all", "drain", "web").refused(2, "do not go with drain")
