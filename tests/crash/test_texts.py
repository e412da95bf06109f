"""Texts that the database cannot store: the job ends by its own end, and no other one notices."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from harness.scene import DEADLINE, Scene, scene
from harness.servers import PostgresServer
from outlast.errors import BadData
from outlast.model.job import State
from tests.crash.wordy import ROCKET, app

SHOWN = r"\ud83d\ude80"
pytestmark = pytest.mark.timeout(4 * DEADLINE)
# task -> the state in which its job ends, and the outcome of its last attempt, with what it says
ENDS = {
    "fails": (State.DEAD, "error", f"ValueError: no {ROCKET}"),
    "is_refused": (State.DEAD, "dead", f"since {ROCKET}"),
    "is_cancelled": (State.CANCELLED, "cancelled", f"since {ROCKET}"),
    "returns": (State.COMPLETED, "", ""),
    "saves": (State.COMPLETED, "", ""),
    "names_a_step": (State.DEAD, "error", "the step was rejected by the store"),
    "waits_for_an_event": (State.DEAD, "error", "has no equivalent in encoding"),
    "makes_a_key": (State.DEAD, "error", "has no equivalent in encoding"),
    "passes_it_on": (State.DEAD, "error", "has no equivalent in encoding"),
}


@pytest.fixture
async def stage(pg_server: PostgresServer, tmp_path: Path, encoding: str) -> AsyncIterator[Scene]:
    name = f"outlast_{encoding.lower()}"
    options = f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    pg_server.sql(f"CREATE DATABASE {name} {options}")
    app.url = pg_server.url(name)
    async with scene(app.url, tmp_path, app="tests.crash.wordy:app", tasks=app.tasks) as opened:
        yield opened
    await app.close()
    pg_server.drop_database(name)


@pytest.mark.short
@pytest.mark.parametrize("encoding", ["LATIN1", "EUC_JP"])
async def test_a_job_ends_by_its_own_end_with_escapes_in_its_texts(stage: Scene) -> None:
    await stage.worker("--concurrency", "20")
    beside = await stage.enqueue("goes_on")
    jobs = {name: await stage.enqueue(name) for name in ENDS}
    for name, (state, outcome, says) in ENDS.items():
        row = await stage.ended(jobs[name])
        assert row.state is state, name
        if state is State.COMPLETED:
            assert json.loads(row.result or "") == ROCKET, name
            continue
        last = max(await stage.attempts(row.id), key=lambda each: each.number)
        assert (last.outcome, last.number) == (outcome, row.attempt_count), name
        assert says.replace(ROCKET, SHOWN) in last.message, name
    (attempt,) = await stage.attempts(jobs["fails"])
    assert attempt.crash is not None
    assert attempt.progress is not None
    assert (attempt.crash.exception, attempt.progress.fraction) == ("ValueError", 0.5)
    assert f"no {SHOWN}" in (attempt.crash.traceback or "")
    assert await lines_of(stage, jobs["fails"]) == [f"before {SHOWN}"]
    with pytest.raises(BadData, match="encoding"):
        await stage.enqueue(2 * ROCKET)
    stage.enough()
    assert (await stage.ended(beside)).attempt_count == 1
    assert (await lines_of(stage, beside))[0] == "turn 1", "those of one batch are kept"


@pytest.mark.parametrize("encoding", ["SQL_ASCII"])
async def test_a_database_without_an_encoding_stores_all(stage: Scene) -> None:
    await stage.worker("--concurrency", "20")
    job = await stage.enqueue("fails")
    await stage.ended(job)
    (attempt,) = await stage.attempts(job)
    assert attempt.message == f"ValueError: no {ROCKET}"
    assert await lines_of(stage, job) == [f"before {ROCKET}"]


@pytest.mark.parametrize("encoding", ["LATIN1"])
@pytest.mark.parametrize("named", ["UTF8", "LATIN1"])
async def test_an_enqueue_over_a_connection_of_the_caller_says_what_is_refused(
    stage: Scene, named: str
) -> None:
    """psycopg's encoding is that of the database, unless it is named, as by Django."""
    kind = psycopg.AsyncConnection
    async with await kind.connect(stage.url, client_encoding=named, autocommit=True) as connection:
        again = app.tasks["again"].using(connection=connection)
        with pytest.raises(BadData):
            await again.enqueue(ROCKET)
        job = await again.enqueue("é")
    row = await stage.job(job.id)
    assert "é" in row.args


async def lines_of(stage: Scene, job: int) -> list[str]:
    return [line.text for log in await stage.store.inspector.logs(job) for line in log.lines]
