"""A list reads no more rows than it needs, however many jobs there are."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import msgspec

from outlast.insight.flows import FLOWS_MAX, read_flow
from outlast.store.rows import JobFilter
from outlast.store.schedules import NewSchedule
from outlast.store.sqlite import jobs as sqlite_jobs
from outlast.store.sqlite import schema
from outlast.store.sqlite.schedules import put
from outlast.store.values import Upstream
from tests.conformance.kit import job
from tests.sqlite.inspector_kit import inspector_on

JOBS, SHOWN = 3_000, 10
NOW = 1_000.0


async def steps(cursor: sqlite3.Cursor, look: Awaitable[object]) -> int:
    """Return how many steps of SQLite's machine a look takes."""
    count = [0]

    def counts() -> None:
        count[0] += 1

    cursor.connection.set_progress_handler(counts, 1)
    await look
    cursor.connection.set_progress_handler(None, 1)
    return count[0]


async def test_a_list_that_finds_enough_reads_only_that() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        cursor = connection.cursor()
        schema.migrate(cursor, NOW)
        sqlite_jobs.enqueue(cursor, NOW, [job() for _ in range(JOBS)])
        inspector = inspector_on(cursor, NOW)
        found = await inspector.job_ids(JobFilter(limit=SHOWN))
        assert len(found.ids) == SHOWN
        assert found.ids == sorted(found.ids, reverse=True)
        assert await steps(cursor, inspector.job_ids(JobFilter(limit=SHOWN))) < JOBS
        none = JobFilter(limit=SHOWN, tenant="none")
        assert await steps(cursor, inspector.job_ids(none)) > JOBS


async def test_a_schedule_is_found_without_reading_the_others() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        cursor = connection.cursor()
        schema.migrate(cursor, NOW)
        each = NewSchedule(name="", call=job(), spec='{"every":60}')
        names = [f"nightly-{number:04}" for number in range(JOBS)]
        put(cursor, NOW, [msgspec.structs.replace(each, name=name) for name in names])
        inspector = inspector_on(cursor, NOW)
        assert await steps(cursor, inspector.schedule(names[-1])) < JOBS


async def test_a_flow_of_any_size_is_read_by_its_indexes() -> None:
    """A walk takes as many steps of SQLite's machine in a flow ten times as large."""
    taken = [await steps_of_flows(size) for size in (JOBS, 10 * JOBS)]
    assert taken[1] < 1.2 * taken[0]


async def steps_of_flows(size: int) -> int:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        cursor = connection.cursor()
        schema.migrate(cursor, NOW)
        fan = job(after=tuple(Upstream(-1 - place) for place in range(size)))
        out = [job(after=(Upstream(-1 - size),))] * size
        sqlite_jobs.enqueue(cursor, NOW, [*[job()] * size, fan, *out])
        count = [0]

        def counts() -> None:
            count[0] += 1

        reader: Any = SimpleNamespace(inspector=inspector_on(cursor, NOW))
        connection.set_progress_handler(counts, 1)
        for job_id in (1, size + 1, 2 * size):
            flow = await read_flow(reader, job_id, 300)
            assert flow is not None
            assert (len(flow.jobs), flow.is_cut) == (300, True)
        for blocked in (True, False):
            await reader.inspector.newest_flows(3 * size, FLOWS_MAX, blocked=blocked)
        return count[0]
