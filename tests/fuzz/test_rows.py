"""Random rows stop no verb and no document: a few of them here, many by ``make fuzz``."""

from __future__ import annotations

import asyncio
import os
import resource
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlast.store import open_store
from outlast.store.base import Store
from tests.conformance.hostile_kit import Raw, raw, shows, victims, works_on
from tests.conformance.test_hostile_rows import ATTEMPTS, JOBS, WORKERS
from tests.fuzz.rows import literals

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))
GROWTH_MAX = 200 * 1024  # KiB that the process may grow by
COLUMNS = [
    *(("outlast_jobs", "id", column) for column in JOBS),
    *(("outlast_attempts", "job_id", column) for column in ATTEMPTS),
    *(("outlast_workers", "id", column) for column in WORKERS),
]
fuzzed = settings(
    max_examples=EXAMPLES or 20,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
Spoils = list[tuple[tuple[str, str, str], str]]


def spoils(dialect: str) -> st.SearchStrategy[Spoils]:
    return st.lists(st.tuples(st.sampled_from(COLUMNS), literals(dialect)), min_size=1, max_size=8)


@given(spoils("sqlite"))
@fuzzed
def test_random_rows_stop_nothing_on_sqlite(wrong: Spoils) -> None:
    with tempfile.TemporaryDirectory() as directory:
        _bounded(f"sqlite:///{Path(directory) / 'it.db'}", wrong)


def test_random_rows_stop_nothing_on_postgres(pg_url: str) -> None:
    @given(spoils("postgres"))
    @fuzzed
    def fuzz(wrong: Spoils) -> None:
        _bounded(pg_url, wrong)

    fuzz()


def _bounded(url: str, wrong: Spoils) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    asyncio.run(_fuzz(url, wrong))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH_MAX


async def _fuzz(url: str, wrong: Spoils) -> None:
    async with asyncio.timeout(120), opened(url) as store, raw(url) as file:
        await _empty(file)
        ids = await victims(store)
        workers = [each.id for each in await store.inspector.workers()]
        for number, ((table, key, column), value) in enumerate(wrong):
            some = workers if table == "outlast_workers" else ids
            whose = some[number % len(some)]
            await file.run(f"UPDATE {table} SET {column} = {value} WHERE {key} = {whose}")
        await works_on(store)
        await shows(store, ids)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = open_store(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def _empty(file: Raw) -> None:
    for table in ("outlast_jobs", "outlast_attempts", "outlast_workers"):
        assert await file.run(f"DELETE FROM {table}")
