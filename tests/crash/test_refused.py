"""A worker that beats while the store refuses all else: seen in its row, and fixed in place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from harness.scene import Scene
from outlast.model.job import State
from outlast.store.rows import WorkerRow
from outlast.store.values import Purpose
from tests.crash.kit import scene

ROLE = "outlast_refused"


@pytest.fixture
async def owner(pg_url: str) -> AsyncIterator[Any]:
    """A session of the tables' owner, beside a role that may do nothing yet."""
    session = await asyncpg.connect(pg_url)
    await session.execute(f"DROP ROLE IF EXISTS {ROLE}; CREATE ROLE {ROLE} LOGIN")
    yield session
    await session.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")
    await session.close()


async def the_row(stage: Scene) -> WorkerRow:
    (row,) = await stage.worker_rows()
    return row


async def test_a_worker_that_loses_a_privilege_says_so_and_goes_on_when_it_is_back(
    pg_url: str, owner: Any, tmp_path: Path
) -> None:
    async with scene(pg_url, tmp_path) as stage:
        await stage.store.grant(ROLE, Purpose.WORKER)
        stage.url = pg_url.replace("postgres@", f"{ROLE}@")
        await stage.worker("--heartbeat", "0.5")
        await stage.ended(await stage.enqueue("noop"))
        await owner.execute(f"REVOKE UPDATE ON outlast_jobs FROM {ROLE}")
        job = await stage.enqueue("noop")

        async def is_told() -> bool:
            return (await the_row(stage)).failing is not None

        await stage.until(is_told, "a row that says what fails")
        row = await the_row(stage)
        assert row.failing is not None
        assert row.failing.startswith("exchange: NotPermitted: PostgreSQL: this role lacks")
        assert (row.status.value, (await stage.job(job)).state) == ("active", State.QUEUED)

        async def beats() -> bool:
            return (await the_row(stage)).beat > row.beat + 1

        await stage.until(beats, "another beat: the worker looks alive")
        await stage.store.grant(ROLE, Purpose.WORKER)
        await stage.ended(job)

        async def is_well() -> bool:
            return (await the_row(stage)).failing is None

        await stage.until(is_well, "a row that says nothing any more")
