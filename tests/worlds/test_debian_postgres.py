"""Debian's PostgreSQL, which speaks German, and whose disk damages an index."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import asyncpg
import psycopg
import pytest

from harness.servers import PostgresMissing, PostgresServer, find_debian_binaries
from harness.stores import opened
from outlast.errors import NotPermitted, StoreCorrupt
from outlast.store.postgres.errors import foreign_errors
from outlast.store.protocol import Store
from tests.conformance.kit import Hands, ended, enqueued, job

pytestmark = [pytest.mark.timeout(300), pytest.mark.debian_postgres]
ROLE = "outlast_hidden"


@pytest.fixture(scope="module")
def german() -> Iterator[PostgresServer]:
    try:
        binaries = find_debian_binaries()
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    says = {"lc_messages": "C.UTF-8"}
    with PostgresServer(says, env={"LANGUAGE": "de"}, binaries=binaries) as server:
        with pytest.raises(RuntimeError, match="FEHLER"):
            server.sql("SELECT nothing")
        yield server


@pytest.fixture
async def url(german: PostgresServer) -> AsyncIterator[str]:
    yield await asyncio.to_thread(german.create_database, "german")
    await asyncio.to_thread(german.drop_database, "german")


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with opened(url) as store:
        yield store


@pytest.mark.parametrize("secured", [True, False])
async def test_what_a_role_lacks_is_told_in_each_language(
    german: PostgresServer, url: str, store: Store, secured: bool
) -> None:
    german.sql(f"DROP ROLE IF EXISTS {ROLE}; CREATE ROLE {ROLE} LOGIN")
    says = "BYPASSRLS" if secured else "outlast migrate --grant"
    if secured:
        german.sql("ALTER TABLE outlast_jobs ENABLE ROW LEVEL SECURITY", "german")
        german.sql(f"GRANT SELECT ON outlast_jobs TO {ROLE}", "german")
    hidden = url.replace("postgres@", f"{ROLE}@")
    looks = "SET row_security = off; SELECT count(*) FROM outlast_jobs"
    mine = await asyncpg.connect(hidden)
    with pytest.raises(NotPermitted, match=says), foreign_errors():
        await mine.execute(looks)
    await mine.close()
    with (
        psycopg.connect(hidden) as other,
        pytest.raises(NotPermitted, match=says),
        foreign_errors(),
    ):
        other.execute(looks.encode())
    german.sql(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}", "german")


async def test_a_damaged_index_is_named_and_work_goes_on_once_it_is_built_again(
    german: PostgresServer, url: str, store: Store
) -> None:
    await enqueued(store, *[job(key=f"k{n}") for n in range(3)])
    where = german.sql("SELECT pg_relation_filepath('outlast_jobs_key')", "german")
    await store.close()
    await asyncio.to_thread(german.stop)
    with (german.data / where).open("r+b") as file:
        file.seek(8192)
        file.write(bytes(range(256)) * 16)
    await asyncio.to_thread(german.start)
    async with opened(german.url("german")) as again:
        with pytest.raises(StoreCorrupt, match="REINDEX DATABASE") as failed:
            await enqueued(again, job(key="k9"))
        number = where.rpartition("/")[2]
        assert f"/{number}" in str(failed.value)
        named = german.sql(f"SELECT pg_filenode_relation(0, {number})", "german")
        assert named == "outlast_jobs_key"
        assert "pg_filenode_relation(0, NUMBER)" in str(failed.value)
        german.sql("REINDEX DATABASE german", "german")
        await enqueued(again, job(key="k9"))
        hands = await Hands.on(again)
        claimed = await hands.claim(4)
        assert len(await hands.hand_in(*map(ended, claimed))) == 4
