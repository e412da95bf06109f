"""Databases that were changed below Outlast: collations, renamed schemas, lost functions."""

from __future__ import annotations

from typing import Any

import pytest

from harness.servers import PostgresServer
from outlast.errors import SchemaMismatch
from outlast.store.postgres.checks import PostgresFacts
from outlast.store.postgres.store import PostgresStore

SORTED = """
SELECT c.relname || ' (' || a.attname || ')'
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL unnest(i.indcollation::oid[]) WITH ORDINALITY AS u (sorted, place)
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = u.place
WHERE n.nspname = 'public' AND u.sorted NOT IN (0, '"C"'::regcollation) ORDER BY 1"""


async def facts_of(store: PostgresStore) -> PostgresFacts:
    found = await store.inspector.environment()
    assert isinstance(found, PostgresFacts)
    return found


async def test_no_index_depends_on_the_collation_of_the_database(
    store: PostgresStore, session: Any
) -> None:
    """After an upgrade of the C library or ICU its order is wrong: keys are not unique."""
    assert [name for (name,) in await session.fetch(SORTED)] == []


async def test_the_doctor_names_a_collation_that_is_another_one_now(
    pg_server: PostgresServer,
) -> None:
    if int(pg_server.sql("SHOW server_version_num")) < 170_000:
        pytest.skip("PostgreSQL 17 and later have built-in locales")
    made = "CREATE DATABASE collated TEMPLATE template0 LOCALE_PROVIDER builtin LOCALE 'C.UTF-8'"
    pg_server.sql(made)
    store = PostgresStore(pg_server.url("collated"))
    try:
        await store.open()
        assert (await facts_of(store)).collation is None
        pg_server.sql("UPDATE pg_database SET datcollversion = 0 WHERE datname = 'collated'")
        assert (await facts_of(store)).collation == "0, now 1"
    finally:
        await store.close()
        pg_server.drop_database("collated")


MOVED = """
SELECT p.proname::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'shop' AND array_to_string(p.proconfig, '|') LIKE '%search\\_path=public%'
ORDER BY 1"""


async def test_a_renamed_schema_is_found_by_the_doctor_and_followed_by_migrate(
    pg_url: str, session: Any
) -> None:
    """Those functions find nothing, or, once there is a schema of the old name, another store."""
    await session.execute("ALTER SCHEMA public RENAME TO shop")
    pinned = [name for (name,) in await session.fetch(MOVED)]
    assert "outlast_enqueue_v1" in pinned
    store = PostgresStore(f"{pg_url}?options=-csearch_path%3Dshop")
    assert (await facts_of(store)).misled == {"renamed": pinned}
    lacks = [step.name for step in await store.migrations() if step.applied_at is None]
    assert len(lacks) == 1
    assert [step.name for step in await store.migrate()] == lacks
    assert await store.migrate() == []
    assert not [step for step in await store.migrations() if step.applied_at is None]
    assert (await facts_of(store)).misled == {}
    assert await session.fetch(MOVED) == []
    await session.execute(
        "INSERT INTO shop.outlast_tasks (name, limits, fair, priority) VALUES ('t', '[]', false, 0)"
    )
    assert await session.fetchval("SELECT shop.outlast_enqueue_v1('t')") == 1
    await store.close()


async def test_lost_functions_are_missed(store: PostgresStore, session: Any) -> None:
    """As after a restore that broke off."""
    await session.execute("DROP FUNCTION outlast_peek_v1 CASCADE; DROP FUNCTION outlast_close_v1")
    for verb in (store.open, store.migrate):
        with pytest.raises(SchemaMismatch, match="outlast_close_v1, outlast_peek_v1: restore"):
            await verb()


async def test_the_doctor_says_that_a_role_may_not_end_its_own_sessions(
    pg_url: str, session: Any
) -> None:
    """As with logins that are made for hours, and take the role of the application."""
    await session.execute("CREATE ROLE outlast_app; CREATE ROLE outlast_login LOGIN")
    try:
        await session.execute("GRANT outlast_app TO outlast_login")
        store = PostgresStore(pg_url.replace("postgres@", "outlast_login@"))
        assert not (await facts_of(store)).borrowed
        await store.close()
        await session.execute("ALTER ROLE outlast_login SET role = outlast_app")
        assert (await facts_of(store)).borrowed
        await store.close()
    finally:
        await session.execute("DROP ROLE outlast_login; DROP ROLE outlast_app")
