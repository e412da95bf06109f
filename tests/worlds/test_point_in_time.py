"""A server that is set back to an earlier moment under live workers."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import outlast
from harness.scene import DEADLINE, Scene, scene
from harness.servers import PostgresServer, unprivileged_user
from outlast.model.job import State
from tests.crash.kit import goes_on
from tests.worlds import kit_moves
from tests.worlds.kit_moves import APP, app, blocks_of, judge_ticks, put_outlast, run, times_noted

pytestmark = pytest.mark.timeout(300)
USER: dict[str, Any] = unprivileged_user()
LAST_TOKEN = "SELECT last_value FROM outlast_token_seq"
BACK_UP = 'pg_basebackup -D "$BASE_BACKUP" -d "$OWNER_URL" --checkpoint=fast --no-sync'


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    made = PostgresServer({"archive_mode": "on"})
    made.settings["archive_command"] = f"mkdir -p {made.folder}/wal; cp %p {made.folder}/wal/%f"
    with made:
        made.create_database("shop")
        yield made


@pytest.fixture
async def stage(server: PostgresServer, tmp_path: Path) -> AsyncIterator[Scene]:
    put_outlast(tmp_path)
    async with scene(server.url("shop"), tmp_path, app=APP, tasks=app.tasks) as opened:
        yield opened


def names(server: PostgresServer) -> dict[str, str]:
    """Return what the page calls the server's folders."""
    folders = {"DATA": server.data, "BASE_BACKUP": server.folder / "base"}
    folders["ARCHIVE"] = server.folder / "wal"
    return {name: str(path) for name, path in folders.items()} | {"OWNER_URL": server.url("shop")}


async def back_up(server: PostgresServer) -> None:
    await run(BACK_UP, server.folder, server.bin, user=USER, **names(server))


async def test_nothing_from_after_the_moment_is_believed(
    server: PostgresServer, stage: Scene
) -> None:
    producer = outlast.App(stage.url)
    await back_up(server)
    lives = await stage.worker("--lease", "600", "--queues", "default")
    idle = await stage.worker("--lease", "600", "--queues", "held")
    goes = await stage.enqueue("counts")
    asks = await stage.enqueue("asks", event="go")
    later = producer.task(kit_moves.counts.fn).using(queue="later").call()
    noted = producer.task(kit_moves.noted.fn)
    again = noted.using(queue="later").call("again")
    taken, done = (job.id for job in await producer.enqueue_many([later, again]))
    await producer.pause(queue="held", wait=DEADLINE)
    held = await noted.using(queue="held").enqueue("held")
    await stage.until(partial(stage.checkpoint, goes), "a checkpoint")
    await stage.tried(asks)

    moment = await asyncio.to_thread(server.sql, "SELECT clock_timestamp()")
    also = await stage.worker("--lease", "600")
    gone = await stage.enqueue("noted", name="gone")
    assert await producer.send_event("go", "too late")
    await producer.resume(queue="held")
    for job in (gone, done, asks, held.id):
        assert (await stage.ended(job)).state is State.COMPLETED
    await stage.until(partial(stage.checkpoint, taken), "a checkpoint")
    before = {entry["job"]: entry["token"] for entry in stage.entries()}
    newest = int(await asyncio.to_thread(server.sql, LAST_TOKEN, "shop"))
    await asyncio.to_thread(server.sql, "SELECT pg_switch_wal()")

    commands, check = blocks_of("Set PostgreSQL back to an earlier moment")
    await asyncio.to_thread(server.stop)
    await run(commands, server.folder, user=USER, MOMENT=moment, **names(server))
    await asyncio.to_thread(server.start)
    await run(check, stage.folder, stage.folder, **names(server))

    await goes_on(stage, goes)
    assert (await stage.job(goes)).token == before[goes], "it began before the moment"
    assert await stage.store.inspector.job(gone) is None
    assert await producer.send_event("go", "in time")
    await stage.noted(3)  # one of them has begun again
    await goes_on(stage, taken)
    token = (await stage.job(taken)).token
    assert token is not None
    assert token > newest >= before[taken]
    stage.enough()
    for job in (goes, taken, done, asks):
        assert (await stage.ended(job)).state is State.COMPLETED
    assert await (await producer.get(asks)).result() == "in time"
    begun = [entry for entry in stage.entries() if entry["job"] in (goes, taken)]
    assert Counter(entry["job"] for entry in begun) == {goes: 1, taken: 2}
    assert times_noted(stage) == {"gone": 1, "again": 2, "held": 1}, "its queue is paused again"
    assert (await stage.job(held.id)).state is State.QUEUED
    await producer.resume(queue="held")
    assert (await stage.ended(held.id)).state is State.COMPLETED
    await judge_ticks(stage)
    await producer.close()
    for worker in (lives, idle, also):
        await worker.left(signal.SIGTERM)
