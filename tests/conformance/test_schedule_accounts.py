"""Each tick of a schedule is accounted for: when it is deleted, put again, edited and resumed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from outlast.model.schedule_plan import Overlap
from outlast.store.protocol import Store
from outlast.store.schedules import AHEAD_SECONDS, OWED_MAX, Deleted, Put
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import job
from tests.conformance.schedules_kit import declare, due_one, fire_one, firing, put_one, row_of


async def deleted_ahead_of_the_clock(store: Store, seconds: float) -> float:
    """Fire a tick of the future, as before the clock steps back, and delete the schedule."""
    await put_one(store, overlap=Overlap.ALLOW)
    due = await due_one(store)
    ahead = due.since + seconds
    assert (await fire_one(store, firing(due, ahead))).won
    await store.pause_schedule("nightly", paused=True)
    assert await store.delete_schedule("nightly") is Deleted.DELETED
    return ahead


@pytest.mark.parametrize("puts", [put_one, declare])
async def test_one_that_is_put_again_after_a_delete_gives_no_tick_a_second_job(
    store: Store, puts: Any
) -> None:
    ahead = await deleted_ahead_of_the_clock(store, 3_600.0)
    assert await puts(store) is Put.CREATED
    row = await row_of(store)
    assert (row.since, row.next_tick) == (ahead, ahead)
    assert (row.fired, row.missed, row.last_tick, row.paused) == (0, 0, None, False)
    assert await puts(store) is Put.SAME


async def test_after_a_clock_that_was_far_ahead_one_that_is_put_again_fires(store: Store) -> None:
    ahead = await deleted_ahead_of_the_clock(store, AHEAD_SECONDS + 60)
    assert await put_one(store) is Put.CREATED
    row = await row_of(store)
    assert row.since == row.next_tick
    assert row.since < ahead - AHEAD_SECONDS


async def test_of_a_deleted_schedule_nothing_is_seen(store: Store) -> None:
    await deleted_ahead_of_the_clock(store, 3_600.0)
    await put_one(store, "other")
    assert [row.name for row in await store.inspector.schedules()] == ["other"]
    assert await store.inspector.schedule("nightly") is None
    assert not await store.pause_schedule("nightly", paused=False)
    assert await store.delete_schedule("nightly") is Deleted.UNKNOWN
    assert [due.name for due in (await store.due_schedules()).schedules] == ["other"]


async def pause_and_resume(store: Store) -> None:
    for paused in (True, False):
        await store.pause_schedule("nightly", paused=paused)


EDITS: dict[str, Any] = {
    "another spec": lambda store: put_one(store, spec='{"every":30}'),
    "a pause": pause_and_resume,
}


@pytest.mark.parametrize("edit", EDITS)
async def test_ticks_that_an_edit_passes_over_are_owed_until_they_are_counted(
    store: Store, store_url: str, edit: str
) -> None:
    await put_one(store)
    async with raw(store_url) as file:
        assert await file.run("UPDATE outlast_schedules SET since = since - 600")
    before = await due_one(store)
    await EDITS[edit](store)
    due = await due_one(store)
    assert due.owed == f"{int(before.since)} {int(due.since)} {before.spec}\n"
    assert await put_one(store, spec=due.spec, call=job(queue="other")) is Put.CHANGED
    due = await due_one(store)
    assert (await fire_one(store, firing(due, missed=4, owed="1 2 x\n", then=due.since))).won
    again = await due_one(store)
    assert again.owed == "1 2 x\n"
    await fire_one(store, firing(again, missed=6, then=due.since))
    assert (await due_one(store)).owed == ""
    assert (await row_of(store)).missed == 10


async def test_what_is_owed_does_not_grow_without_end(store: Store, store_url: str) -> None:
    await put_one(store)
    for n in range(3):
        async with raw(store_url) as file:
            assert await file.run("UPDATE outlast_schedules SET since = since - 600")
        long = "x" * (OWED_MAX // 2)
        await put_one(store, spec=f'{{"every":{n + 1},"{long}":1}}')
    owed = (await due_one(store)).owed
    assert len(owed.splitlines()) == 2
    assert len(owed) < OWED_MAX + 100


async def test_a_firing_decided_before_another_one_and_a_resume_does_nothing(store: Store) -> None:
    await put_one(store, overlap=Overlap.ALLOW)
    due = await due_one(store)
    ahead = due.since + 3_600.0  # since the clock has stepped back
    await fire_one(store, firing(due, since=ahead, then=ahead))
    late = msgspec.structs.replace(due, next_tick=ahead)
    await pause_and_resume(store)
    assert (await row_of(store)).next_tick == ahead
    assert not (await fire_one(store, firing(late, ahead))).won
