"""Other roles of the database: nothing that they may create runs as the role of a worker."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from harness.pgbouncer import PgBouncerServer
from outlast.errors import SchemaMismatch
from outlast.store.postgres.checks import PostgresFacts
from outlast.store.postgres.pool import Connections
from outlast.store.postgres.presence import PostgresPresence
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import Purpose, Requeued, Save
from tests.conformance.kit import Hands, enqueued, job, on
from tests.postgres.wakeup_kit import hears

STRANGER, OWNER, WORKER = "outlast_stranger", "outlast_owner", "outlast_other"
RAISES = "LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'ran as %', current_user; END $$"
OPERATOR = f"""
    CREATE FUNCTION public.spy(text, bigint) RETURNS text {RAISES};
    CREATE OPERATOR public.|| (LEFTARG = text, RIGHTARG = bigint, FUNCTION = public.spy)
"""
APPENDING = f"""
    CREATE FUNCTION public.append(bigint[], bigint) RETURNS bigint[] {RAISES};
    CREATE OPERATOR public.|| (LEFTARG = bigint[], RIGHTARG = bigint, FUNCTION = public.append)
"""
AGGREGATE = f"""
    CREATE FUNCTION public.spy(bigint[], bigint) RETURNS bigint[] {RAISES};
    CREATE AGGREGATE public.array_agg (bigint) (SFUNC = public.spy, STYPE = bigint[])
"""
TABLES = f"""
    CREATE FUNCTION public.spy() RETURNS integer {RAISES};
    CREATE VIEW public.outlast_schema AS
    SELECT public.spy() AS number, '' AS name, '' AS checksum, '' AS compatible_from,
           0.0::float8 AS applied_at
"""
CHANNEL = f"""
    CREATE FUNCTION public.outlast_channel_v1() RETURNS text {RAISES};
"""
TRIGGER = f"""
    CREATE FUNCTION spy() RETURNS trigger {RAISES};
    CREATE TRIGGER spy BEFORE INSERT ON public.outlast_jobs EXECUTE FUNCTION spy()
"""


@pytest.fixture
def pg_url(bare_pg_url: str) -> str:
    """The owner of the tables, which these tests choose."""
    return bare_pg_url


@pytest.fixture(autouse=True)
async def roles(pg_url: str, session: Any) -> AsyncIterator[None]:
    """Three roles, and a schema public that is open to all, as in PostgreSQL 14."""
    names = (STRANGER, OWNER, WORKER)
    for name in names:
        await session.execute(f"DROP ROLE IF EXISTS {name}; CREATE ROLE {name} LOGIN")
    await session.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
    yield
    await session.execute("SET search_path = pg_catalog")
    database = await session.fetchval("SELECT current_database()")
    await session.execute(f'ALTER DATABASE "{database}" OWNER TO postgres')
    for name in names:
        await session.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def url_of(pg_url: str, role: str) -> str:
    return f"postgresql://{role}@{pg_url.partition('@')[2]}"


def on_path(url: str, path: str) -> str:
    return f"{url}?options=-csearch_path%3D{path}"


async def run_as(pg_url: str, role: str, text: str) -> None:
    connection = await asyncpg.connect(url_of(pg_url, role))
    await connection.execute(text)
    await connection.close()


async def opened(url: str) -> None:
    store = PostgresStore(url)
    try:
        await store.open()
    finally:
        await store.close()


async def refused(url: str) -> str:
    """Return why neither opening nor migrating this is done."""
    store = PostgresStore(url)
    for call in (store.open, store.migrate, store.migrations):
        with pytest.raises(SchemaMismatch, match="belongs to the role") as failed:
            await call()
    await store.close()
    return str(failed.value)


async def works(url: str, *, pooler: bool = False) -> None:
    """Do, on new connections, what calls operators and functions of many kinds."""
    store = PostgresStore(url, pooler=pooler)
    hands = await Hands.on(store)
    (job_id,) = await enqueued(store)
    await store.cancel([job_id])
    assert await store.requeue([job_id]) == {job_id: Requeued.REQUEUED}
    claimed = await hands.claim_one()
    await store.checkpoint([Save(claimed.job_id, claimed.token, 1, "1")])
    presence = PostgresPresence(url, patience=30)
    assert await presence.hold(hands.me) is None
    assert [seen.presence for seen in (await store.observe()).workers] == ["held"]
    await presence.release()
    await hears(url, store, pooler=pooler)
    await hands.vanish()
    await store.close()


# -- other schemas of the path


@pytest.mark.parametrize("pooler", [False, True], ids=["direct", "pooled"])
@pytest.mark.parametrize("path", ["shop,public", "public,shop"])
async def test_nothing_in_another_schema_of_the_path_ever_runs(
    path: str, pooler: bool, pg_url: str, session: Any
) -> None:
    await session.execute("CREATE SCHEMA shop")
    await opened(on_path(pg_url, "shop"))
    await run_as(pg_url, STRANGER, f"{OPERATOR}; {APPENDING}; {AGGREGATE}; {TABLES}; {CHANNEL}")
    await opened(on_path(pg_url, path))
    await works(on_path(pg_url, path), pooler=pooler)


@pytest.mark.parametrize("pooler", [False, True], ids=["direct", "pooled"])
async def test_temporary_tables_do_not_replace_outlasts_tables(pooler: bool, pg_url: str) -> None:
    store = PostgresStore(pg_url, pooler=pooler)
    await store.open()
    async with store._connections.use() as connection:
        await connection.execute(
            "CREATE TEMP TABLE outlast_jobs (); CREATE TEMP TABLE outlast_schema ()"
        )
    await enqueued(store)
    await store.store_id()
    async with store._connections.use() as same:
        assert same is connection
    await store.close()


async def test_a_schema_with_the_roles_name_made_by_another_role_is_not_used(
    pg_url: str, session: Any
) -> None:
    """Where all roles may create schemas, any role can own the first one of the default path."""
    await opened(pg_url)
    owner = PostgresStore(pg_url)
    await owner.grant(WORKER, Purpose.WORKER)
    await owner.close()
    database = await session.fetchval("SELECT current_database()")
    await session.execute(f'GRANT CREATE ON DATABASE "{database}" TO PUBLIC')
    hers = f"CREATE SCHEMA {WORKER}; GRANT USAGE ON SCHEMA {WORKER} TO PUBLIC; "
    await run_as(pg_url, STRANGER, hers + TABLES.replace("public.", f"{WORKER}."))
    await opened(url_of(pg_url, WORKER))
    await works(url_of(pg_url, WORKER))
    await session.execute("DROP TABLE public.outlast_schema")
    assert f"REVOKE CREATE ON DATABASE {database} FROM PUBLIC" in await refused(
        url_of(pg_url, WORKER)
    )


async def test_a_schema_that_is_made_after_a_refusal_is_found(pg_url: str, session: Any) -> None:
    store = PostgresStore(on_path(pg_url, "shop"))
    with pytest.raises(SchemaMismatch):
        await store.open()
    await session.execute("CREATE SCHEMA shop")
    await store.open()
    async with store._connections.use() as connection:
        assert await connection.fetchval("SHOW search_path") == "shop, pg_temp"
    await store.close()


async def test_callers_connections_keep_their_path(pg_url: str) -> None:
    await opened(pg_url)
    own = await asyncpg.connect(pg_url)
    path = await own.fetchval("SHOW search_path")
    async with own.transaction():
        await on(own).enqueue([job()])
        assert await own.fetchval("SHOW search_path") == path
    await own.close()


# -- our own schema


async def test_tables_made_first_by_another_role_are_refused(pg_url: str, session: Any) -> None:
    await opened(url_of(pg_url, STRANGER))
    await run_as(pg_url, STRANGER, TRIGGER)
    for role in ("postgres", OWNER):
        told = await refused(url_of(pg_url, role))
        assert told.startswith(f"table public.outlast_actions belongs to the role {STRANGER}")
    await session.execute(f"REASSIGN OWNED BY {STRANGER} TO postgres")
    await session.execute(f"ALTER FUNCTION spy OWNER TO {STRANGER}")
    assert "trigger spy on public.outlast_jobs" in await refused(pg_url)


async def test_a_trigger_that_is_added_later_is_refused(pg_url: str, session: Any) -> None:
    await opened(pg_url)
    await session.execute(f"CREATE SCHEMA own AUTHORIZATION {STRANGER}")
    await session.execute(f"GRANT TRIGGER ON outlast_jobs TO {STRANGER}")
    await run_as(pg_url, STRANGER, f"SET search_path = own, public; {TRIGGER}")
    told = await refused(pg_url)
    assert told.startswith(f"trigger spy on public.outlast_jobs belongs to the role {STRANGER}")


PLANTED = [
    (OPERATOR, "operator public.||(pg_catalog.text,bigint)"),
    (AGGREGATE, "aggregate public.array_agg(bigint)"),
    (
        f"CREATE FUNCTION concat_ws(int, int) RETURNS text {RAISES}",
        "function public.concat_ws(integer,integer)",
    ),
    (f"CREATE FUNCTION outlast_x() RETURNS void {RAISES}", "function public.outlast_x()"),
    ("CREATE DOMAIN outlast_x AS text", "type public.outlast_x"),
    ("CREATE TYPE outlast_x AS ENUM ('a')", "type public.outlast_x"),
    ("CREATE TYPE outlast_x AS (a text)", "composite type public.outlast_x"),
    ("CREATE VIEW outlast_x AS SELECT 1", "view public.outlast_x"),
    ("CREATE SEQUENCE outlast_x", "sequence public.outlast_x"),
    ("CREATE TABLE outlast_x ()", "table public.outlast_x"),
]


@pytest.mark.parametrize("made", [False, True], ids=["before", "after"])
async def test_objects_that_shadow_outlasts_or_the_servers_are_refused_with_the_remedy(
    made: bool, pg_url: str, session: Any
) -> None:
    if made:
        await opened(pg_url)
    for text, named in PLANTED:
        await run_as(pg_url, STRANGER, text)
        told = await refused(pg_url)
        assert told.startswith(f"{named} belongs to the role {STRANGER}")
        assert made == (await session.fetchval("SELECT to_regclass('outlast_jobs')") is not None)
        mends = re.search("If not: (DROP .*), and (REVOKE .*), or", told)
        assert mends
        for each in mends.groups():
            await session.execute(each)
        await session.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
    await opened(pg_url)


async def test_a_view_in_place_of_a_table_is_not_read(pg_url: str) -> None:
    await run_as(pg_url, STRANGER, TABLES)
    assert "view public.outlast_schema" in await refused(pg_url)


def overloads() -> str:
    """Operators and functions for all pairs of types: what is not named exactly becomes these."""
    types = ["name", "text", "oid", "bigint", "integer", "boolean", '"char"', "regclass"]
    types += ["name[]", "text[]", "aclitem[]"]
    unary = ("concat", "count", "upper", "unnest", "current_schemas", "aclexplode", "quote_ident")
    made = [
        f"CREATE FUNCTION public.{name}({one}) RETURNS text {RAISES}"
        for one in types
        for name in unary
    ]
    for one, other in itertools.product(types, types):
        made += [
            f"CREATE FUNCTION public.{name}({one}, {other}) RETURNS boolean {RAISES}"
            for name in ("spy", "concat", "pg_has_role")
        ]
        made += [
            f"CREATE OPERATOR public.{name}"
            f" (LEFTARG = {one}, RIGHTARG = {other}, FUNCTION = public.spy)"
            for name in ("=", "<>", "~~", "||", "<")
        ]
    return "; ".join(made)


async def test_the_search_for_foreign_objects_runs_none_of_them(pg_url: str, session: Any) -> None:
    await session.execute("CREATE SCHEMA shop")
    await opened(on_path(pg_url, "shop"))
    await run_as(pg_url, STRANGER, overloads())
    # with pg_catalog last, even exact matches are theirs
    for path in ("shop,public", "public,shop", "public,shop,pg_catalog"):
        await opened(on_path(pg_url, path))
    assert "more objects" in await refused(pg_url)


# -- owners that are trusted


async def trust(session: Any, how: str) -> None:
    database = await session.fetchval("SELECT current_database()")
    ways = {
        "grant": f"GRANT CREATE ON SCHEMA public TO {OWNER}",
        "group": f"GRANT CREATE ON SCHEMA public TO {STRANGER}; GRANT {STRANGER} TO {OWNER}",
        "schema": f"ALTER SCHEMA public OWNER TO {OWNER}",
        "database": f'ALTER DATABASE "{database}" OWNER TO {OWNER}',
    }
    await session.execute(ways[how])


@pytest.mark.parametrize("how", ["grant", "group", "schema", "database"])
async def test_a_named_owner_is_trusted(how: str, pg_url: str, session: Any) -> None:
    await trust(session, how)
    await opened(url_of(pg_url, OWNER))
    owner = PostgresStore(url_of(pg_url, OWNER))
    await owner.grant(WORKER, Purpose.WORKER)
    await owner.close()
    unrelated = "CREATE TABLE unrelated (); CREATE FUNCTION mine() RETURNS integer RETURN 1"
    await run_as(pg_url, WORKER, unrelated)
    await session.execute("CREATE SCHEMA empty; GRANT USAGE ON SCHEMA empty TO PUBLIC")
    for role, path in itertools.product(("postgres", OWNER, WORKER), ("public", "empty,public")):
        await opened(on_path(url_of(pg_url, role), path))


async def test_the_suggested_statement_makes_an_owner_trusted(pg_url: str, session: Any) -> None:
    await opened(url_of(pg_url, OWNER))
    told = await refused(pg_url)
    mend = re.search("If you trust [^:]*: (GRANT .*)\\. If not", told)
    assert mend
    await session.execute(mend[1])
    await opened(pg_url)


async def test_only_roles_that_can_become_the_workers_role_are_trusted(
    pg_url: str, session: Any
) -> None:
    await opened(url_of(pg_url, OWNER))
    await session.execute(f"GRANT {OWNER} TO {WORKER}")
    assert "outlast_actions" in await refused(url_of(pg_url, WORKER))
    await session.execute(f"REVOKE {OWNER} FROM {WORKER}; GRANT {WORKER} TO {OWNER}")
    owner = PostgresStore(url_of(pg_url, OWNER))
    await owner.grant(WORKER, Purpose.WORKER)
    await owner.close()
    await opened(url_of(pg_url, WORKER))


# -- what doctor is told


async def test_doctor_finds_schemas_of_the_path_that_all_roles_may_write(
    pg_url: str, session: Any
) -> None:
    await session.execute('CREATE SCHEMA shop; CREATE SCHEMA "Other, ""one"""')
    await session.execute('GRANT CREATE ON SCHEMA "Other, ""one""" TO PUBLIC')
    database = await session.fetchval("SELECT current_database()")
    await session.execute(
        f'ALTER DATABASE "{database}" SET search_path = "$user", shop, "Other, ""one""", public'
    )
    for revoked in ('Other, "one"', "public", "shop"):
        store = PostgresStore(pg_url)
        await store.open()
        facts = await store.inspector.environment()
        assert isinstance(facts, PostgresFacts)
        left = {"public": ["public"], "shop": []}.get(revoked, ['"Other, ""one"""', "public"])
        assert facts.open_schemas == left
        await store.close()
        quoted = revoked.replace('"', '""')
        await session.execute(f'REVOKE CREATE ON SCHEMA "{quoted}" FROM PUBLIC')


# -- behind a pooler


@pytest.mark.pgbouncer
@pytest.mark.parametrize("silent", [False, True])
async def test_behind_a_pooler_each_transaction_narrows_the_path_and_leaves_none(
    silent: bool, pg_url: str, pgbouncer: PgBouncerServer
) -> None:
    """Also behind one that takes the settings of a session and drops them."""
    await opened(pg_url)
    ignored = "extra_float_digits,default_transaction_isolation,statement_timeout,lock_timeout,"
    ignored += "idle_in_transaction_session_timeout,idle_session_timeout,tcp_user_timeout,jit,"
    ignored += "plan_cache_mode,enable_indexscan,enable_indexonlyscan,enable_nestloop,"
    ignored += "enable_tidscan,array_nulls,row_security,tcp_keepalives_idle,"
    ignored += "tcp_keepalives_interval,tcp_keepalives_count"
    settings = {"default_pool_size": "1"} | (
        {"ignore_startup_parameters": ignored} if silent else {}
    )
    with PgBouncerServer(pg_url, settings=settings) as pooler:
        connections = Connections(pooler.through(pg_url))
        async with connections.use() as connection:
            assert await connection.fetchval("SHOW search_path") == "public, pg_temp"
            assert await connection.fetchval("SHOW jit") == "off"
        other = await asyncpg.connect(pooler.through(pg_url), statement_cache_size=0)
        assert await other.fetchval("SHOW search_path") == '"$user", public'
        assert await other.fetchval("SELECT count(*) FROM pg_prepared_statements") <= 1
        await other.close()
        await connections.close()
