"""What each worker reads all the time: the marks of those who watch, and its neighbours."""

from __future__ import annotations

from typing import Any

from outlast.store.protocol import Store
from outlast.store.values import Peek
from tests.conformance.kit import Hands

MARK = 7 << 40 | 1


async def on_host(store: Store, name: str, boot_id: str = "here", **fields: Any) -> Hands:
    values = {
        "boot_id": boot_id,
        "lock_path": f"/locks/{name}-abcdefgh.lock",
        "lock_device": 1,
        **fields,
    }
    return await Hands.on(store, name, **values)


async def peek(hands: Hands) -> Peek:
    return await hands.store.peek(hands.me)


async def test_the_mark_of_a_watcher_is_shown_to_all_where_looks_are_shared(store: Store) -> None:
    first, second = await on_host(store, "a"), await on_host(store, "b")
    before = (await peek(first)).watches
    for place in range(len(before)):
        await store.keep_watch(place, MARK + place)
    seen = [(await peek(hands)).watches for hands in (first, second)]
    assert seen == [tuple(MARK + place for place in range(len(before)))] * 2
    if before:
        await store.keep_watch(0, MARK - 1)
        assert (await peek(second)).watches[0] == MARK - 1, "the last writer's stands"


async def test_a_store_says_who_watches_and_what_is_new_or_nothing_of_it(store: Store) -> None:
    shown = await peek(await on_host(store, "a"))
    assert bool(shown.watches) == (shown.drawn is not None)
    assert shown.watches in {(), (0, 0, 0)}, "no mark was left yet"
