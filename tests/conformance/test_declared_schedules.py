"""Schedules that the code declares: the newest declaration is in use, old workers come and go."""

from __future__ import annotations

import pytest

from outlast.store.protocol import Store
from outlast.store.schedules import Deleted, Put
from tests.conformance.hostile_kit import raw
from tests.conformance.schedules_kit import declare, due_one, fire_one, firing, put_one, row_of

OLD, NEW = '{"cron":"0 3 * * *"}', '{"cron":"0 4 * * *"}'
AGES = [120.0, -120.0]  # seconds ago; after a step of the clock it may be ahead


async def aged(store_url: str, seconds: float) -> None:
    """Let the last declaration be that old."""
    async with raw(store_url) as file:
        row = f"UPDATE outlast_schedules SET declared_at = declared_at - {seconds}"
        assert await file.run(row)


async def names(store_url: str) -> set[str]:
    """The names of all rows, also of schedules that were deleted."""
    async with raw(store_url) as file:
        return {row[0] for row in await file.rows("SELECT name FROM outlast_schedules")}


async def test_the_newest_declaration_is_in_use_while_old_workers_restart(store: Store) -> None:
    assert await declare(store, spec=OLD) is Put.CREATED
    assert await declare(store, spec=NEW) is Put.CHANGED
    before = await row_of(store)
    for _ in range(3):
        assert await declare(store, spec=OLD) is Put.OLDER
        assert await declare(store, spec=NEW) is Put.SAME
    row = await row_of(store)
    assert (row.spec, row.revision) == (NEW, before.revision)


@pytest.mark.parametrize("age", AGES)
async def test_an_old_declaration_returns_when_the_newer_is_declared_no_more(
    store: Store, store_url: str, age: float
) -> None:
    await declare(store, spec=OLD)
    await declare(store, spec=NEW)
    await aged(store_url, age)
    assert await declare(store, spec=OLD) is Put.CHANGED
    assert await declare(store, spec=NEW) is Put.OLDER
    assert (await row_of(store)).spec == OLD


async def test_a_declaration_renews_and_changes_nothing_else(store: Store) -> None:
    await declare(store)
    before = await row_of(store)
    await store.pause_schedule("nightly", paused=True)
    assert await declare(store) is Put.SAME
    row = await row_of(store)
    assert row.paused
    assert row.revision == before.revision
    assert row.declared_at is not None
    assert before.declared_at is not None
    assert row.declared_at >= before.declared_at
    await store.pause_schedule("nightly", paused=False)
    assert (await due_one(store)).version == row.version


async def test_a_declared_schedule_is_neither_put_nor_deleted_at_run_time(store: Store) -> None:
    await declare(store)
    before = await row_of(store)
    assert await put_one(store, spec=NEW) is Put.TAKEN
    assert await store.delete_schedule("nightly") is Deleted.DECLARED
    assert await row_of(store) == before


async def test_one_that_was_put_at_run_time_is_not_declared(store: Store) -> None:
    await put_one(store)
    before = await row_of(store)
    assert await declare(store, spec=NEW) is Put.TAKEN
    assert await row_of(store) == before


@pytest.mark.parametrize("age", AGES)
async def test_what_no_code_declares_any_more_can_be_put_or_deleted(
    store: Store, store_url: str, age: float
) -> None:
    await declare(store)
    await aged(store_url, age)
    assert await put_one(store, spec=NEW) is Put.CHANGED
    row = await row_of(store)
    assert (row.origin, row.declared_at, row.spec) == ("run_time", None, NEW)
    await store.delete_schedule("nightly")
    await declare(store)
    await aged(store_url, age)
    assert await store.delete_schedule("nightly") is Deleted.DELETED


async def test_what_no_code_declares_sleeps_until_one_does(store: Store, store_url: str) -> None:
    await declare(store)
    assert await store.note_undeclared(["nightly"]) == 0
    await aged(store_url, 120.0)
    assert await store.note_undeclared(["nightly", "other"]) == 1
    assert await store.note_undeclared(["nightly"]) == 0
    assert (await store.due_schedules()).schedules == []
    assert (await store.observe()).next_tick is None
    assert not (await row_of(store)).declared
    assert await declare(store) is Put.SAME
    due = await due_one(store)
    assert (await fire_one(store, firing(due, due.since))).won


async def test_after_a_week_without_declaration_it_is_removed(store: Store, store_url: str) -> None:
    await declare(store, "forgotten")
    await put_one(store, "deleted")
    await store.delete_schedule("deleted")
    await put_one(store, "at run time")
    await aged(store_url, 6 * 86_400.0)
    await store.prune(jobs_older_than=1e6, workers_older_than=1e6)
    assert len(await store.inspector.schedules()) == 2
    assert await names(store_url) == {"forgotten", "deleted", "at run time"}
    await aged(store_url, 86_500.0)
    await declare(store, "used")
    await store.prune(jobs_older_than=1e6, workers_older_than=1e6)
    assert await names(store_url) == {"at run time", "used"}


async def test_a_pause_outlasts_weeks_in_which_no_code_declares_the_schedule(
    store: Store, store_url: str
) -> None:
    await declare(store)
    assert await store.pause_schedule("nightly", paused=True)
    await aged(store_url, 30 * 86_400.0)
    await store.prune(jobs_older_than=1e6, workers_older_than=1e6)
    assert await declare(store) is Put.SAME
    assert (await row_of(store)).paused


async def test_a_paused_schedule_that_was_deleted_goes(store: Store, store_url: str) -> None:
    await declare(store)
    await store.pause_schedule("nightly", paused=True)
    await aged(store_url, 120.0)
    assert await store.delete_schedule("nightly") is Deleted.DELETED
    await aged(store_url, 30 * 86_400.0)
    await store.prune(jobs_older_than=1e6, workers_older_than=1e6)
    assert await names(store_url) == set()
