"""A store moves from Debian's PostgreSQL to the wheel's by logical replication, under live workers.

One worker's address leads to the new server afterwards, another one is left on the old server, and
a third starts on the new one.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.proxy import Proxy, proxied
from harness.scene import Scene, scene
from harness.servers import PostgresServer
from outlast.model.job import State
from outlast.store.postgres.checks import PostgresFacts
from outlast.store.rows import JobFilter
from tests.crash.kit import goes_on
from tests.worlds import kit_moves
from tests.worlds.kit_moves import (
    APP,
    Producer,
    app,
    blocks_of,
    judge_ticks,
    put_outlast,
    run,
    times_noted,
)

pytestmark = [pytest.mark.timeout(300), pytest.mark.debian_postgres]
KEYLESS = """
SELECT relname FROM pg_class c
WHERE relkind = 'r' AND relpersistence = 'p' AND relname LIKE 'outlast\\_%'
  AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)"""
REFUSED = "in a read-only transaction"


@pytest.fixture(scope="module")
def servers(older_binaries: Path) -> Iterator[tuple[PostgresServer, PostgresServer]]:
    logical = {"wal_level": "logical"}
    with PostgresServer(logical, binaries=older_binaries) as old, PostgresServer() as new:
        for server in (old, new):
            server.create_database("shop")
        yield old, new


@pytest.fixture
async def moving(
    servers: tuple[PostgresServer, PostgresServer], tmp_path: Path
) -> AsyncIterator[tuple[Proxy, Scene]]:
    """An address that leads to the old server, and workers and a store that use it."""
    put_outlast(tmp_path)
    async with proxied(servers[0].url("shop")) as (proxy, url):
        app.url = url
        async with scene(url, tmp_path, app=APP, tasks=app.tasks) as stage:
            yield proxy, stage
            await app.close()


async def test_a_store_is_cut_over_with_live_workers_on_both_sides(
    servers: tuple[PostgresServer, PostgresServer], moving: tuple[Proxy, Scene]
) -> None:
    (old, new), (proxy, stage) = servers, moving
    urls = {"OLD_URL": old.url("shop"), "NEW_URL": new.url("shop")}

    async def do(commands: str) -> str:
        return await run(commands, stage.folder, stage.folder, new.bin, **urls)

    stays = await stage.worker("--queues", "default", "--lease", "120")
    is_left = ("--queues", "away", "--lease", "9", "--heartbeat", "1", "--url", urls["OLD_URL"])
    left = await stage.worker(*is_left)
    goes = await kit_moves.counts.using(then=kit_moves.noted.call("after")).enqueue()
    away = await kit_moves.counts.using(queue="away").enqueue()
    await app.enqueue_many(kit_moves.limited.using(labels=["night"]).call(name) for name in "abc")
    asks = await kit_moves.asks.enqueue("go")
    later = [kit_moves.noted.using(queue="later").call(f"later-{n}") for n in range(20)]
    await app.enqueue_many(later)
    for job in (goes, away):
        await stage.until(partial(stage.checkpoint, job.id), "a checkpoint")
    await stage.noted(1, "limited")
    await stage.tried(asks.id)
    producer = Producer()

    prepares, looks, cuts_over = blocks_of("Move to another server")
    assert not old.sql(KEYLESS, "shop"), "its updates would fail once it is published"
    await do(prepares)

    async def follows() -> bool:
        return (await do(looks)).strip() == "0"

    await stage.until(follows, "all tables to follow")
    some = len(producer.accepted)
    await stage.until(lambda: len(producer.accepted) > some + 20, "more jobs")
    await do(cuts_over)
    tokens = int(old.sql("SELECT last_value FROM outlast_token_seq", "shop"))
    with pytest.raises(RuntimeError, match=REFUSED):
        old.sql("SELECT outlast_enqueue_v1('noted', '{}')", "shop")
    ended = old.sql("SELECT count(*) FROM outlast_jobs WHERE state = 'completed'", "shop")

    proxy.lead_to("127.0.0.1", new.port)
    await proxy.cut()
    await goes_on(stage, goes.id)
    starts = await stage.worker("--queues", "default,away,later", "--url", urls["NEW_URL"])
    some = len(producer.accepted)
    await stage.until(lambda: len(producer.accepted) > some + 20, "more jobs")
    await producer.rest()
    await stage.until(lambda: len(begun(stage, away.id)) > 1, "the job of the worker that was left")
    await goes_on(stage, away.id)
    stage.enough()
    assert await app.send_event("go", "yes")
    for row in (await stage.store.inspector.jobs(JobFilter(limit=100_000)))[::-1]:
        assert (await stage.ended(row.id)).state is State.COMPLETED, row
    assert old.sql("SELECT count(*) FROM outlast_jobs WHERE state = 'completed'", "shop") == ended

    assert len(begun(stage, goes.id)) == 1, "its worker stayed"
    first, second = (entry["token"] for entry in begun(stage, away.id))
    assert first <= tokens < second
    (lost,) = left.told("attempt_ended")
    assert (lost["token"], lost["outcome"]) == (first, "released")
    started_at = (await stage.job(away.id)).started_at
    assert started_at is not None
    assert datetime.fromisoformat(lost["timestamp"]).timestamp() < started_at, "both at once"
    assert await asks.result() == "yes"
    await judge_ledger(stage, producer)
    passes = [(entry["name"], entry["does"]) for entry in stage.entries("limited")]
    assert [does for _, does in passes] == ["enters", "leaves"] * 3, passes
    await judge_ticks(stage)
    facts = await stage.store.inspector.environment()
    assert isinstance(facts, PostgresFacts)
    assert not facts.behind
    await stage.verify()
    for worker in (stays, starts):
        await worker.left(signal.SIGTERM)
    left.end()


def begun(stage: Scene, job: int) -> list[dict[str, Any]]:
    """Return the starts of this job's attempts, in order."""
    return [entry for entry in stage.entries() if entry["job"] == job]


async def judge_ledger(stage: Scene, producer: Producer) -> None:
    """Each accepted job was done, and once, unless an attempt of it was closed while it ran."""
    noted = times_noted(stage)
    names = {*producer.accepted, "after", *(f"later-{n}" for n in range(20))}
    assert set(noted) == names
    for name in (name for name, times in noted.items() if times > 1):
        closed = await stage.attempts(producer.accepted[name])
        assert len(closed) >= noted[name] - 1, f"{name} was done twice"
