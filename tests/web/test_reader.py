"""The reading side: one look for all who ask, and nothing but reading."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING

import msgspec
import pytest

from outlast.errors import NotPermitted, StoreError, StoreUnavailable
from outlast.store import open_store
from outlast.web.reader import KEEP_SECONDS, KEPT_BYTES, KEPT_MAX, SLOW_KEEP_SECONDS, StoreReader
from tests.conformance.kit import enqueued, job
from tests.manual_clock import ManualClock
from tests.web.kit import page_on

if TYPE_CHECKING:
    from outlast.store.protocol import Store


async def count(store: Store) -> int:
    return len((await store.inspector.named(None, "k")) or [])


async def test_all_who_ask_at_once_share_one_look_and_those_soon_after(store: Store) -> None:
    clock = ManualClock()
    reader = StoreReader(store.url, clock)
    try:
        assert await asyncio.gather(*(reader.ask("n", count) for _ in range(20))) == [0] * 20
        await enqueued(store, job(key="k"))
        assert await reader.ask("n", count) == 0
        assert reader.looks == 1
        clock.advance(KEEP_SECONDS)
        assert await reader.ask("n", count) == 1
        assert reader.looks == 2
    finally:
        await reader.close()


async def test_a_slow_look_is_made_less_often(store: Store) -> None:
    clock = ManualClock()
    reader = StoreReader(store.url, clock)

    async def is_made_again(took: float, after: float) -> bool:
        reader.forget_all()

        async def look(store: Store) -> None:
            clock.advance(took)

        await reader.ask("n", look)
        before = reader.looks
        clock.advance(after - took)
        await reader.ask("n", look)
        return reader.looks > before

    try:
        for took, pause in ((0.01, KEEP_SECONDS), (0.1, 5.0), (1.0, SLOW_KEEP_SECONDS)):
            made = [await is_made_again(took, pause + late) for late in (-0.01, 0.01)]
            assert made == [False, True], took
    finally:
        await reader.close()


class Large(msgspec.Struct, weakref=True):
    rows: list[dict[str, tuple[str, ...]]]


async def test_what_is_kept_is_bounded_by_its_size(store: Store) -> None:
    reader, made = StoreReader(store.url, ManualClock()), []

    async def look(store: Store) -> Large:
        large = Large([{"args": ("\u20ac" + "x" * 2_000_000,)}])  # 4 MB: two bytes a character
        made.append(weakref.ref(large))
        return large

    try:
        for number in range(20):
            await reader.ask(("job", number), look)
        alive = [one for one in made if one() is not None]
        assert 0 < len(alive) * 4_000_000 <= KEPT_BYTES
        assert alive[-1] is made[-1], "the newest are kept"
        for number in range(300):
            await reader.ask(("n", number), count)
        assert len(reader._kept) <= KEPT_MAX
    finally:
        await reader.close()


async def test_a_look_that_fails_is_asked_again_and_one_who_leaves_ends_it_for_none(
    store: Store,
) -> None:
    reader, gate = StoreReader(store.url, ManualClock()), asyncio.Event()

    async def fail(store: Store) -> int:
        raise StoreUnavailable("gone")

    async def wait(store: Store) -> int:
        await gate.wait()
        return 1

    try:
        with pytest.raises(StoreUnavailable):
            await reader.ask("n", fail)
        leaves = asyncio.ensure_future(reader.ask("n", wait))
        stays = asyncio.ensure_future(reader.ask("n", wait))
        await asyncio.sleep(0)
        leaves.cancel()
        gate.set()
        assert await stays == 1
    finally:
        await reader.close()


async def test_a_page_of_a_store_that_is_not_there_does_not_make_it(bare_store_url: str) -> None:
    async with page_on(bare_store_url) as page:
        with pytest.raises(StoreError):
            await page.site.bulk.go_on_with_left()
        assert (await page.get("/jobs")).status_code == 503
        assert (await page.submit("/jobs/1/cancel")).status_code == 503
    store = open_store(bare_store_url, read_only=True)
    try:
        with pytest.raises(StoreError):
            await store.open()
    finally:
        await store.close()


async def test_a_page_opens_no_messenger(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It enqueues nothing: one that is out of reach or ill-configured is not its concern."""
    monkeypatch.setenv("OUTLAST_WAKEUP", "none://")
    [job_id] = await enqueued(store, job())
    async with page_on(store.url) as page:
        assert (await page.get("/jobs")).status_code == 200
        assert (await page.submit(f"/jobs/{job_id}/cancel")).status_code == 303
    assert list(await store.inspector.counts()) == [("default", "cancelled")]


@pytest.mark.on_both_stores
async def test_the_reading_side_cannot_write(store: Store) -> None:
    reader = StoreReader(store.url, ManualClock())
    try:
        with pytest.raises((StoreError, NotPermitted)):
            await reader.ask("n", lambda reading: reading.enqueue([job()]))
    finally:
        await reader.close()
    assert (await store.inspector.counts()) == {}
