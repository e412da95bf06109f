"""A migration beside programs that work: a try is short, others pass, and it is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import asyncpg
import pytest

from outlast.errors import ConfigError, SchemaMismatch, StoreUnavailable
from outlast.store import migrations
from outlast.store.migrations import Step
from outlast.store.postgres import schema
from outlast.store.postgres.store import PostgresStore
from tests.conformance.kit import enqueued
from tests.postgres.kit import blocked

COLUMN = "ALTER TABLE outlast_jobs ADD COLUMN note integer NOT NULL DEFAULT 7;"
INDEX = "CREATE INDEX CONCURRENTLY outlast_jobs_note ON outlast_jobs (id) WHERE args <> '';"
IS_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('outlast_jobs_note')"
REFUSES_UNLOGGED = """
CREATE FUNCTION public.refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() c JOIN pg_class t ON t.oid = c.objid
               WHERE c.classid = 'pg_class'::regclass AND t.relpersistence = 'u') THEN
        RAISE 'no such tables here';
    END IF;
END
$$;
CREATE EVENT TRIGGER refuse ON ddl_command_end EXECUTE FUNCTION public.refuse()
"""
load_shipped = migrations.load


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], PostgresStore]]:
    """Return a function that makes the store, as a program with one more step knows it."""
    extra: list[Step] = []
    monkeypatch.setattr(schema, "load", lambda dialect: [*load_shipped(dialect), *extra])

    def make(url: str, text: str, **options: Any) -> PostgresStore:
        number = len(load_shipped("postgres")) + 1
        head = f"-- {number:04} more: something.\n-- compatible_from: 0.1\n"
        extra[:] = [migrations.step_of(f"migration_{number:04}_more.sql", head + text)]
        store = PostgresStore(url, **options)
        assert store._steps[-1].number == number  # read now
        extra.clear()
        return store

    return make  # type: ignore[return-value]


async def test_who_wants_a_table_waits_behind_no_migration_that_waits_for_a_long_transaction(
    store: PostgresStore, session: Any, watcher: Any, newer: Any, pg_url: str
) -> None:
    await enqueued(store)
    migrating = newer(pg_url, COLUMN)
    async with session.transaction():
        await session.execute("SELECT count(*) FROM outlast_jobs")
        done = asyncio.create_task(migrating.migrate())
        await blocked(watcher)
        await enqueued(store)  # behind the try that waits now, until that is given up
        assert not done.done()
    (step,) = await done
    assert step.name == "more"
    assert await session.fetchval("SELECT sum(note) FROM outlast_jobs") == 14
    await migrating.close()


async def test_a_migration_that_never_gets_its_lock_is_given_up_and_says_what_to_look_at(
    store: PostgresStore, session: Any, newer: Any, pg_url: str
) -> None:
    migrating = newer(pg_url, COLUMN, statement_timeout=1.0)
    async with session.transaction():
        await session.execute("SELECT count(*) FROM outlast_jobs")
        with pytest.raises(StoreUnavailable, match="another session may hold a lock"):
            await migrating.migrate()
    await migrating.migrate()
    await migrating.close()


async def test_an_index_of_a_table_with_rows_is_built_while_others_write(
    store: PostgresStore, session: Any, watcher: Any, newer: Any, pg_url: str
) -> None:
    """What an earlier try has left, which is not valid, is replaced."""
    await enqueued(store)
    await session.execute(INDEX)
    await session.execute(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'outlast_jobs_note'::regclass"
    )
    migrating = newer(pg_url, INDEX, statement_timeout=2.0)
    async with session.transaction():
        await session.execute("UPDATE outlast_jobs SET priority = 1")
        done = asyncio.create_task(migrating.migrate())
        await blocked(watcher)  # by this transaction, and others do not wait
        await asyncio.wait_for(enqueued(store), 25)
        assert not done.done()
    (step,) = await done
    assert step.name == "more"
    assert await session.fetchval(IS_VALID) is True
    assert await migrating.migrate() == []
    await migrating.close()


async def test_a_new_store_gets_the_index_with_its_tables(bare_pg_url: str, newer: Any) -> None:
    """In the transaction of the step, so that also a pooler allows it."""
    made = newer(bare_pg_url, INDEX)
    await made.open()
    session = await asyncpg.connect(bare_pg_url)
    assert await session.fetchval(IS_VALID) is True
    await session.close()
    await made.close()


async def test_an_index_of_a_table_with_rows_is_not_built_through_a_pooler(
    store: PostgresStore, newer: Any, pg_url: str
) -> None:
    await enqueued(store)
    migrating = newer(pg_url, INDEX, pooler=True)
    with pytest.raises(SchemaMismatch, match="a URL that leads to PostgreSQL itself"):
        await migrating.migrate()
    await migrating.close()


@pytest.mark.parametrize(
    ("what", "refuses"),
    [
        ("unlogged tables", REFUSES_UNLOGGED),
        ("advisory locks", "pg_try_advisory_lock_shared(bigint)"),
        ("NOTIFY", "pg_notify(text, text)"),
        ("LISTEN", None),
    ],
    ids=["unlogged", "locks", "notify", "listen"],
)
async def test_a_server_that_refuses_what_a_store_needs_gets_no_schema_and_is_told_what(
    bare_pg_url: str, bare_session: Any, monkeypatch: pytest.MonkeyPatch, what: str, refuses: Any
) -> None:
    if refuses is None:  # no server of PostgreSQL's refuses it
        monkeypatch.setitem(schema._SQL, "try_listen", "LISTENING outlast_tried")
    elif refuses.startswith("pg_"):
        await bare_session.execute(f"ALTER FUNCTION pg_catalog.{refuses} RENAME TO refused")
    else:
        await bare_session.execute(refuses)
    store = PostgresStore(bare_pg_url)
    cure = "disable its event trigger" if refuses == REFUSES_UNLOGGED else "name another server"
    with pytest.raises(ConfigError, match=f"(?s)this server refuses {what}, and Outlast.*: {cure}"):
        await store.open()
    assert await bare_session.fetchval("SELECT to_regclass('outlast_jobs')") is None
    await store.close()
