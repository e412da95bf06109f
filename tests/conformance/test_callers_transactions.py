"""What a caller's transaction may do to ours: roll back in parts, do things twice, fail."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import asyncpg
import django.db
import psycopg
import pytest
import sqlalchemy.exc
from django.db import transaction

from outlast.client.attempt import Attempt
from outlast.errors import LostLease, OutlastError
from outlast.model.job import State
from tests.conformance import shop_kit
from tests.conformance.connections_kit import (
    ON_POSTGRES,
    ON_SQLITE,
    Aiosqlite,
    Asyncpg,
    AsyncPsycopg,
    Caller,
    Django,
    Psycopg,
    Sqlite3,
    opened,
)
from tests.conformance.kit import Hands
from tests.conformance.shop_kit import (
    Link,
    Shop,
    chief_kinds,
    every_connection,
    of,
    orders,
    params,
    write,
)

kind, shop, caller = shop_kit.kind, shop_kit.shop, shop_kit.caller
with_blocks = of(*({*ON_SQLITE, *ON_POSTGRES} - {Sqlite3, Aiosqlite}))
on_postgres = pytest.mark.parametrize(
    "kind", [each for each in params(*ON_POSTGRES) if each.values[0][0] == "pg_url"], indirect=True
)


def nested(caller: Caller) -> Any:
    """Return a block of the library's own inside the open transaction."""
    if isinstance(caller, Django):
        return transaction.atomic(using=caller._alias)
    if isinstance(caller, Asyncpg | Psycopg | AsyncPsycopg):
        return caller.connection.transaction()
    return caller.connection.begin_nested()


async def enter(caller: Caller) -> Any:
    block = await caller.call(nested, caller)
    await caller.call(getattr(block, "__aenter__", None) or block.__enter__)
    return block


async def leave(caller: Caller, block: Any, error: BaseException | None = None) -> None:
    leaves = getattr(block, "__aexit__", None) or block.__exit__
    await caller.call(leaves, error and type(error), error, None)


# ------------------------------------------------------------------- completions done again


@chief_kinds
async def test_a_completion_that_was_taken_back_is_done_again_and_one_that_stands_is_not(
    shop: Shop, caller: Caller
):
    attempt, _ = await shop.attempt()
    await write(caller)
    await caller.complete(attempt, "rolled back")
    await caller.call(caller.rollback)

    await write(caller)
    await caller.call(caller.execute, "SAVEPOINT here")
    await caller.complete(attempt, "behind the savepoint")
    await caller.call(caller.execute, "ROLLBACK TO SAVEPOINT here")
    await caller.complete(attempt, "stands")
    with pytest.raises(LostLease, match="an earlier complete_in may have completed it"):
        await caller.complete(attempt, "second in the transaction")
    await caller.call(caller.commit)

    await write(caller)  # a program that has not heard of its commit begins again
    with pytest.raises(LostLease):
        await caller.complete(attempt, "after the commit")
    await caller.call(caller.rollback)
    row = await shop.row(attempt)
    assert (row.state, row.result, await orders(shop)) == (State.COMPLETED, '"stands"', 1)


@with_blocks
async def test_a_nested_block_takes_back_what_it_has_done_and_nothing_else(
    shop: Shop, caller: Caller
):
    attempt, _ = await shop.attempt()
    await write(caller)
    await caller.enqueue(shop.mail, "before")
    block = await enter(caller)
    await caller.enqueue(shop.mail, "inside")
    await caller.complete(attempt, "inside")
    await leave(caller, block, ValueError("as asked"))
    block = await enter(caller)
    await caller.enqueue(shop.mail, "behind")
    await leave(caller, block)
    await caller.call(caller.commit)
    assert await shop.jobs() == ['{"to":"first"}', '{"to":"before"}', '{"to":"behind"}']
    assert ((await shop.row(attempt)).state, await orders(shop)) == (State.RUNNING, 1)


@with_blocks
async def test_what_a_nested_block_has_completed_goes_with_the_outer_one(
    shop: Shop, caller: Caller
):
    attempt, _ = await shop.attempt()
    for ends, state in ((caller.rollback, State.RUNNING), (caller.commit, State.COMPLETED)):
        await write(caller)
        block = await enter(caller)
        await caller.complete(attempt, None)
        await leave(caller, block)
        await caller.call(ends)
        assert (await shop.row(attempt)).state is state


@every_connection
async def test_a_job_that_is_enqueued_with_an_expiry_has_it(shop: Shop, caller: Caller):
    """Also where it has expired by the time of the commit."""
    late = datetime(2020, 1, 1, tzinfo=UTC)
    wanted: list[dict[str, Any]] = [
        {"expires": 3_600},
        {"expires": 3_600, "key": "k"},
        {"expires": late},
    ]
    await write(caller)
    made = [await caller.enqueue(shop.mail.using(**each), "x") for each in wanted]
    await caller.call(caller.commit)
    rows = [await shop.row(each) for each in made]
    for row in rows[:2]:
        assert row.expires_at == pytest.approx(row.enqueued_at + 3_600, abs=0.01)
    assert rows[2].expires_at == late.timestamp()
    hands = await Hands.on(shop.store, tasks=["mail"])
    assert len(await hands.claim(5, tasks=["mail"])) == 2
    assert (await shop.row(made[2])).reason == "expired"


# ------------------------------------------------------------------------------------- keys


@every_connection
async def test_a_follow_up_can_have_the_key_of_the_attempt_that_is_completed(
    shop: Shop, caller: Caller
):
    keyed = shop.mail.using(key="k")
    first = await keyed.enqueue("first")
    (claimed,) = await (await Hands.on(shop.store, tasks=["mail"])).claim(1, tasks=["mail"])
    attempt = Attempt(Link(await shop.store.store_id()), claimed)  # type: ignore[arg-type]
    for ends in (caller.rollback, caller.commit):
        await write(caller)
        early = await caller.enqueue(keyed, "next")
        await caller.complete(attempt, None)
        late = [await caller.enqueue(keyed, "next") for _ in range(2)]
        await caller.call(ends)
        assert (early.id, early.created) == (first.id, False)
        assert [one.created for one in late] == [True, False]
        assert late[0].id == late[1].id != first.id
    assert await shop.jobs() == ['{"to":"first"}', '{"to":"next"}']
    assert (await shop.row(first)).state is State.COMPLETED
    assert (await keyed.enqueue("next")).id == late[0].id


# ------------------------------------------------------------------ errors of the caller's own


def is_its_own(caller: Caller, error: BaseException) -> bool:
    """Whether this is an error as the caller's library raises it, for the caller's retry loop."""
    if isinstance(caller, Django):
        return isinstance(error, django.db.Error)
    if isinstance(caller, Asyncpg):
        return isinstance(error, asyncpg.PostgresError)
    if isinstance(caller, Psycopg | AsyncPsycopg):
        return isinstance(error, psycopg.Error)
    return isinstance(error, sqlalchemy.exc.DBAPIError)


@on_postgres
async def test_in_a_transaction_that_has_failed_nothing_is_done_until_the_rollback(
    shop: Shop, caller: Caller
):
    attempt, _ = await shop.attempt()
    for used_before in (False, True):
        await write(caller)
        if used_before:
            await caller.enqueue(shop.mail, "lost")
        with pytest.raises(Exception, match="zero"):
            await caller.call(caller.execute, "SELECT 1 / 0")
        for does in (caller.enqueue(shop.mail, "a"), caller.complete(attempt, None)):
            with pytest.raises(Exception, match="aborted") as raised:
                await does
            assert is_its_own(caller, raised.value)
        await caller.call(caller.rollback)
        assert not attempt.completed_in
    await write(caller)
    await caller.enqueue(shop.mail, "b")
    await caller.complete(attempt, None)
    await caller.call(caller.commit)
    assert await shop.jobs() == ['{"to":"first"}', '{"to":"b"}']
    assert (await shop.row(attempt)).state is State.COMPLETED


@on_postgres
async def test_a_conflict_is_told_by_an_error_of_the_callers_library(shop: Shop, caller: Caller):
    attempt, _ = await shop.attempt()
    async with opened(Asyncpg, shop.url) as other:
        await write(other)
        await other.connection.execute("SELECT FROM outlast_jobs FOR UPDATE")
        await write(caller)
        await caller.call(caller.execute, "SET LOCAL lock_timeout = 50")
        with pytest.raises(Exception, match="lock timeout") as raised:
            await caller.complete(attempt, None)
        assert is_its_own(caller, raised.value)
        assert not isinstance(raised.value, OutlastError)
        await caller.call(caller.rollback)
    assert not attempt.completed_in
