"""pg_upgrade from Debian's PostgreSQL to the wheel's, as the page says, while a worker stays up."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.scene import Scene, scene
from harness.servers import PostgresServer, free_port, unprivileged_user
from outlast.model.crash import Charge
from outlast.model.job import State
from outlast.store.rows import JobFilter
from tests.crash.kit import goes_on
from tests.worlds import kit_moves
from tests.worlds.kit_moves import APP, app, blocks_of, judge_ticks, put_outlast, run, times_noted

pytestmark = [pytest.mark.timeout(300), pytest.mark.debian_postgres]
# The page leaves the superuser's name to initdb, which takes that of the system user.
NAMED = 'initdb() { command initdb --username=postgres --auth=trust "$@"; }\n'


@pytest.fixture
def old(older_binaries: Path) -> Iterator[PostgresServer]:
    with PostgresServer(binaries=older_binaries) as server:
        server.create_database("shop")
        yield server


@pytest.fixture
async def stage(old: PostgresServer, tmp_path: Path) -> AsyncIterator[Scene]:
    app.url = old.url("shop")
    async with scene(app.url, tmp_path, app=APP, tasks=app.tasks) as opened:
        yield opened
        await app.close()


async def upgrade(old: PostgresServer, new: PostgresServer, folder: Path) -> list[str]:
    """Do what the page says; return what each block of commands prints."""
    before, after = blocks_of("Upgrade PostgreSQL to another major version")
    names = {"OLD_DATA": old.data, "NEW_DATA": new.data, "OLD_BIN": old.bin, "NEW_BIN": new.bin}
    env = {name: str(value) for name, value in names.items()}
    env |= {"PGUSER": "postgres", "PGPORTOLD": str(free_port()), "PGPORTNEW": str(free_port())}
    user: dict[str, Any] = unprivileged_user()
    await asyncio.to_thread(old.stop)
    said = [await run(NAMED + before, new.folder, new.bin, user=user, **env)]
    await asyncio.to_thread(new.start)
    put_outlast(folder)
    env = {"PGUSER": "postgres", "PGHOST": new.host, "PGPORT": str(new.port)}
    env["OWNER_URL"] = new.url("shop")
    return [*said, await run(after, folder, folder, new.bin, **env)]


async def test_a_store_is_upgraded_with_its_server_under_a_worker_that_stays_up(
    old: PostgresServer, stage: Scene
) -> None:
    store = stage.store
    stays = await stage.worker("--lease", "600", "--queues", "default,later")
    leaves = await stage.worker("--queues", "away", "--drain-timeout", "0")
    runs = await kit_moves.counts.using(then=kit_moves.noted.call("after")).enqueue()
    away = await kit_moves.counts.using(queue="away").enqueue()
    await app.enqueue_many(kit_moves.limited.call(name) for name in "abc")
    asks = await kit_moves.asks.enqueue("go")
    await app.pause(queue="later")
    waiting = [f"w{n}" for n in range(20)]
    await app.enqueue_many(kit_moves.noted.using(queue="later").call(name) for name in waiting)
    for job in (runs, away):
        await stage.until(partial(stage.checkpoint, job.id), "a checkpoint")
    await stage.noted(1, "limited")
    (waits,) = await stage.tried(asks.id)
    assert waits.outcome == "snoozed"
    await leaves.left(signal.SIGTERM)
    before = await store.inspector.jobs(JobFilter(limit=1000))

    with_old = await asyncio.to_thread(old.sql, "SHOW server_version_num")
    new = PostgresServer(port=old.port)
    shutil.rmtree(new.data)
    try:
        _, said = await upgrade(old, new, stage.folder)
        assert "nothing to do" in said
        assert new.sql("SHOW server_version_num") > with_old
        await stage.worker("--queues", "away")
        assert await app.send_event("go", "yes")
        assert await app.resume(queue="later")
        for job in (runs, away):
            await goes_on(stage, job.id)
        late = await kit_moves.noted.enqueue("late")
        assert late.id > max(row.id for row in before)
        stage.enough()
        for row in before:
            assert (await stage.ended(row.id)).state is State.COMPLETED
        await stage.ended(late.id)
        assert await asks.result() == "yes"
        begun = Counter(entry["job"] for entry in stage.entries())
        assert begun == {runs.id: 1, away.id: 2}, "the one went on, and the other came back"
        assert {each.charge for each in await stage.attempts(away.id)} == {Charge.NONE}
        await stage.until(lambda: times_noted(stage)["after"], "what follows the count")
        assert times_noted(stage) == Counter([*waiting, "late", "after"])
        passes = [(entry["name"], entry["does"]) for entry in stage.entries("limited")]
        assert [does for _, does in passes] == ["enters", "leaves"] * 3, passes
        assert {name for name, _ in passes} == {*"abc"}
        await judge_ticks(stage)
        await stage.verify()
        await stays.left(signal.SIGTERM)
    finally:
        new.dispose()
