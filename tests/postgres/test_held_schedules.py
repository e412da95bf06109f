"""A schedule whose row or key a user's transaction holds for long delays no other one."""

from __future__ import annotations

import asyncio
from typing import Any

from outlast.model.schedule_plan import Overlap
from outlast.store.foreign import checked
from outlast.store.postgres.store import PostgresStore
from outlast.store.schedules import DECLARED_SECONDS, RENEW_SECONDS, Origin, Put
from tests.conformance.kit import job
from tests.conformance.schedules_kit import firing, schedule

HOLD = "SELECT FROM outlast_schedules WHERE name = 'b' FOR UPDATE"


async def test_a_held_row_keeps_no_other_schedule_from_being_declared(
    store: PostgresStore, session: Any
) -> None:
    code = [schedule(name) for name in "abc"]
    await store.put_schedules(code, Origin.CODE)
    await session.execute("UPDATE outlast_schedules SET declared_at = 0")
    async with session.transaction():
        await session.execute(HOLD)
        answers = await store.put_schedules(code, Origin.CODE)
    assert answers == [Put.SAME, Put.HELD, Put.SAME]
    rows = await store.inspector.schedules()
    assert [row.declared_at == 0 for row in rows] == [False, True, False]
    assert await store.put_schedules(code, Origin.CODE) == [Put.SAME] * 3


async def test_a_held_row_that_was_just_declared_needs_no_lock(
    store: PostgresStore, session: Any
) -> None:
    code = [schedule(name) for name in "abc"]
    await store.put_schedules(code, Origin.CODE)
    async with session.transaction():
        await session.execute(HOLD)
        assert await store.put_schedules(code, Origin.CODE) == [Put.SAME] * 3


async def test_what_the_code_declares_waits_for_no_row(store: PostgresStore, session: Any) -> None:
    """Each row that it waited for would take as long again: all of them, longer than this may."""
    code = [schedule(f"s{n:02}") for n in range(40)]
    await store.put_schedules(code, Origin.CODE)
    await session.execute("UPDATE outlast_schedules SET declared_at = 0")
    async with session.transaction():
        await session.execute("SELECT FROM outlast_schedules FOR UPDATE")
        async with asyncio.timeout(20):
            assert await store.put_schedules(code, Origin.CODE) == [Put.HELD] * 40
    assert await store.put_schedules(code, Origin.CODE) == [Put.SAME] * 40


async def test_a_held_row_whose_declaration_is_in_use_stands_as_it_is(
    store: PostgresStore, session: Any
) -> None:
    """As while another worker renews it."""
    code = [schedule(name) for name in "abc"]
    await store.put_schedules(code, Origin.CODE)
    lately = "UPDATE outlast_schedules SET declared_at = declared_at - $1"
    await session.execute(lately, 2 * RENEW_SECONDS)
    changed = schedule("b", call=job(task="other"))
    async with session.transaction():
        await session.execute(HOLD)
        assert await store.put_schedules(code, Origin.CODE) == [Put.SAME] * 3
        assert await store.put_schedules([changed], Origin.CODE) == [Put.HELD]
    assert await store.put_schedules([changed], Origin.CODE) == [Put.CHANGED]


async def test_a_name_that_is_not_committed_yet_keeps_no_other_from_being_declared(
    store: PostgresStore, session: Any
) -> None:
    code = [schedule(name) for name in "abc"]
    transaction = session.transaction()
    await transaction.start()
    foreign = await checked(session, await store.store_id())
    await foreign.put_schedules([schedule("b")])
    answers = await store.put_schedules(code, Origin.CODE)
    assert answers == [Put.CREATED, Put.HELD, Put.CREATED]
    await transaction.rollback()
    answers = await store.put_schedules(code, Origin.CODE)
    assert answers == [Put.SAME, Put.CREATED, Put.SAME]


async def test_a_held_row_lets_the_others_fall_asleep(store: PostgresStore, session: Any) -> None:
    await store.put_schedules([schedule(name) for name in "abc"], Origin.CODE)
    long_ago = "UPDATE outlast_schedules SET declared_at = declared_at - $1"
    await session.execute(long_ago, 2 * DECLARED_SECONDS)
    async with session.transaction():
        await session.execute(HOLD)
        assert await store.note_undeclared(["a", "b", "c"]) == 2
    assert await store.note_undeclared(["a", "b", "c"]) == 1


async def test_a_key_that_is_not_committed_yet_delays_no_other_schedule(
    store: PostgresStore, session: Any
) -> None:
    keyed = schedule("b", call=job(key="k"), overlap=Overlap.ALLOW)
    await store.put_schedules([schedule("a"), keyed, schedule("c")])
    due = (await store.due_schedules()).schedules
    firings = [firing(each, each.since) for each in sorted(due, key=lambda one: one.name)]
    transaction = session.transaction()
    await transaction.start()
    foreign = await checked(session, await store.store_id())
    await foreign.enqueue([job(key="k")])
    assert [answer.won for answer in await store.fire(firings)] == [True, False, True]
    await transaction.rollback()
    assert [answer.won for answer in await store.fire(firings)] == [False, True, False]
