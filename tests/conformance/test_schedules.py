"""Schedules: put, read, paused, deleted, due, and fired once also if they change in between."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from outlast.errors import BadData
from outlast.model.job import State
from outlast.model.schedule_plan import CatchUp, Overlap
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter
from outlast.store.schedules import AHEAD_SECONDS, OWED_MAX, Deleted, Put
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import Hands, ended, enqueued, job
from tests.conformance.schedules_kit import (
    declare,
    due_one,
    fire_one,
    firing,
    policy_at,
    put_one,
    row_of,
    schedule,
)

ODD = ["a b", "ä€🎉", "x'; DROP TABLE outlast_schedules; --", "%_", "..", "A" * 500, "\x7f\t"]


async def test_a_schedule_is_read_as_it_was_put(store: Store) -> None:
    call = job(queue="slow", priority=7, args='{"a":1}', tenant="acme")
    new = schedule(call=call, overlap=Overlap.ALLOW, catch_up=CatchUp.ALL, grace=5.0)
    assert await store.put_schedules([new]) == [Put.CREATED]
    row = await row_of(store)
    assert (row.name, row.spec, row.grace, row.origin) == ("nightly", new.spec, 5.0, "run_time")
    assert (row.overlap, row.catch_up, row.paused, row.declared) == ("allow", "all", False, True)
    assert (row.fired, row.skipped, row.missed, row.last_job) == (0, 0, 0, None)
    assert row.next_tick == row.since
    due = await due_one(store)
    assert firing(due, 5.0).jobs[0].priority == 7
    assert (due.version, due.declared_at) == (row.version, None)
    assert await store.inspector.schedules() == [row]
    assert await store.inspector.schedule("other") is None


async def test_what_is_put_again_as_it_is_changes_nothing(store: Store) -> None:
    await put_one(store)
    before = await row_of(store)
    assert await put_one(store) is Put.SAME
    assert await row_of(store) == before


async def test_another_spec_begins_after_now_and_another_call_does_not(store: Store) -> None:
    await put_one(store)
    due = await due_one(store)
    assert (await fire_one(store, firing(due, due.since + 50))).won
    before = await row_of(store)
    assert await put_one(store, call=job(queue="other")) is Put.CHANGED
    same_spec = await row_of(store)
    assert (same_spec.since, same_spec.next_tick) == (before.since, before.next_tick)
    assert same_spec.revision > before.revision
    assert await put_one(store, spec='{"every":30}') is Put.CHANGED
    row = await row_of(store)
    assert row.since == row.next_tick == before.since  # 50 s ahead of the clock: accounted for
    assert row.fired == 1


async def test_schedules_are_listed_by_name_page_by_page(store: Store) -> None:
    await store.put_schedules([schedule(name) for name in "cadb"])
    first = await store.inspector.schedules(limit=2)
    rest = await store.inspector.schedules(after=first[-1].name)
    assert [row.name for row in (*first, *rest)] == list("abcd")


async def test_a_deleted_schedule_is_gone_and_its_jobs_stay(store: Store) -> None:
    await put_one(store)
    due = await due_one(store)
    assert (await fire_one(store, firing(due, due.since))).won
    assert await store.delete_schedule("nightly") is Deleted.DELETED
    assert await store.delete_schedule("nightly") is Deleted.UNKNOWN
    assert len(await store.inspector.jobs(JobFilter())) == 1
    assert (await store.observe()).next_tick is None


async def test_a_fired_tick_is_a_job_and_is_counted(store: Store, hands: Hands) -> None:
    await put_one(store)
    due = await due_one(store)
    answer = await fire_one(store, firing(due, due.since, missed=3))
    claimed = await hands.claim_one()
    assert answer.won
    assert answer.jobs == [claimed.job_id]
    assert claimed.policy == policy_at(due.since)
    row = await row_of(store)
    assert (row.fired, row.skipped, row.missed) == (1, 0, 3)
    assert (row.last_tick, row.last_job) == (due.since, claimed.job_id)
    stored = await store.inspector.job(claimed.job_id)
    assert stored is not None
    assert stored.key == "outlast:schedule:nightly"


async def test_a_tick_of_the_future_waits_for_its_time(store: Store, hands: Hands) -> None:
    await put_one(store)
    due = await due_one(store)
    assert (await fire_one(store, firing(due, due.since + 900.0))).won
    assert await hands.claim() == []
    counts = await store.inspector.counts()
    assert counts == {("default", State.QUEUED): 1}


async def test_of_two_that_fire_a_tick_at_once_one_wins(store: Store, other_store: Store) -> None:
    names = [f"s{n}" for n in range(40)]
    await store.put_schedules([schedule(name, overlap=Overlap.ALLOW) for name in names])
    due = (await store.due_schedules()).schedules
    firings = [firing(each, each.since) for each in due]
    one, two = await asyncio.gather(store.fire(firings), other_store.fire(firings[::-1]))
    for mine, others in zip(one, two[::-1], strict=True):
        assert [mine.won, others.won].count(True) == 1
    counts = await store.inspector.counts()
    assert counts == {("default", State.QUEUED): len(names)}
    assert {row.fired for row in await store.inspector.schedules()} == {1}


async def test_a_tick_is_skipped_while_the_job_before_it_is_unfinished(
    store: Store, hands: Hands
) -> None:
    await put_one(store)
    due = await due_one(store)
    first = await fire_one(store, firing(due, due.since, then=due.since))
    held = await hands.claim_one()
    again = await due_one(store)
    answer = await fire_one(store, firing(again, due.since + 1, then=due.since))
    assert (answer.won, answer.jobs, answer.in_the_way) == (True, [None], held.job_id)
    row = await row_of(store)
    assert (row.fired, row.skipped) == (1, 1)
    assert (row.last_skip, row.last_skip_job) == (due.since + 1, held.job_id)
    assert (row.last_tick, row.last_job) == (due.since, first.jobs[0])
    await hands.hand_in(ended(held))
    third = await fire_one(store, firing(await due_one(store), due.since + 2))
    assert third.jobs != [None]


async def test_another_tasks_job_with_the_key_is_in_the_way_too(store: Store) -> None:
    (other,) = await enqueued(store, job(task="app.other", key="outlast:schedule:nightly"))
    await put_one(store)
    due = await due_one(store)
    answer = await fire_one(store, firing(due, due.since))
    assert (answer.jobs, answer.in_the_way) == ([None], other)


async def test_several_ticks_are_fired_in_their_order(store: Store, hands: Hands) -> None:
    await put_one(store, overlap=Overlap.ALLOW, catch_up=CatchUp.ALL)
    due = await due_one(store)
    ticks = [due.since - 3, due.since - 2, due.since - 1]
    answer = await fire_one(store, firing(due, *ticks))
    claimed = await hands.claim()
    assert [one.policy.tick for one in claimed] == ticks
    assert answer.jobs == [one.job_id for one in claimed]
    row = await row_of(store)
    assert (row.fired, row.last_tick, row.since) == (3, ticks[-1], due.since)


CHANGES: dict[str, Any] = {
    "fired": lambda store, due: store.fire([firing(due)]),
    "edited": lambda store, _: put_one(store, spec='{"every":5}'),
    "another call": lambda store, _: put_one(store, call=job(queue="q")),
    "paused": lambda store, _: store.pause_schedule("nightly", paused=True),
    "deleted": lambda store, _: store.delete_schedule("nightly"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_firing_decided_before_a_change_does_nothing(store: Store, change: str) -> None:
    await put_one(store)
    due = await due_one(store)
    await CHANGES[change](store, due)
    before = await store.inspector.schedules()
    answer = await fire_one(store, firing(due, due.since))
    assert not answer.won
    assert await store.inspector.jobs(JobFilter()) == []
    assert await store.inspector.schedules() == before


async def test_one_that_is_put_again_after_a_delete_begins_afresh(store: Store) -> None:
    await put_one(store)
    due = await due_one(store)
    await fire_one(store, firing(due, due.since))
    await store.pause_schedule("nightly", paused=True)
    await store.delete_schedule("nightly")
    assert await put_one(store) is Put.CREATED
    row = await store.inspector.schedule("nightly")
    assert row is not None
    assert not row.paused
    assert (row.fired, row.last_tick, row.last_job) == (0, None, None)
    assert (await due_one(store)).revision != due.revision


async def test_a_firing_decided_before_a_delete_and_a_put_does_nothing(store: Store) -> None:
    await put_one(store)
    due = await due_one(store)
    await store.delete_schedule("nightly")
    await put_one(store)
    assert (await row_of(store)).revision > due.revision
    assert not (await fire_one(store, firing(due, due.since))).won


async def test_a_paused_schedule_is_not_due_and_goes_on_after_now(store: Store) -> None:
    await put_one(store)
    assert await store.pause_schedule("nightly", paused=True)
    assert (await store.due_schedules()).schedules == []
    assert (await store.observe()).next_tick is None
    before = await row_of(store)
    assert before.paused
    assert await store.pause_schedule("nightly", paused=False)
    after = await row_of(store)
    assert not after.paused
    assert after.since > before.since
    assert after.next_tick == after.since
    assert await store.pause_schedule("nightly", paused=False)
    assert await row_of(store) == after
    assert not await store.pause_schedule("other", paused=True)


async def test_the_look_tells_when_the_next_schedule_is_due(store: Store) -> None:
    assert (await store.observe()).next_tick is None
    await put_one(store)
    now = (await store.observe()).next_tick
    assert now is not None
    assert now <= 0
    due = await due_one(store)
    await fire_one(store, firing(due, then=due.since + 50))
    later = (await store.observe()).next_tick
    assert later is not None
    assert 0 < later <= 50
    look = await store.due_schedules()
    assert (look.schedules, look.next_tick) == ([], due.since + 50)
    await put_one(store, "never")
    await fire_one(store, firing(await due_one(store), then=None))
    assert (await store.due_schedules()).next_tick == due.since + 50


async def test_due_schedules_come_page_by_page_the_longest_due_first(store: Store) -> None:
    names = [f"s{n}" for n in range(5)]
    await store.put_schedules([schedule(name) for name in names])
    found: list[tuple[float, str]] = []
    after = (-1e16, "")
    while page := (await store.due_schedules(2, after)).schedules:
        found += [(each.next_tick, each.name) for each in page]
        after = found[-1]
    assert found == sorted(found)
    assert sorted(name for _, name in found) == names


async def test_what_is_accounted_for_stays_so_when_the_clock_steps_back(store: Store) -> None:
    await put_one(store)
    due = await due_one(store)
    ahead = due.since + 3_600.0
    assert (await fire_one(store, firing(due, ahead, then=due.since))).won
    again = await due_one(store)
    assert again.since == ahead
    await fire_one(store, firing(again, since=due.since, then=due.since))
    assert (await row_of(store)).since == ahead
    for paused in (True, False):
        await store.pause_schedule("nightly", paused=paused)
    assert (await row_of(store)).since == ahead


async def test_odd_names_are_names(store: Store) -> None:
    for name in ODD:
        assert await put_one(store, name) is Put.CREATED
        due = await due_one(store)
        assert due.name == name
        answer = await fire_one(store, firing(due, due.since))
        assert answer.won
        stored, *_ = await store.inspector.jobs(JobFilter())
        assert stored.policy.schedule == name
        assert await store.delete_schedule(name) is Deleted.DELETED


NASTY: list[dict[str, Any]] = [
    {"name": "a\0b"},
    {"name": "\ud800"},
    {"spec": "\0"},
    {"spec": "\ud800"},
    {"grace": float("nan")},
    {"grace": -1.0},
    {"grace": 1e300},
    {"call": job(queue="\ud800")},
]


async def test_what_cannot_be_stored_is_refused_with_all_that_came_along(store: Store) -> None:
    for fields in NASTY:
        with pytest.raises(BadData):
            await store.put_schedules([schedule("a"), schedule(**({"name": "b"} | fields))])
        assert (fields, await store.inspector.schedules()) == (fields, [])


async def test_a_bad_call_is_refused_when_it_is_fired_and_leaves_its_tick_due(store: Store) -> None:
    await put_one(store, call=job(priority=101))
    due = await due_one(store)
    with pytest.raises(BadData):
        await store.fire([firing(due, due.since)])
    assert await due_one(store) == due


# ------------------------------------------------------------------- each tick is accounted for


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


# ------------------------------------------------------------- schedules that the code declares


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
